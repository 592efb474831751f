"""The loop's core: events in, commands out, and nothing else.

``apply`` records what happened; ``step`` decides what follows, in this order: jobs, rows that
changed, time, plans, barriers, plain binds, reports. Equal sequences of (apply, step) calls give
equal commands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from extender.core import (
    admission,
    committing,
    creating,
    groups,
    jobsync,
    jobwrites,
    keeping,
    networks,
    nodeevents,
    placing,
    plain,
    reporting,
)
from extender.core import commands as c
from extender.core import events as e
from extender.core.api import NODES, VOLCANO_GROUPS, Resource
from extender.core.framework import JobKind
from extender.core.gang import UNPLACED, Gang, Stage
from extender.core.identity import GroupKey
from extender.core.job import Job
from extender.core.planner import OF_ROOM
from extender.core.reasons import Code, Refusal, refuse
from extender.core.routing import handlers
from extender.core.session import Session
from extender.core.state import Rules, State

#: How long an object is left alone whose handling has failed by a fault of Muster's own (seconds).
ASIDE_SECONDS = 30.0
#: Members that one step lets through (40 µs each, where their pods are made).
RELEASES_A_STEP = 32
#: Bindings that one step sends (10 µs each).
BINDS_A_STEP = 100
#: Two times closer than this are one (seconds): the loop's timers are this exact, floats are not.
_SAME = 1e-3


class Coordinator:
    """Owns the state; the shell gives it events and carries out its commands."""

    def __init__(self, rules: Rules, session: Session, kinds: Mapping[Resource, JobKind]) -> None:
        """``session``: the plugins; ``kinds``: the job kinds that it runs."""
        self.state = State(rules, session, kinds)
        self._apply = handlers(self.state)

    def apply(self, event: e.Event, now: float) -> None:
        """Record one event. ``now``: seconds since the epoch, never going back."""
        self._apply[type(event)](event, now)

    def step(self, now: float) -> list[c.Command]:
        """Decide what follows from everything applied so far."""
        s = self.state
        for node in [node for node in s.health.gone if not s.cluster.pods.waiting_for(node)]:
            s.health.forget(node)
        s.node_news.update(s.health.believe(now))
        nodeevents.tell_jobs(s)
        for node, keys in list(s.unhoused.items()):
            if all(s.housed(key, node) is None for key in keys):
                del s.unhoused[node]
        if s.leading and s.synced:
            _take_back(s, now)
            _step(s, now)
        s.touched.clear()
        return s.take()

    def set_aside(self, now: float) -> str:
        """A step was broken off by a fault: leave what it was at alone for a while, so that the
        next step serves the others. Returns that object's name; "" if it was at none.
        """
        s = self.state
        at, s.at = s.at, None
        if at is None:
            return ""
        s.aside[at] = now + ASIDE_SECONDS
        s.send(c.WakeAt(s.aside[at]))
        return f"{at.resource.kind} {at}" if isinstance(at, GroupKey) else f"job {at}"


def _take_back(s: State, now: float) -> None:
    """What was to hold for a while holds no longer; objects that were left alone are looked at."""
    admission.forget(s, now)
    for uid in [uid for uid, until in s.given_away.items() if until <= now]:
        del s.given_away[uid]
    for key in [key for key, until in s.aside.items() if until <= now]:
        del s.aside[key]
        known = s.gangs.get(key) if isinstance(key, GroupKey) else s.jobs_by_uid.get(key)
        if known is not None:
            known.dirty = True


def _step(s: State, now: float) -> None:
    s.releases, s.bindings = RELEASES_A_STEP, BINDS_A_STEP
    jobwrites.spare(s, now)
    awake = [
        job
        for job in s.jobs.values()
        if job.recheck
        or job.dirty
        or job.to_serve
        or (job.wake_at is not None and job.wake_at <= now)
    ]
    for job in awake:
        if s.turn_of(job.uid):
            _job(s, job, now)
    s.at = None
    networks.report(s)
    _avoided(s, now)
    _evidence(s, now)
    _time(s, now)
    placing.plan_pass(s, now)
    for gang in [gang for gang in s.gangs.values() if gang.due or gang.dirty]:
        if s.turn_of(gang.key):
            placing.keep_whole(s, gang, now)
    s.at = None
    plain.binds(s, now)
    plain.wake(s)
    _answers(s, now)
    s.at = None
    if any(gang.dirty and gang.key not in s.aside for gang in s.gangs.values()):
        s.send(c.WakeAt(now))


def _time(s: State, now: float) -> None:
    """What rows that changed, and time, do to gangs."""
    time = now + _SAME
    awake = [
        gang
        for gang in s.gangs.values()
        if gang.dirty or gang.look_at <= time or (s.touched and _holds_places(gang))
    ]
    for gang in awake:
        if not s.turn_of(gang.key):
            continue
        gang.look_at, gang.due = math.inf, True
        if gang.dirty:
            gang.dirty = False
            gang.refused_at = -1
            jobsync.drop_jobless(s, gang)
            jobwrites.keep_minimum(s, gang)
        if s.touched:
            committing.check_rows(s, gang, now)
        committing.settle(s, gang, now)
        _record(s, gang, now)


def _answers(s: State, now: float) -> None:
    """Barriers, and what is said of gangs; those that nobody names any more are forgotten."""
    for gang in [gang for gang in s.gangs.values() if gang.due or gang.dirty]:
        if not s.turn_of(gang.key):
            continue
        gang.due = False
        committing.barrier(s, gang, now)
        _waiting(s, gang, now)
        reporting.report(s, gang, now)
        reporting.orphan_notices(s, gang)
        if not gang.members and not gang.foreign and not gang.uid:
            s.gangs.pop(gang.key, None)
            keeping.decided(s, gang, None, now)


def _job(s: State, job: Job, now: float) -> None:
    if job.recheck:
        admission.recheck(s, job, now)
    if job.to_serve:
        jobwrites.serve(s, job, now)
    if job.rest_until <= now and (job.dirty or (job.wake_at is not None and job.wake_at <= now)):
        jobsync.reconcile(s, job, now)


def _avoided(s: State, now: float) -> None:
    """Nodes on which several gangs have failed, and those on which none has for a while."""
    for node in s.health.judge(now):
        found = s.health.avoiding[node]
        message = f"{found.gangs} gangs have failed here of late: others are placed here last"
        s.notice(NODES, "", node, "", "Warning", "Avoided", message)
    for at in (s.health.next_end(), s.health.next_loss(now)):
        if at is not None:
            s.send(c.WakeAt(at))


def _evidence(s: State, now: float) -> None:
    """Where kube-scheduler's refusals are believed no longer, gangs may fit that did not."""
    if s.evidence.ended(now):
        for gang in s.gangs.values():
            gang.refused_at = -1
    if (end := s.evidence.next_end()) is not None:
        s.send(c.WakeAt(end))


