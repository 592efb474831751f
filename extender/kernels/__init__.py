"""Numba loops over columns: arrays in, preallocated arrays out."""
