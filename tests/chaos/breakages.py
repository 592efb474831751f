"""The service, broken in one place: each function leaves one thing out, and the judge has to see it."""

from __future__ import annotations

import pytest

from extender.core import adopting, children, committing, groups, ingest, releasing, reporting
from extender.core.answers import StateView
from extender.core.cluster import Cluster
from extender.core.gang import PLACED, Gang, Member, Stage
from extender.core.record import PLANNED
from extender.core.session import Session
from extender.core.state import State
from extender.core.topology.parts import Room
from extender.jobs import conditions
from extender.jobs.history import History
from extender.jobs.mpi_v2 import MPIJob
from extender.kube import requests
from extender.kube.executor import Executor
from extender.kube.label import LeaderLabel
from extender.kube.lease import LeaderElector
from extender.kube.reflector import Reflector
from extender.loop import Loop


def no_write_ahead(patch):
    written = releasing.write

    def write(s, gang, state):
        if state != PLANNED:
            written(s, gang, state)
            return
        gang.stage = Stage.RELEASED
        releasing.release(s, gang, gang.progress_at)

    patch.setattr(releasing, "write", write)


def no_barrier(patch):
    satisfied = Gang.satisfied

    def without(self, *more):
        return True if Member.ARRIVED in more else satisfied(self, *more)

    patch.setattr(Gang, "satisfied", without)
    # The gang plugin guards the same door (JobReady).
    patch.setattr(Session, "ready", lambda self, group, placed: True)


def no_uid(patch):
    binding = requests._binding

    def without(command):
        body = binding(command)
        del body["metadata"]["uid"]
        return body

    patch.setattr(requests, "_binding", without)


def no_release_of_reservations(patch):
    def unassign(self, gang, slot):
        slot.node = ""
        slot.passed = False
        gang.maybe_loose = True

    patch.setattr(State, "unassign", unassign)


def bind_after_abandon(patch):
    abandoned = committing.bind_abandoned

    def without(s, event, now):
        where = s.tokens.get(event.token)
        known = s.slots.get(where) if where else None
        if known is None or known[1].state != Member.ARRIVED:
            abandoned(s, event, now)

    patch.setattr(committing, "bind_abandoned", without)


def no_lease_check(patch):
    patch.setattr(LeaderElector, "may_write", lambda self: self._leading)


def takes_a_lease_that_is_held(patch):
    patch.setattr(LeaderElector, "_free", lambda self, lease: True)


def no_second_look_at_rows(patch):
    patch.setattr(committing, "_evict_misfits", lambda *_: False)
    patch.setattr(committing, "check_rows", lambda *_: None)


def bindings_are_tried_again_blindly(patch):
    patch.setattr("extender.chaos.replica.stands", lambda *_, again: True)


def no_rollback(patch):
    patch.setattr(committing, "_partial", lambda *_: None)


def says_nothing(patch):
    patch.setattr(reporting, "_conditions", lambda gang, now: gang.conditions)


def label_is_an_edge(patch):
    patch.setattr(LeaderLabel, "confirm", lambda self: None)


def finished_replicas_are_wanted_again(patch):
    patch.setattr(conditions, "end", lambda _: None)


def extras_wait_for_ever(patch):
    begin = releasing.begin

    def only_whole(s, gang, now):
        if gang.satisfied() and any(m.state in PLACED for m in gang.members.values()):
            return
        begin(s, gang, now)

    patch.setattr(releasing, "begin", only_whole)


def the_barrier_does_not_wait_for_the_record(patch):
    write = releasing.write

    def at_once(s, gang, state):
        write(s, gang, state)
        if state == PLANNED:
            gang.stage = Stage.RELEASED
            releasing.release(s, gang, gang.progress_at)

    patch.setattr(releasing, "write", at_once)


def adopted_plans_keep_their_epoch(patch):
    gained = adopting.gained

    def without(s, event, now):
        def released(s, gang, state):
            gang.stage, gang.progress_at = Stage.RELEASED, now
            releasing.release(s, gang, now)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(releasing, "write", released)
            gained(s, event, now)

    patch.setattr(adopting, "gained", without)


def one_too_few_is_enough(patch):
    read = groups._read_spec

    def less(gang, group):
        fault = read(gang, group)
        gang.min_member = max(1, gang.min_member - 1)
        return fault

    patch.setattr(groups, "_read_spec", less)


def edits_of_a_group_are_not_read(patch):
    read = groups._read_spec

    def once(gang, group):
        return None if gang.min_member > 1 else read(gang, group)

    patch.setattr(groups, "_read_spec", once)


def everybody_may_be_evicted(patch):
    patch.setattr(StateView, "preempt", lambda self, pod, victims: victims)


def other_schedulers_pods_do_not_count(patch):
    count = ingest._count

    def ours(s, pod, known, shape):
        if pod.spec.scheduler_name in s.rules.scheduler_names:
            count(s, pod, known, shape)

    patch.setattr(ingest, "_count", ours)


def changes_of_a_node_are_not_seen(patch):
    upsert = Cluster.upsert_node

    def once(self, node, *more):
        if self.row_of(node.metadata.name) is None:
            upsert(self, node, *more)

    patch.setattr(Cluster, "upsert_node", once)


def what_is_gone_is_still_counted(patch):
    patch.setattr(Cluster, "remove_pod", lambda self, uid: None)


def deletions_missed_by_a_watch_are_not_told(patch):
    listing = Reflector._list

    async def without(self):
        withdraw, self._withdraw = self._withdraw, lambda key: []
        try:
            async for event in listing(self):
                yield event
        finally:
            self._withdraw = withdraw

    patch.setattr(Reflector, "_list", without)


def nobody_is_woken(patch):
    patch.setattr(Loop, "_wake_by", lambda self, at: None)


def anybody_may_send(patch):
    init = Executor.__init__

    def without(self, client, loop, may_write, *rest, **more):
        init(self, client, loop, lambda: True, *rest, **more)

    patch.setattr(Executor, "__init__", without)


def the_clock_runs_at_half_speed(patch):
    init = LeaderElector.__init__

    def slow(self, *args, clock, **more):
        init(self, *args, clock=lambda: clock() / 2, **more)

    patch.setattr(LeaderElector, "__init__", slow)


def the_history_of_a_job_is_forgotten(patch):
    patch.setattr(History, "after", lambda self, *_: self)


def pods_do_not_wait_for_what_their_job_owns(patch):
    keep = children.keep

    def at_once(s, job, wanted):
        keep(s, job, wanted)
        return True

    patch.setattr(children, "keep", at_once)


def launchers_do_not_wait(patch):
    patch.setattr(MPIJob, "later", lambda self, job, roll: frozenset())


def devices_are_not_told_apart(patch):
    patch.setattr(Room, "copies", lambda self, share: 9)
