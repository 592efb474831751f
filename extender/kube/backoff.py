"""Pauses between tries: exponential with jitter, from an injected generator."""

from __future__ import annotations

import random


class Backoff:
    """Doubles from ``first`` to ``most`` seconds; each pause is drawn from its upper half."""

    def __init__(self, rng: random.Random, *, first: float = 0.2, most: float = 15.0) -> None:
        self._rng = rng
        self._first = first
        self._most = most
        self._next = first

    def pause(self, asked: float | None = None) -> float:
        """Seconds to wait before the next try; never less than what the server ``asked`` for."""
        now, self._next = self._next, min(self._next * 2, self._most)
        return max(now * self._rng.uniform(0.5, 1.0), asked or 0.0)

    def reset(self) -> None:
        """Something worked."""
        self._next = self._first
