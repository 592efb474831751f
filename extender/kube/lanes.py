"""The order of what is ready to be sent: lane by lane, in a lane namespace by namespace, in a
namespace by age.

No namespace waits for more than one of each other namespace's in its lane, however much those
have. Which namespace is next follows from the order of calls alone.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

from extender.core.commands import Lane

T = TypeVar("T")


class Lanes(Generic[T]):
    """What is ready. ``push`` and ``pop`` cost O(log n) of one namespace's."""

    def __init__(self) -> None:
        #: By lane and namespace: heaps by age, none empty. The namespace whose turn it is is first.
        self._lanes: tuple[OrderedDict[str, list[tuple[int, T]]], ...] = tuple(
            OrderedDict() for _ in Lane
        )
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, item: T, lane: Lane, namespace: str, age: int) -> None:
        """Add an item. ``age`` is smaller for what is older, and nobody else's."""
        heapq.heappush(self._lanes[lane].setdefault(namespace, []), (age, item))
        self._count += 1

    def first(self) -> T:
        """What :meth:`pop` takes next. Raises IndexError: nothing is ready."""
        turns = self._first_lane()
        return turns[next(iter(turns))][0][1]

    def pop(self) -> T:
        """Take the next; its namespace has its next turn after the others of the lane.

        Raises IndexError: nothing is ready.
        """
        turns = self._first_lane()
        namespace, ready = next(iter(turns.items()))
        _, item = heapq.heappop(ready)
        if ready:
            turns.move_to_end(namespace)
        else:
            del turns[namespace]
        self._count -= 1
        return item

    def _first_lane(self) -> OrderedDict[str, list[tuple[int, T]]]:
        for turns in self._lanes:
            if turns:
                return turns
        raise IndexError("nothing is ready")
