"""Proof that the judge can fail: the service, broken in one place, is caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from extender.chaos import claims, workloads
from extender.chaos.clock import later
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.run import Scene, run
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import (
    adopting,
    api,
    committing,
    groups,
    ingest,
    releasing,
    reporting,
)
from extender.core.answers import StateView
from extender.core.cluster import Cluster
from extender.core.gang import PLACED, Gang, Member, Stage
from extender.core.record import PLANNED
from extender.core.session import Session
from extender.core.state import State
from extender.jobs import conditions
from extender.jobs.history import History
from extender.kube import requests
from extender.kube.executor import Executor
from extender.kube.label import LEADER_LABEL, LeaderLabel
from extender.kube.lease import LeaderElector
from extender.kube.reflector import Reflector
from extender.loop import Loop
from extender.sim.kubelet import EXIT_CODE, RUN_SECONDS


class Mutation(Struct):
    """One thing left out, and the invariant by which it must be seen, within so many seeds."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    caught_by: str
    seeds: int
    #: A story that provokes it, where faults at random seldom would.
    scene: Scene | None = None
    #: Virtual seconds that the story takes.
    seconds: float = 0.0
    #: And of rest after which what is not whole counts.
    patience: float = 900.0


# --- stories


def when(plant, happens, act):
    """Act once, as soon as a change of the store is what is waited for."""
    told = plant.judge.changed
    left = [act]

    def changed(change, author, request):
        told(change, author, request)
        if left and happens(change):
            plant.loop.call_soon(left.pop())

    plant.judge.changed = changed


def binds(change):
    if change.resource != api.PODS or not claims.node_of(change.object):
        return False
    return change.previous is None or not claims.node_of(change.previous)


def a_place_is_taken_at_the_barrier(plant, users, faults):
    """S5: while members wait at /bind, somebody else binds a pod onto the node of one of them."""
    _at_the_barrier(
        plant,
        users,
        lambda node: plant.store.create(
            api.PODS, NAMESPACE, workloads.foreign("foreign-1", node, 1)
        ),
    )


def a_node_shrinks_at_the_barrier(plant, users, faults):
    """While members wait at /bind, the node of one of them loses its GPU."""
    body = {"status": {"allocatable": {workloads.GPU: "0"}}}
    _at_the_barrier(plant, users, lambda node: users.patch_node(node, body, "status"))


def _at_the_barrier(plant, users, act):
    """Call with the node of the first of three members that has come to /bind."""
    for number in range(3):
        users.add_node(f"n{number}", 1)
    opened = plant.judge.bind_opened

    def bind_opened(link, uid):
        opened(link, uid)
        plant.judge.bind_opened = opened
        act(
            next(
                pod["status"]["nominatedNodeName"]
                for pod in plant.store.list(api.PODS, NAMESPACE)
                if pod["metadata"]["uid"] == uid
            )
        )

    plant.judge.bind_opened = bind_opened
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_place_is_taken_while_a_binding_is_refused(plant, users, faults):
    """The API server refuses all for a while, in which another scheduler fills the node."""
    users.add_node("n0", 1)
    sent = plant.sent

    def first(link, request):
        sent(link, request)
        if request.path.endswith("/binding"):
            plant.sent = sent
            plant.weather.refused = 1.0
            plant.store.create(api.PODS, NAMESPACE, workloads.foreign("foreign-1", "n0", 1))
            later(3.0, clear)

    def clear():
        plant.weather.refused = 0.0

    plant.sent = first
    users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))


def a_commit_is_cut_in_two(plant, users, faults):
    """As the first member is bound, all other nodes go."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def strike():
        used = {claims.node_of(pod) for pod in plant.store.list(api.PODS, NAMESPACE)}
        for pod in plant.store.list(api.PODS, NAMESPACE):
            if not claims.node_of(pod):
                plant.store.delete(api.PODS, NAMESPACE, pod["metadata"]["name"])
        for node in plant.store.list(api.NODES):
            if node["metadata"]["name"] not in used:
                users.remove_node(node["metadata"]["name"])

    when(plant, binds, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_late_request_takes_the_label_off(plant, users, faults):
    """It was sent before its pod came to lead, and arrives after."""
    users.add_node("n0", 1)

    def strike():
        for pod in plant.replicas:
            users.patch(api.PODS, OWN, pod, {"metadata": {"labels": None}})
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    def labelled(change):
        return LEADER_LABEL in (change.object["metadata"].get("labels") or {})

    when(plant, labelled, strike)


def a_failed_job_loses_its_failed_pods(plant, users, faults):
    """The job has said that it has failed, and who saw it fail is gone, too."""
    users.add_node("n0", 2)
    work = Workload("j", "job", gpus=1, size=2, least=2, seconds=5.0, exit_code=1)

    def ended(change):
        return change.resource == api.PYTORCH_JOBS and claims.verdict(change.object)

    def strike():
        for pod in users.pods():
            users.delete(api.PODS, pod["metadata"]["name"])
        for replica in plant.replicas:
            plant.kill_replica(replica)
        # The story goes on until it is placed, by a leader of which the job is seen, too.
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    when(plant, ended, strike)
    users.works[work.name] = work
    body = workloads.job(work)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "Never"
    users.create(api.PYTORCH_JOBS, body)


def a_caller_leaves_at_the_barrier(plant, users, faults):
    """kube-scheduler's first call of /bind breaks while the others are still to come."""
    for number in range(3):
        users.add_node(f"n{number}", 1)
    for replica in plant.replicas.values():
        _break_first_bind(replica)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def _break_first_bind(replica):
    ask = replica.ask

    def once(verb, body, answer):
        handler = ask(verb, body, answer)
        if verb == "bind":
            replica.ask = ask
            later(0.0005, handler.cancel)
        return handler

    replica.ask = once


