"""Decisions as pure functions: (state, event, now) to (state, commands)."""
