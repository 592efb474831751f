"""The invariants (design, I1 to I4 and I6), judged from a watch history alone.

Time that counts against a deadline is time in which nothing was down. Gangs are judged while they can be
whole: while enough of their members exist (or their job asks for them and has not ended).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.soak import reading
from tests.soak.history import Entry
from tests.soak.reading import GroupKey, Obj

#: Seconds from the first to the last Binding of a gang of which nothing was killed meanwhile.
COMMIT_SECONDS = 10.0
#: Seconds after a crash within which a gang is whole or holds nothing; also the longest wait beside room.
DEADLINE_SECONDS = 30.0
#: Seconds for which a member that is gone still explains a Binding of another one.
_GONE_SECONDS = 5.0


@dataclass
class Gang:
    """One life of a group's record."""

    key: GroupKey
    record: Obj
    whole: bool = False
    #: Serving time and number of faults at which it became bound in part; None: it is not.
    partial: tuple[float, int] | None = None
    #: How many of how many members are bound, in words.
    part: str = ""
    #: Time of the first fault while it was bound in part.
    hit: float | None = None
    #: Serving time since which there is room for all of it, and none of it is bound.
    room: float | None = None
    told: set[str] = field(default_factory=set)


class Checker:
    """Fed entry by entry; `violations` grows. Nothing is asked of anybody."""

    def __init__(self, slack: float = 1.0) -> None:
        """``slack``: how much slower than an idle machine this one may be: deadlines grow by it."""
        self._slack = slack
        self.violations: list[dict[str, Any]] = []
        #: bound, whole, kills that cut a gang, ...
        self.counts: Counter[str] = Counter()
        #: Longest time from a fault that cut a gang until it was whole or held nothing.
        self.longest_cut = 0.0
        #: The same without the time in which something was down.
        self.longest_served = 0.0
        self.gangs: dict[GroupKey, Gang] = {}
        self.pods: dict[str, Obj] = {}
        self.jobs: dict[str, Obj] = {}
        self._members: dict[GroupKey, set[str]] = {}
        self._gone: dict[GroupKey, list[float]] = {}
        self._nodes: dict[str, Obj] = {}
        self._used: Counter[str] = Counter()
        #: Node of each pod that was ever bound, by uid; and those of them that hold it no more.
        self._where: dict[str, str] = {}
        self._freed: set[str] = set()
        self._succeeded: dict[tuple[str, str], str] = {}
        self._verdicts: dict[str, str] = {}
        self._down: Counter[str] = Counter()
        self._faults = 0
        self._now = 0.0
        self._serving = 0.0

    def feed(self, entry: Entry) -> None:
        """Judge one entry; entries of different kinds may come a little out of order."""
        at = max(float(entry["at"]), self._now)
        if self._now and not any(self._down.values()):
            self._serving += at - self._now
        self._now = at
        for gang in self.gangs.values():
            self._judge(gang)  # what was so until now
        if "mark" in entry:
            self._mark(entry["mark"], entry["what"])
        elif entry["kind"] == "Pod":
            self._pod(entry["type"], entry["object"])
        elif entry["kind"] == "PyTorchJob":
            self._job(entry["type"], entry["object"])
        elif entry["kind"] == "Node":
            name = entry["object"]["metadata"]["name"]
            if entry["type"] == "DELETED":
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = entry["object"]
        else:
            self._record(entry["kind"], entry["type"], entry["object"])
        for gang in self.gangs.values():
            self._look(gang)

    def unsettled(self) -> list[str]:
        """Gangs that are neither whole, nor waiting whole for room, nor unable to be whole."""
        found = []
        for gang in self.gangs.values():
            if gang.partial is not None:
                found.append(f"{'/'.join(gang.key)} is bound in part")
            elif gang.room is not None:
                found.append(f"{'/'.join(gang.key)} waits beside room for it")
        return found

    def is_cut(self) -> bool:
        """Whether some gang is bound in part just now."""
        return any(gang.partial is not None for gang in self.gangs.values())

    # --- entries

    def _violated(self, invariant: str, message: str) -> None:
        self.violations.append(
            {"invariant": invariant, "message": message, "at": round(self._now, 2)}
        )

    def _mark(self, mark: str, what: str) -> None:
        if mark == "DOWN":
            self._down[what] += 1
            self._faults += 1
            cut = [gang for gang in self.gangs.values() if gang.partial is not None]
            self.counts["kills that cut a gang"] += bool(cut)
            for gang in cut:
                gang.hit = gang.hit or self._now
        elif mark == "UP":
            self._down[what] -= 1
        elif mark == "QUIET":
            for text in self.unsettled():
                self._violated("I4" if "in part" in text else "I3", f"at the end: {text}")

    def _pod(self, change: str, pod: Obj) -> None:
        uid, group = reading.uid_of(pod), reading.group_of(pod)
        owner, name = reading.owner_of(pod), pod["metadata"]["name"]
        if uid not in self.pods and change != "DELETED" and owner:
            self._made_again(pod, owner, name)
        if reading.phase_of(pod) == "Succeeded" and owner:
            self._succeeded[owner, name] = uid
        if change == "DELETED":
            self._lose(uid, group)
            return
        self.pods[uid] = pod
        if group is not None:
            self._members.setdefault(group, set()).add(uid)
        self._placed(uid, pod, group)

    def _made_again(self, pod: Obj, owner: str, name: str) -> None:
        """I6: a finished replica is never created again, nor one of a finished job."""
        place = reading.place_of(pod)
        if (owner, name) in self._succeeded:
            self._violated("I6", f"pod {place} had succeeded and was created again")
        # The job's verdict may be read a moment late, but then its pods were created before it.
        if verdict := self._verdicts.get(owner):
            self._violated("I6", f"pod {place} was created for a job that has {verdict}")

    def _placed(self, uid: str, pod: Obj, group: GroupKey | None) -> None:
        """I2: nothing is given twice, and no pod moves."""
        place, node, before = reading.place_of(pod), reading.node_of(pod), self._where.get(uid, "")
        gpus = reading.gpus_of(pod["spec"])
        if before and node != before:
            self._violated("I2", f"pod {place} was bound to {before} and is on {node or 'none'}")
        if str((pod.get("status") or {}).get("reason", "")).startswith("OutOf"):
            self._violated("I2", f"pod {place}: {pod['status'].get('message')}")
        if node and not before:
            self._where[uid] = node
            self.counts["bound"] += 1
            if not reading.ended(pod):
                self._used[node] += gpus
                self._room_on(node, place)
            if group is not None:
                self._bound_whole(group, place)
        elif node and reading.ended(pod) and uid in self._where:
            self._free(uid, gpus)

    def _free(self, uid: str, gpus: int) -> None:
        """What a pod held is free from now on; said once."""
        if uid not in self._freed:
            self._freed.add(uid)
            self._used[self._where[uid]] -= gpus

    def _room_on(self, node: str, place: str) -> None:
        if node not in self._nodes:
            return
        have = _allocatable(self._nodes[node])
        if self._used[node] > have:
            used = self._used[node]
            self._violated("I2", f"{used} of {have} GPUs given on {node}, the last to pod {place}")

    def _bound_whole(self, group: GroupKey, place: str) -> None:
        """I1: whoever binds the first knows of at least minMember that can follow."""
        gang = self.gangs.get(group)
        if gang is None or gang.whole or reading.owner_of(gang.record):
            return  # a job's members are judged by their job
        gone = [
            at for at in self._gone.get(group, ()) if self._now - at <= _GONE_SECONDS * self._slack
        ]
        exist = len(self._alive(group)) + len(gone)
        least = reading.minimum(group[0], gang.record)
        if exist < least:
            self._violated("I1", f"pod {place} was bound when {exist} of {least} members exist")

    def _lose(self, uid: str, group: GroupKey | None) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        if uid in self._where and not reading.ended(pod):
            self._free(uid, reading.gpus_of(pod["spec"]))
        if group is not None:
            self._members[group].discard(uid)
            self._gone.setdefault(group, []).append(self._now)

    def _job(self, change: str, job: Obj) -> None:
        """I6: a terminal condition never changes."""
        uid, place = reading.uid_of(job), reading.place_of(job)
        before, now = self._verdicts.get(uid, ""), reading.verdict(job)
        if before and now != before:
            self._violated("I6", f"job {place} was {before} and is {now or 'neither'}")
        if now and not before:
            self._verdicts[uid] = now
            self.counts[f"jobs {now}"] += 1
        if change == "DELETED":
            self.jobs.pop(uid, None)
        else:
            self.jobs[uid] = job

    def _record(self, kind: str, change: str, record: Obj) -> None:
        key = (kind, record["metadata"]["namespace"], record["metadata"]["name"])
        gang = self.gangs.get(key)
        if change == "DELETED":
            if gang is not None and reading.uid_of(gang.record) == reading.uid_of(record):
                self._resolved(gang)
                del self.gangs[key]
            return
        if gang is None or reading.uid_of(gang.record) != reading.uid_of(record):
            self.gangs[key] = gang = Gang(key, record)
        gang.record = record

    # --- gangs

    def _alive(self, group: GroupKey) -> list[Obj]:
        """Members that hold a place, have done their work in it, or can get one."""
        members = (self.pods[uid] for uid in self._members.get(group, ()))
        return [
            pod
            for pod in members
            if reading.phase_of(pod) != "Failed"
            and ("deletionTimestamp" not in pod["metadata"] or reading.ended(pod))
        ]

    def _wants(self, gang: Gang, alive: list[Obj]) -> list[int]:
        """GPUs of each member that there is or, by its job, will be; empty: it cannot run."""
        owner = reading.owner_of(gang.record)
        if not owner:
            return [reading.gpus_of(pod["spec"]) for pod in alive]
        job = self.jobs.get(owner)
        if job is None or owner in self._verdicts or "deletionTimestamp" in job["metadata"]:
            return []
        return reading.replicas(job)

    def _look(self, gang: Gang) -> None:
        """Note what state the gang is in, and whether it has been in it for too long."""
        if gang.whole:
            return
        alive = self._alive(gang.key)
        placed = sum(bool(reading.node_of(pod)) for pod in alive)
        least, wants = reading.minimum(gang.key[0], gang.record), self._wants(gang, alive)
        if placed >= least:
            gang.whole = True
            self.counts["whole"] += 1
        able = not gang.whole and len(wants) >= least
        if not able or not placed:
            self._resolved(gang)
        elif gang.partial is None:
            down = any(self._down.values())
            gang.partial = (self._serving, self._faults - down)
            gang.hit = self._now if down else None
        fits = able and not placed and self._fits(least, max(wants))
        if not fits:
            gang.room = None
        elif gang.room is None:
            gang.room = self._serving
        gang.part = f"{placed} of {least}"

    def _judge(self, gang: Gang) -> None:
        """I1, I3 and I4, each said once of a gang."""
        name = "/".join(gang.key)
        commit, deadline = COMMIT_SECONDS * self._slack, DEADLINE_SECONDS * self._slack
        if gang.partial is not None:
            since, faults = gang.partial
            age, part = self._serving - since, f"{gang.part} members of {name} are bound"
            if faults == self._faults and age > commit:
                self._once(gang, "I1", f"{part} for {commit:g} s, and nothing had failed")
            elif age > deadline:
                self._once(gang, "I4", f"{part} for {deadline:g} s after a crash")
        if gang.room is not None and self._serving - gang.room > deadline:
            self._once(gang, "I3", f"{name} waits beside room for {deadline:g} s")

    def _once(self, gang: Gang, invariant: str, message: str) -> None:
        if invariant not in gang.told:
            gang.told.add(invariant)
            self._violated(invariant, message)

    def _resolved(self, gang: Gang) -> None:
        """It is whole, or holds nothing, or cannot be whole any more."""
        if gang.partial is not None and gang.hit is not None:
            self.longest_cut = max(self.longest_cut, self._now - gang.hit)
            self.longest_served = max(self.longest_served, self._serving - gang.partial[0])
        gang.partial = gang.hit = None

    def _fits(self, least: int, gpus: int) -> bool:
        """Whether the free GPUs of all nodes hold so many members of that size."""
        room = 0
        for name, node in self._nodes.items():
            if not (node.get("spec") or {}).get("unschedulable"):
                free = max(0, _allocatable(node) - self._used[name])
                room += free // gpus if gpus else least
        return room >= least


def _allocatable(node: Obj) -> int:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return int(allocatable.get(reading.GPU, 0))
