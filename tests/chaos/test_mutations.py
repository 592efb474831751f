"""Proof that the judge can fail: the service, broken in one place, is caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from extender.chaos.run import Scene, run
from tests.chaos import breakages, scenes


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


MUTATIONS = [
    Mutation("no write-ahead", breakages.no_write_ahead, "plan", 10),
    Mutation(
        "the barrier does not wait for the record",
        breakages.the_barrier_does_not_wait_for_the_record,
        "I7",
        10,
    ),
    Mutation(
        "adopted plans keep their epoch",
        breakages.adopted_plans_keep_their_epoch,
        "I7",
        5,
        scenes.a_leader_dies_with_a_plan,
    ),
    Mutation("no barrier", breakages.no_barrier, "I1", 10),
    Mutation("one too few is enough", breakages.one_too_few_is_enough, "I1", 20),
    Mutation(
        "edits of a group are not read",
        breakages.edits_of_a_group_are_not_read,
        "I1",
        3,
        scenes.a_minimum_is_raised,
    ),
    Mutation("a Binding without uid", breakages.no_uid, "I1", 10),
    Mutation(
        "an arrival without a connection counts",
        breakages.bind_after_abandon,
        "I1",
        5,
        scenes.a_caller_leaves_at_the_barrier,
    ),
    Mutation(
        "everybody may be evicted",
        breakages.everybody_may_be_evicted,
        "I1",
        3,
        scenes.somebody_may_preempt,
    ),
    Mutation(
        "other schedulers' pods do not count",
        breakages.other_schedulers_pods_do_not_count,
        "I2",
        5,
        scenes.a_place_is_taken_at_the_barrier,
    ),
    Mutation(
        "changes of a node are not seen",
        breakages.changes_of_a_node_are_not_seen,
        "I2",
        5,
        scenes.a_node_shrinks_at_the_barrier,
    ),
    Mutation(
        "rows are not looked at again",
        breakages.no_second_look_at_rows,
        "I2",
        10,
        scenes.a_place_is_taken_at_the_barrier,
    ),
    Mutation(
        "a refused Binding is tried again without a look",
        breakages.bindings_are_tried_again_blindly,
        "I2",
        3,
        scenes.a_place_is_taken_while_a_binding_is_refused,
        seconds=10.0,
    ),
    Mutation("reservations are never released", breakages.no_release_of_reservations, "I7", 90),
    Mutation(
        "what is gone is still counted",
        breakages.what_is_gone_is_still_counted,
        "I7",
        3,
        scenes.pods_come_and_go,
    ),
    Mutation(
        "deletions missed by a watch are not told",
        breakages.deletions_missed_by_a_watch_are_not_told,
        "I7",
        8,
        scenes.a_watch_misses_a_deletion,
    ),
    Mutation("nobody is woken", breakages.nobody_is_woken, "I7", 90),
    Mutation(
        "the Lease's time is not looked at",
        breakages.no_lease_check,
        "lease",
        20,
        scenes.a_leader_is_paused_with_a_plan,
    ),
    Mutation(
        "the Lease's clock runs at half speed",
        breakages.the_clock_runs_at_half_speed,
        "lease",
        3,
        scenes.a_leader_is_not_heard,
        seconds=40.0,
    ),
    Mutation("a held Lease is taken", breakages.takes_a_lease_that_is_held, "I7", 20),
    Mutation(
        "anybody may send",
        breakages.anybody_may_send,
        "lease",
        20,
        scenes.a_leader_is_paused_with_a_plan,
    ),
    Mutation(
        "a part is never rolled back", breakages.no_rollback, "I4", 5, scenes.a_commit_is_cut_in_two
    ),
    Mutation("no reasons", breakages.says_nothing, "I7", 20),
    Mutation(
        "the label is put on once",
        breakages.label_is_an_edge,
        "I7",
        2,
        scenes.a_late_request_takes_the_label_off,
    ),
    Mutation(
        "a finished job goes on",
        breakages.finished_replicas_are_wanted_again,
        "I6",
        3,
        scenes.a_failed_job_loses_its_failed_pods,
    ),
    Mutation(
        "the history of a job is forgotten",
        breakages.the_history_of_a_job_is_forgotten,
        "I6",
        3,
        scenes.a_replica_finishes_before_its_job,
        seconds=90.0,
    ),
    Mutation("extras wait for ever", breakages.extras_wait_for_ever, "I7", 90),
    Mutation(
        "pods do not wait for what their job owns",
        breakages.pods_do_not_wait_for_what_their_job_owns,
        "I6",
        3,
        scenes.a_list_of_hosts_has_to_wait,
        seconds=25.0,
    ),
    Mutation(
        "launchers do not wait",
        breakages.launchers_do_not_wait,
        "I6",
        3,
        scenes.a_launcher_waits_for_its_workers,
    ),
    Mutation(
        "devices are not told apart",
        breakages.devices_are_not_told_apart,
        "I2",
        3,
        scenes.gpus_are_shared,
    ),
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
