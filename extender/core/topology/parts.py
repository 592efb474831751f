"""GPUs that are given away in parts: which of them have room for a share, and what it breaks.

A node registers its devices by annotation (HAMi, Volcano) or says how many it has (Alibaba's), and
the scheduler that gives parts away writes on each pod which it has. Whoever may write the pod may
write that too: it says which devices, never how much of them. What is not told, or contradicts what the
pod asks for, is assumed: the fullest device that has room, so that whole ones stay whole. Each device
has slots (pods at once), MiB of memory and thousandths of its cores, and a share takes of every one of
its devices:

* a slot, its memory (where it says none, its percentage, all of it by default), its cores;
* all cores (1000): only where nobody is; cores not limited (0): not where all cores are given.

Source: the rules of HAMi (pkg/device/nvidia) and Volcano (pkg/scheduler/api/devices/nvidia/vgpu), which are
the same. Which of the devices that have room they give is theirs to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from extender.core.errors import InvalidObject
from extender.core.topology.kubelet import INIT, Container
from extender.core.topology.kubelet_shares import COUNTS, MILLI, PERCENT, Share
from extender.core.topology.registers import GIVEN, Devices, Given, Told

#: Shares that are given one by one to find out how many pods have room (0.1 ms each).
_MOST_TAKEN = 256


class Room(Struct, frozen=True, order=True):
    """What one device has left."""

    #: Pods that have a part of it.
    pods: int
    slots: int
    memory: int
    milli: int
    #: In all; a percentage is of that.
    all_memory: int
    all_milli: int

    def need(self, share: Share) -> int:
        """MiB that the share takes of it."""
        return share.memory or self.all_memory * share.memory_percent // PERCENT

    def copies(self, share: Share) -> int:
        """How many pods with this share have room on the device."""
        if share.milli == MILLI and self.pods:
            return 0
        if not share.milli and self.milli <= 0:
            return 0
        most = [min(self.slots, 1) if share.milli == MILLI else self.slots]
        if self.need(share):
            most.append(self.memory // self.need(share))
        if share.milli:
            most.append(self.milli // share.milli)
        return max(min(most), 0)

    def less(self, memory: int, milli: int) -> Room:
        """The device with one pod more, which takes so much."""
        left = self.memory - memory, self.milli - milli
        return Room(self.pods + 1, self.slots - 1, *left, self.all_memory, self.all_milli)

    def emptied(self) -> Room:
        """The device as if nobody had a part of it."""
        of = self.all_memory, self.all_milli
        return Room(0, self.slots + self.pods, *of, *of)


class Rooms(Struct, frozen=True):
    """What the devices of a node have left, sorted, as which is which matters to nobody who asks for
    room: equal for nodes that have the same left.
    """

    convention: str
    rooms: tuple[Room, ...]

    def emptied(self) -> Rooms:
        """As if nobody had a part of them."""
        return Rooms(self.convention, tuple(sorted(each.emptied() for each in self.rooms)))


def empty(devices: Devices) -> list[Room]:
    """The devices as if nobody had a part of them, in their order."""
    columns = zip(devices.slots, devices.memory, devices.milli, strict=True)
    return [Room(0, slots, memory, milli, memory, milli) for slots, memory, milli in columns]


def chosen(rooms: Sequence[Room], share: Share) -> list[int] | None:
    """The devices that a share gets, or None: so many different ones that have room.

    The fullest that have room, and of these as many such shares fit afterwards as could at all.
    """
    room = [each.copies(share) for each in rooms]
    count = share.devices
    if sum(each > 0 for each in room) < count:
        return None
    # Started ones first, then those with the least left.
    order = sorted(
        (at for at, each in enumerate(room) if each),
        key=lambda at: (not rooms[at].pods, rooms[at].memory, rooms[at].milli, rooms[at].slots, at),
    )
    if count == 1:
        return order[:1]
    target, taken = _rounds(room, count) - 1, list[int]()
    for at in order:
        if len(taken) == count:
            break
        rest = sorted((b for b in order if b != at and b not in taken), key=lambda b: (-room[b], b))
        whole_set = [*taken, at, *rest[: count - len(taken) - 1]]
        if len(whole_set) == count:
            left = [each - (b in whole_set) for b, each in enumerate(room)]
            if _rounds(left, count) >= target:
                taken.append(at)
    return taken


def take(rooms: Sequence[Room], shares: Sequence[Share]) -> list[Room] | None:
    """What is left once a pod has its shares; None: it has no room."""
    left = list(rooms)
    for share in shares:
        devices = chosen(left, share)
        if devices is None:
            return None
        for at in devices:
            left[at] = left[at].less(left[at].need(share), share.milli)
    return left


def taken_anyhow(rooms: Sequence[Room], shares: Sequence[Share]) -> list[Room]:
    """As :func:`take`; of a pod that has no room by this model, and runs: the emptiest devices."""
    left = list(rooms)
    for share in shares:
        devices = chosen(left, share)
        if devices is None:
            order = sorted(range(len(left)), key=lambda at: (left[at].pods, -left[at].memory, at))
            devices = order[: share.devices]
        for at in devices:
            left[at] = left[at].less(left[at].need(share), share.milli)
    return left


def taken_as_told(
    rooms: Sequence[Room], devices: Devices, told: Given, pod: Sequence[Container]
) -> list[Room] | None:
    """What is left once a pod has its shares of the ``devices`` that it is told to have; None where that
    is not told, contradicts what it asks for, or cannot be, as they have no room for it.

    Less memory than all is believed of a share that asks for no amount: the scheduler's default.
    """
    claim = next((each for each in told if each.convention == devices.convention), None)
    if claim is None or _contradiction(claim, pod, devices) is not None:
        return None
    at = {name: number for number, name in enumerate(devices.ids)}
    left = list(rooms)
    for share, those in zip(asked(pod, devices.convention), _apps(claim, pod), strict=True):
        for name, memory in those:
            room = left[at[name]]
            need = room.need(share)
            if memory and not share.memory and share.memory_percent == PERCENT:
                need = min(need, memory)
            left[at[name]] = room = room.less(need, share.milli)
            if room.memory < 0 or room.milli < 0:
                return None
    return left


def contradictions(
    told: Given, pod: Sequence[Container], devices: Devices | None
) -> list[InvalidObject]:
    """What of that contradicts what the pod asks for, or the ``devices`` of its node, if those are known."""
    found = []
    for claim in told:
        known = devices if devices and devices.convention == claim.convention else None
        allowed = _contradiction(claim, pod, known)
        if allowed is not None:
            field = f"metadata.annotations[{GIVEN[claim.convention]}]"
            found.append(InvalidObject(field, claim.text, allowed))
    return found


def _contradiction(claim: Told, pod: Sequence[Container], devices: Devices | None) -> str | None:
    """What would be allowed instead; None: there is nothing wrong."""
    shares = asked(pod, claim.convention)
    if not shares:
        return f"nothing, as the pod asks for no device of {claim.convention}"
    those = _apps(claim, pod)
    # One that is named again would count again.
    numbers = [len(each) for each in those]
    if numbers != [share.devices for share in shares] or numbers != [*map(len, map(dict, those))]:
        counts = " + ".join(str(share.devices) for share in shares)
        return f"{counts} different devices of {claim.convention}, as its containers ask for"
    more = (
        memory > share.memory > 0
        for share, each in zip(shares, those, strict=True)
        for _, memory in each
    )
    if any(more):
        return "no more MiB of a device than its container asks for"
    if devices is not None and any(dict(each).keys() - set(devices.ids) for each in those):
        return "devices that its node registers"
    return None


def _apps(claim: Told, pod: Sequence[Container]) -> list[tuple[tuple[str, int], ...]]:
    """The devices of those containers that keep them. HAMi tells those of init containers too."""
    name = COUNTS[claim.convention]
    kinds = [
        each.kind
        for each in pod
        if dict(each.devices).get(name)
        or (each.share and each.share.convention == claim.convention)
    ]
    those = list(claim.devices)
    if len(those) != len(kinds):
        return those
    return [each for each, kind in zip(those, kinds, strict=True) if kind != INIT]


def copies(rooms: Sequence[Room], shares: Sequence[Share], most: int) -> int:
    """How many such pods have room one after the other, ``most`` at most. Exact for pods of one
    container with a share; of several never more than have room.
    """
    if len(shares) == 1:
        room = [each.copies(shares[0]) for each in rooms]
        return min(_rounds(room, shares[0].devices), most)
    most = min(most, max(1, _MOST_TAKEN // max(1, len(shares))))
    for count in range(most):
        left = take(rooms, shares)
        if left is None:
            return count
        rooms = left
    return most


def broken(before: Sequence[Room], after: Sequence[Room]) -> int:
    """How many devices that nobody had a part of somebody has a part of."""
    return sum(not each.pods for each in before) - sum(not each.pods for each in after)


def worth(taker: Sequence[Container], pod: Sequence[Container], most: int) -> int:
    """How many pods at most no longer have room once ``taker`` has its shares; ``most``: any number. 0
    where neither asks for parts.
    """
    lost = 0
    for convention in COUNTS if any(each.share for each in (*taker, *pod)) else ():
        shares = asked(taker, convention)
        for each in asked(pod, convention):
            lost = max(lost, sum(_worth(share, each, most) for share in shares))
    return min(lost, most)


def asked(pod: Sequence[Container], convention: str) -> list[Share]:
    """What a pod has of the devices of such nodes: a whole device has no cores' limit."""
    found = []
    for each in pod:
        count = dict(each.devices).get(COUNTS[convention], 0)
        if each.share is not None and each.share.convention == convention:
            found.append(each.share)
        elif count and each.kind != INIT:
            found.append(Share(count, 0, convention=convention))
    return found


def _rounds(room: Sequence[int], count: int) -> int:
    """How often ``count`` different devices can be taken, of which each may be so often.

    As often as r where sum(min(room, r)) >= count * r, the largest such.
    """
    if count < 1:
        return 0
    if count == 1:
        return sum(room)
    low, high = 0, sum(room) // count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(each, middle) for each in room) >= count * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _worth(taker: Share, pod: Share, most: int) -> int:
    """Of one share: on each of its devices so many of ``pod``'s no longer fit."""
    lost = [1]
    if pod.memory and taker.memory:
        lost.append(-(-taker.memory // pod.memory))
    elif not pod.memory and not taker.memory:
        lost.append(-(-taker.memory_percent // pod.memory_percent) if pod.memory_percent else 0)
    else:
        return most  # MiB of one and a percentage of the other: of an unknown whole.
    if not pod.milli or pod.milli == MILLI:
        if taker.milli and not pod.milli:
            return most  # its cores may be the last.
    else:
        lost.append(-(-taker.milli // pod.milli))
    return max(lost) * taker.devices