def _holds_places(gang: Gang) -> bool:
    """Members that are not bound may have a node, which may have changed."""
    return gang.stage != Stage.WAITING or gang.count(*UNPLACED) > 0


def _record(s: State, gang: Gang, now: float) -> None:
    """Make a record for a group that only labels or annotations name.

    Not for pods that are all being deleted: it would outlive them.
    """
    if gang.uid or gang.claim is None:
        return
    if not any(slot.uid and not slot.deleting for slot in gang.members.values()):
        return
    if now < gang.record_again_at:
        if gang.record_again_at < math.inf:  # else it is being made, and its answer comes
            s.look(gang, gang.record_again_at)
        return
    if gang.record_again_at:
        gang.record_unseen, gang.refused_at = True, -1
    body = groups.wanted_record(gang.key, gang.claim, groups.owners_of(gang))
    if isinstance(body, Refusal):
        gang.fault = body
        return
    gang.record_again_at = math.inf

    def then(done: e.Done, now: float) -> None:
        # One that exists already (409) is shown by the watch, unless it cannot be read.
        gang.record_again_at = now + s.rules.retry_seconds_max
        s.look(gang, gang.record_again_at)
        if not done.ok and done.code != 409:
            gang.fault = refuse(Code.GROUP_REFUSED, name=str(gang.key), message=done.message)
            gang.dirty = True

    ns = gang.key.namespace
    s.send(c.Create(s.next_id(then), c.Lane.PLAN, VOLCANO_GROUPS, ns, body))


def _waiting(s: State, gang: Gang, now: float) -> None:
    """A gang that waits: its schedule timeout, and its pods made visible after a while."""
    if gang.waiting_since is None or gang.satisfied():
        return
    waited = now - gang.waiting_since
    if gang.timeout is not None and not gang.timed_out:
        gang.timed_out = waited >= gang.timeout
        if not gang.timed_out:
            s.look(gang, gang.waiting_since + gang.timeout)
    visible = gang.refusal is not None and gang.refusal.code in OF_ROOM
    if gang.job is None or not visible or gang.stage != Stage.WAITING:
        return
    if waited >= s.rules.visible_after:
        creating.make_visible(s, gang, now)
    else:
        s.look(gang, gang.waiting_since + s.rules.visible_after)
