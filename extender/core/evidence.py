"""What kube-scheduler was seen to refuse, for what Muster does not model (design §2, Evidence).

An entry says that pods of one shape do not fit on one node. It ends with the next change of the
node's row, or after a time: kube-scheduler may have known less than Muster, or taken a nomination
that is void for a pod, so the first entry lasts a moment and only a refusal that comes again and
again is believed for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from extender.core.reasons import Code

if TYPE_CHECKING:
    from extender.core.cluster import Cluster
    from extender.core.shape import PodShape
    from extender.core.snapshot import Snapshot


#: How much longer an entry lasts than the one before it.
_GROWTH = 4


class _Entry(Struct):
    until: float
    seconds: float
    message: str
    #: EVIDENCE or KUBELET: who refused.
    code: Code
    #: False once it has ended by time; kept for a while, so that the next one lasts longer.
    stands: bool = True


class Evidence:
    """Refusals by (shape, node name)."""

    def __init__(self, first: float, most: float) -> None:
        """Seconds: how long the first entry for a place lasts, and any entry at most."""
        self._first, self._most = first, most
        self._entries: dict[tuple[PodShape, str], _Entry] = {}
        self._ended = False

    def __len__(self) -> int:
        """Entries that stand."""
        return sum(entry.stands for entry in self._entries.values())

    def add(self, shape: PodShape, node: str, message: str, now: float) -> None:
        """Note that ``shape`` was refused on ``node``, in the words of kube-scheduler."""
        before = self._entries.get((shape, node))
        seconds = min(before.seconds * _GROWTH if before else self._first, self._most)
        self._entries[shape, node] = _Entry(now + seconds, seconds, message, Code.EVIDENCE)

    def add_kubelet(self, shape: PodShape, node: str, message: str, now: float) -> None:
        """Note that the node's kubelet failed a pod of ``shape``: it knows its devices, so it is
        believed at once until the node changes, or for as long as anybody is.
        """
        entry = _Entry(now + self._most, self._most, message, Code.KUBELET)
        self._entries[shape, node] = entry

    def forget(self, node: str | None = None) -> None:
        """The node changed otherwise than by Muster's own doing (None: all of them may have)."""
        for shape, name in list(self._entries):
            if node is None or name == node:
                self._ended |= self._entries.pop((shape, name)).stands

    def ended(self, now: float) -> bool:
        """Whether entries have ended since the last call, so that gangs may fit that did not."""
        for key, entry in list(self._entries.items()):
            if entry.stands and now >= entry.until:
                entry.stands = False
                self._ended = True
            elif now >= entry.until + self._most:
                del self._entries[key]
        ended, self._ended = self._ended, False
        return ended

    def ban(self, cluster: Cluster, view: Snapshot) -> None:
        """Leave out of ``view`` what is still refused."""
        for (shape, node), entry in self._entries.items():
            row = cluster.row_of(node)
            if entry.stands and row is not None:
                view.ban(shape, row, entry.message, entry.code)

    def next_end(self) -> float | None:
        """When the first entry ends by time."""
        return min((x.until for x in self._entries.values() if x.stands), default=None)
