"""Deterministic simulation: the service, unchanged, among faults that are drawn from a seed."""

from extender.chaos.log import replay

__all__ = ["replay"]
