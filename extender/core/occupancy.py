"""How many pods of each shape are on each row: what ports, affinity and spread look at."""

from __future__ import annotations

from collections.abc import Mapping

from extender.core.shape import PodShape

#: Pods per row; no zero entries.
Counts = Mapping[int, int]


class Occupancy:
    """Counts by shape and row. A frozen copy shares what has not changed since."""

    def __init__(self) -> None:
        self._ids: dict[PodShape, int] = {}
        self._shapes: list[PodShape | None] = []
        self._references: list[int] = []
        self._counts: list[dict[int, int]] = []
        self._free: list[int] = []
        #: Shapes whose counts were copied since the last freeze and may be written in place.
        self._own: set[int] = set()
        self._frozen: list[tuple[PodShape, Counts]] | None = None
        #: Ids of shapes that keep others away: few, where most shapes are pods pinned each to its node.
        self._restricting: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def shape(self, shape_id: int) -> PodShape:
        """The shape behind an id that is still held."""
        shape = self._shapes[shape_id]
        if shape is None:
            raise KeyError(shape_id)
        return shape

    def hold(self, shape: PodShape) -> int:
        """The id of the shape, kept until it was dropped as often as it was held."""
        shape_id = self._ids.get(shape)
        if shape_id is None:
            shape_id = self._new(shape)
        self._references[shape_id] += 1
        return shape_id

    def drop(self, shape_id: int) -> None:
        """The opposite of :meth:`hold`; the last drop forgets the shape."""
        self._references[shape_id] -= 1
        if not self._references[shape_id]:
            del self._ids[self.shape(shape_id)]
            self._shapes[shape_id] = None
            self._counts[shape_id] = {}
            self._own.discard(shape_id)
            self._restricting.pop(shape_id, None)
            self._free.append(shape_id)
            self._frozen = None

    def add(self, shape_id: int, row: int, count: int) -> None:
        """Change the number of pods of a shape on a row."""
        counts = self._counts[shape_id]
        if shape_id not in self._own:
            counts = self._counts[shape_id] = dict(counts)
            self._own.add(shape_id)
        total = counts.get(row, 0) + count
        if total:
            counts[row] = total
        else:
            del counts[row]
        self._frozen = None

    def change(self, shape: PodShape, row: int, sign: int) -> None:
        """Add one pod (1) or take one off (-1); the shape is held once for each."""
        shape_id = self.hold(shape) if sign > 0 else self._ids[shape]
        self.add(shape_id, row, sign)
        if sign < 0:
            self.drop(shape_id)

    def freeze(self) -> list[tuple[PodShape, Counts]]:
        """Shapes that are anywhere, with their counts; the result never changes afterwards."""
        if self._frozen is None:
            self._own.clear()
            self._frozen = [
                (shape, counts)
                for shape, counts in zip(self._shapes, self._counts, strict=True)
                if shape is not None and counts
            ]
        return self._frozen

    def restricting(self) -> list[tuple[PodShape, Counts]]:
        """Of :meth:`freeze`, shapes with anti-affinity: all that pods without any terms must heed."""
        frozen = self.freeze()
        if not self._restricting:
            return []
        return [(shape, counts) for shape, counts in frozen if shape.anti_affinity]

    def flat(self) -> dict[tuple[PodShape, int], int]:
        """The same by (shape, row)."""
        return {(shape, row): count for shape, rows in self.freeze() for row, count in rows.items()}

    def _new(self, shape: PodShape) -> int:
        if self._free:
            shape_id = self._free.pop()
            self._shapes[shape_id] = shape
        else:
            shape_id = len(self._shapes)
            self._shapes.append(shape)
            self._references.append(0)
            self._counts.append({})
        self._ids[shape] = shape_id
        if shape.anti_affinity:
            self._restricting[shape_id] = None
        return shape_id