def a_replica_finishes_before_its_job(plant, users, faults):
    """Much later its pod is removed by somebody, and whoever saw it finish is gone, too."""
    users.add_node("n0", 2)
    work = Workload("j", "job", gpus=1, size=2, least=2)
    users.works[work.name] = work
    body = workloads.job(work)
    template = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    brief = {"metadata": {"annotations": {RUN_SECONDS: "5", EXIT_CODE: "0"}}}
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {**template, **brief}

    def finished(change):
        return change.resource == api.PODS and claims.phase(change.object) == "Succeeded"

    def strike():
        later(70.0, users.delete, api.PODS, "j-worker-0")
        later(70.1, all_die)

    def all_die():
        for replica in plant.replicas:
            plant.kill_replica(replica)
        # The story goes on until a later leader has seen the job.
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    when(plant, finished, strike)
    users.create(api.PYTORCH_JOBS, body)


def a_leader_dies_with_a_plan(plant, users, faults):
    """The plan is written and some of its members wait at the barrier when the leader dies."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def planned(change):
        return change.resource == api.GANG_PLANS

    def strike():
        plant.kill_replica(_leader(plant).pod)

    when(plant, planned, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_minimum_is_raised(plant, users, faults):
    """While the gang waits for room that only comes afterwards, and not for all of it."""
    users.add_node("n0", 1)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=2, rollback=True))

    def waits(change):
        return (
            change.resource == api.VOLCANO_GROUPS
            and (change.object.get("status") or {}).get("conditions") is not None
        )

    def strike():
        body = {"spec": {"minMember": 3}}
        users.patch(api.VOLCANO_GROUPS, NAMESPACE, "g", body)
        later(5.0, users.add_node, "n1", 1)

    when(plant, waits, strike)


def somebody_may_preempt(plant, users, faults):
    """A gang fills the cluster, and a pod of a higher priority comes."""
    users.add_node("n0", 2)
    users.add_node("n1", 2)
    users.submit(Workload("g", "volcano", gpus=1, size=4, least=4))
    left = [4]

    def full(change):
        if binds(change):
            left[0] -= 1
        return left[0] == 0

    def strike():
        users.submit(Workload("p", "plain", gpus=2, size=1, least=1, priority="high"))

    when(plant, full, strike)


def a_leader_is_paused_with_a_plan(plant, users, faults):
    """In the middle of what it does, and longer than the Lease lasts."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def planned(change):
        return change.resource == api.GANG_PLANS

    def strike():
        leader = _leader(plant)
        steps = plant.rng("story").randint(1, 40)
        leader.process.strike(steps, leader.process.pause)
        later(20.0, leader.process.resume)

    when(plant, planned, strike)
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


def a_leader_is_not_heard(plant, users, faults):
    """It sees all that happens, and what it says does not arrive, for longer than the Lease lasts."""
    for number in range(3):
        users.add_node(f"n{number}", 1)

    def leads(change):
        return LEADER_LABEL in (change.object["metadata"].get("labels") or {})

    def strike():
        leader = _leader(plant)
        leader.link.mute = True
        later(13.0, users.submit, Workload("g", "volcano", gpus=1, size=3, least=3))

    when(plant, leads, strike)


def _leader(plant):
    return next(each for each in plant.replicas.values() if each.elector.may_write())


def pods_come_and_go(plant, users, faults):
    """Three gangs one after the other that fill the cluster, and end."""
    users.add_node("n0", 2)
    for number in range(3):
        users.submit(Workload(f"g{number}", "volcano", gpus=1, size=2, least=2, seconds=5.0))


