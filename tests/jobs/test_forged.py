"""What Muster writes on jobs and pods, written by somebody else: never worse than what is said of it."""

from __future__ import annotations

import pytest

from extender.core.framework import NO_NEWS
from extender.core.quantity import COUNT_LIMIT
from extender.core.times import LAST
from extender.jobs.history import HISTORY, RESTARTS, History
from extender.jobs.restarts import MOST_RESTARTS, PAUSE_MOST, RECORD, Restarts
from tests.jobs.builders import KIND as PYTORCH
from tests.jobs.builders import KINDS, NOW, job, merged, of_kind, pod

NAMES = ("ddp-master-0", "ddp-worker-0", "ddp-worker-1")


def step_of(manifest, pods=(), now=NOW):
    return PYTORCH.reconcile(manifest, pods, frozenset(), now, (), NO_NEWS)


def annotated(**marks):
    return merged(job(), {"metadata": {"annotations": marks}})


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (RECORD, f'{{"number":{COUNT_LIMIT}}}'),
        (RECORD, f'{{"number":{MOST_RESTARTS + 1}}}'),
        (RECORD, f'{{"number":1,"not_before":{LAST + 1}}}'),
        (HISTORY, '{"worker":{"finished":"0-99999999999999999999"}}'),
        (HISTORY, '{"worker":{"finished":"0-100000"}}'),
    ],
)
def test_what_muster_cannot_have_written_is_said(mark, text):
    step = step_of(annotated(**{mark: text}), [pod(name) for name in NAMES])
    ((_, _, message),) = step.notices
    assert message.startswith(f"metadata.annotations[{mark}]: ")
    assert message.endswith(" is not allowed: what Muster wrote there; remove it")
    assert (step.delete_pods, step.wanted) == ((), ())


@pytest.mark.parametrize("of", [COUNT_LIMIT, MOST_RESTARTS])
def test_a_pod_s_number_does_not_make_the_job_s_unreadable(of):
    pods = [*map(pod, NAMES[:2]), pod(NAMES[2], "Failed", exit_code=1, of=of)]
    step = step_of(job(), pods)
    assert Restarts.read(step.annotations).number == 1


def test_counts_do_not_grow_into_what_cannot_be_read():
    record = f'{{"number":3,"counted":{COUNT_LIMIT},"row":{COUNT_LIMIT},"at":{NOW}}}'
    pods = [*(pod(name, of=3) for name in NAMES[:2]), pod(NAMES[2], "Failed", exit_code=1, of=3)]
    step = step_of(annotated(**{RECORD: record}), pods)
    after = Restarts.read(step.annotations)
    assert (after.number, after.counted, after.row) == (4, COUNT_LIMIT, COUNT_LIMIT)


def test_a_pod_s_count_does_not_make_the_history_unreadable():
    manifest = annotated(**{"scheduling.muster.dev/restart": "pod"})
    pods = [*map(pod, NAMES[:2]), pod(NAMES[2], inherited=COUNT_LIMIT, restarts=COUNT_LIMIT)]
    step = step_of(manifest, pods)
    assert History.read(step.annotations).restarts == {("worker", 1): COUNT_LIMIT}


def test_no_pause_is_longer_than_the_longest():
    record = f'{{"number":1,"at":{NOW},"not_before":{LAST}}}'
    step = step_of(annotated(**{RECORD: record}))
    assert (step.wanted, step.wake_at) == ((), NOW + PAUSE_MOST)
    step = step_of(annotated(**{RECORD: record}), now=NOW + PAUSE_MOST)
    assert [each.pod_name for each in step.wanted] == list(NAMES)


@pytest.mark.parametrize("name", KINDS)
def test_a_template_that_was_copied_from_a_pod_begins_at_nought(name):
    kind, roles = KINDS[name]
    manifest = of_kind(kind, roles)
    given = {RESTARTS: "7", RECORD: "7", "example.com/kept": "yes"}
    for role in manifest["spec"][kind.facts.specs_key].values():
        role["template"]["metadata"] = {"annotations": given}
    for replica in kind.replicas(manifest):
        marks = kind.pod(manifest, replica)["metadata"]["annotations"]
        assert marks.keys() & given.keys() == {"example.com/kept"}
