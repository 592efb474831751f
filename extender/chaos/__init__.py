"""Deterministic simulation: the service, unchanged, among faults that are drawn from a seed."""
