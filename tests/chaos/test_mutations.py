"""Proof that the judge can fail: the service, broken in one place, is caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from extender.chaos import claims, workloads
from extender.chaos.plant import NAMESPACE as OWN
from extender.chaos.run import Scene, run
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api, attempts, committing, releasing, reporting, telling
from extender.core.gang import PLACED, Gang, Member, Stage
from extender.core.record import PLANNED
from extender.core.session import Session
from extender.core.state import State
from extender.jobs import conditions
from extender.kube import requests
from extender.kube.label import LEADER_LABEL, LeaderLabel
from extender.kube.lease import LeaderElector


class Mutation(Struct):
    """One thing left out, and the invariant by which it must be seen, within so many seeds."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    caught_by: str
    seeds: int
    #: A story that provokes it, where faults at random seldom would.
    scene: Scene | None = None
    #: Virtual seconds of rest after which what is not whole counts.
    patience: float = 900.0


# --- stories


def when(plant, happens, act):
    """Act once, as soon as a change of the store is what is waited for."""
    told = plant.judge.changed
    left = [act]

    def changed(change, author):
        told(change, author)
        if left and happens(change):
            plant.loop.call_soon(left.pop())

    plant.judge.changed = changed


def binds(change):
    before = change.previous is not None and claims.node_of(change.previous)
    return change.resource == api.PODS and claims.node_of(change.object) and not before


def a_place_is_taken_at_the_barrier(plant, users, faults):
    """S5: while members wait at /bind, somebody else binds a pod onto the node of one of them."""
    for number in range(3):
        users.add_node(f"n{number}", 1)
    opened = plant.judge.bind_opened

    def bind_opened(link, uid):
        opened(link, uid)
        plant.judge.bind_opened = opened
        node = next(
            pod["status"]["nominatedNodeName"]
            for pod in plant.store.list(api.PODS, NAMESPACE)
            if pod["metadata"]["uid"] == uid
        )
        plant.store.create(api.PODS, NAMESPACE, workloads.foreign("foreign-1", node, 1))

    plant.judge.bind_opened = bind_opened
    users.submit(Workload("g", "volcano", gpus=1, size=3, least=3))


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
            users._patch(api.PODS, OWN, pod, {"metadata": {"labels": None}})
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
            users._delete(api.PODS, pod["metadata"]["name"])
        for replica in plant.replicas:
            plant.kill_replica(replica)
        # The story goes on until it is placed, by a leader of which the job is seen, too.
        users.submit(Workload("g", "volcano", gpus=1, size=1, least=1))

    when(plant, ended, strike)
    users.works[work.name] = work
    body = workloads.job(work)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["restartPolicy"] = "Never"
    users._create(api.PYTORCH_JOBS, body)


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
    patch.setattr(committing, "_valid", lambda *_: True)
    patch.setattr(committing, "check_rows", lambda *_: None)


def no_rollback(patch):
    patch.setattr(committing, "_partial", lambda *_: None)


def never_told_again(patch):
    patch.setattr(telling, "again", lambda *_: None)
    patch.setattr(attempts, "withdraw", lambda *_: None)
    patch.setattr(attempts, "abort", lambda *_: None)


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


MUTATIONS = [
    Mutation("no write-ahead", no_write_ahead, "plan", 5),
    Mutation("no barrier", no_barrier, "I1", 5),
    Mutation("a Binding without uid", no_uid, "I1", 3),
    Mutation("reservations are never released", no_release_of_reservations, "I7", 60),
    Mutation("an arrival without a connection counts", bind_after_abandon, "I1", 90),
    Mutation("the Lease's time is not looked at", no_lease_check, "lease", 40),
    Mutation("a held Lease is taken", takes_a_lease_that_is_held, "lease", 5),
    Mutation(
        "rows are not looked at again",
        no_second_look_at_rows,
        "I2",
        10,
        a_place_is_taken_at_the_barrier,
    ),
    Mutation("a part is never rolled back", no_rollback, "I4", 5, a_commit_is_cut_in_two),
    Mutation("nobody is told again", never_told_again, "I7", 30),
    Mutation("no reasons", says_nothing, "I7", 10),
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
    Mutation("extras wait for ever", extras_wait_for_ever, "I7", 40),
]


STORIES = [mutation for mutation in MUTATIONS if mutation.scene is not None]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_caught(mutation, monkeypatch):
    mutation.apply(monkeypatch)
    for seed in range(mutation.seeds):
        outcome = run(seed, mutation.scene, rest=mutation.patience)
        if any(each.invariant == mutation.caught_by for each in outcome.violations):
            return
    pytest.fail(f"not caught within {mutation.seeds} seeds")


@pytest.mark.parametrize("mutation", STORIES, ids=lambda each: each.name)
def test_the_story_is_no_violation_by_itself(mutation):
    for seed in range(mutation.seeds):
        outcome = run(seed, mutation.scene, rest=mutation.patience)
        assert outcome.violations == [], "\n".join(outcome.diary)