def a_watch_misses_a_deletion(plant, users, faults):
    """A gang goes while every watch is broken and the server forgets."""
    users.add_node("n0", 2)
    users.submit(Workload("g", "volcano", gpus=1, size=2, least=2))
    left = [2]

    def bound(change):
        if binds(change):
            left[0] -= 1
        return left[0] == 0

    def strike():
        for link in plant.links.values():
            link.deaf = True
        plant.weather.forgotten = 1.0
        users.withdraw(users.works["g"])
        for pod in list(plant.store.list(api.PODS, NAMESPACE)):
            users.delete(api.PODS, pod["metadata"]["name"], grace=0)
        later(5.0, users.submit, Workload("h", "volcano", gpus=1, size=2, least=2))
        later(8.0, mend)

    def mend():
        for link in plant.links.values():
            link.deaf = False

    when(plant, bound, strike)


# --- mutations


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


MUTATIONS = [
    Mutation("no write-ahead", no_write_ahead, "plan", 10),
    Mutation(
        "the barrier does not wait for the record",
        the_barrier_does_not_wait_for_the_record,
        "I7",
        10,
    ),
    Mutation(
        "adopted plans keep their epoch",
        adopted_plans_keep_their_epoch,
        "I7",
        5,
        a_leader_dies_with_a_plan,
    ),
    Mutation("no barrier", no_barrier, "I1", 10),
    Mutation("one too few is enough", one_too_few_is_enough, "I1", 20),
    Mutation(
        "edits of a group are not read",
        edits_of_a_group_are_not_read,
        "I1",
        3,
        a_minimum_is_raised,
    ),
    Mutation("a Binding without uid", no_uid, "I1", 10),
    Mutation(
        "an arrival without a connection counts",
        bind_after_abandon,
        "I1",
        5,
        a_caller_leaves_at_the_barrier,
    ),
    Mutation("everybody may be evicted", everybody_may_be_evicted, "I1", 3, somebody_may_preempt),
    Mutation(
        "other schedulers' pods do not count",
        other_schedulers_pods_do_not_count,
        "I2",
        5,
        a_place_is_taken_at_the_barrier,
    ),
    Mutation(
        "changes of a node are not seen",
        changes_of_a_node_are_not_seen,
        "I2",
        5,
        a_node_shrinks_at_the_barrier,
    ),
    Mutation(
        "rows are not looked at again",
        no_second_look_at_rows,
        "I2",
        10,
        a_place_is_taken_at_the_barrier,
    ),
    Mutation(
        "a refused Binding is tried again without a look",
        bindings_are_tried_again_blindly,
        "I2",
        3,
        a_place_is_taken_while_a_binding_is_refused,
        seconds=10.0,
    ),
    Mutation("reservations are never released", no_release_of_reservations, "I7", 90),
    Mutation(
        "what is gone is still counted", what_is_gone_is_still_counted, "I7", 3, pods_come_and_go
    ),
    Mutation(
        "deletions missed by a watch are not told",
        deletions_missed_by_a_watch_are_not_told,
        "I7",
        8,
        a_watch_misses_a_deletion,
    ),
    Mutation("nobody is woken", nobody_is_woken, "I7", 90),
    Mutation(
        "the Lease's time is not looked at",
        no_lease_check,
        "lease",
        20,
        a_leader_is_paused_with_a_plan,
    ),
    Mutation(
        "the Lease's clock runs at half speed",
        the_clock_runs_at_half_speed,
        "lease",
        3,
        a_leader_is_not_heard,
        seconds=40.0,
    ),
    Mutation("a held Lease is taken", takes_a_lease_that_is_held, "I7", 20),
    Mutation("anybody may send", anybody_may_send, "lease", 20, a_leader_is_paused_with_a_plan),
    Mutation("a part is never rolled back", no_rollback, "I4", 5, a_commit_is_cut_in_two),
    Mutation("no reasons", says_nothing, "I7", 20),
    Mutation(
        "the label is put on once", label_is_an_edge, "I7", 2, a_late_request_takes_the_label_off
    ),
    Mutation(
        "a finished job goes on",
        finished_replicas_are_wanted_again,
        "I6",
        3,
        a_failed_job_loses_its_failed_pods,
    ),
    Mutation(
        "the history of a job is forgotten",
        the_history_of_a_job_is_forgotten,
        "I6",
        3,
        a_replica_finishes_before_its_job,
        seconds=90.0,
    ),
    Mutation("extras wait for ever", extras_wait_for_ever, "I7", 90),
]


STORIES = [mutation for mutation in MUTATIONS if mutation.scene is not None]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_caught(mutation, monkeypatch):
    mutation.apply(monkeypatch)
    for seed in range(mutation.seeds):
        outcome = run(seed, mutation.scene, seconds=mutation.seconds, rest=mutation.patience)
        if any(each.invariant == mutation.caught_by for each in outcome.violations):
            return
    pytest.fail(f"not caught within {mutation.seeds} seeds")


@pytest.mark.parametrize("mutation", STORIES, ids=lambda each: each.name)
def test_the_story_is_no_violation_by_itself(mutation):
    for seed in range(mutation.seeds):
        outcome = run(seed, mutation.scene, seconds=mutation.seconds, rest=mutation.patience)
        assert outcome.violations == [], "\n".join(outcome.diary)
