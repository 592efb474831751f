"""What kube-scheduler was seen to refuse, for what Muster does not model (design §2, Evidence).

An entry says that pods of one shape do not fit on one node. It ends with the next change of the
node's row, or after a time limit, so that a mistaken one cannot keep a gang waiting for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.core.cluster import Cluster
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot


class Evidence:
    """Refusals by (shape, node name)."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: how long an entry lasts at most."""
        self._seconds = seconds
        self._entries: dict[tuple[PodShape, str], tuple[float, str]] = {}

    def __len__(self) -> int:
        """Entries, ended ones included until :meth:`ban` drops them."""
        return len(self._entries)

    def add(self, shape: PodShape, node: str, message: str, now: float) -> None:
        """Note that ``shape`` was refused on ``node``, in the words of kube-scheduler."""
        self._entries[shape, node] = (now + self._seconds, message)

    def forget(self, node: str | None = None) -> None:
        """The node changed otherwise than by Muster's own doing (None: all of them may have)."""
        for shape, name in list(self._entries):
            if node is None or name == node:
                del self._entries[shape, name]

    def ban(self, cluster: Cluster, view: Snapshot, now: float) -> None:
        """Leave out of ``view`` what is still refused; drop what is not."""
        for (shape, node), (until, message) in list(self._entries.items()):
            row = cluster.row_of(node)
            if row is None or now >= until:
                del self._entries[shape, node]
            else:
                view.ban(shape, row, message)

    def next_end(self) -> float | None:
        """When the first entry ends by time."""
        return min((until for until, _ in self._entries.values()), default=None)
