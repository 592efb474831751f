"""Traces of real clusters, replayed: what a placing policy does with years of other people's work."""
