"""What the judge takes for wrong, and what it does not: by what a replica had been shown."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any, Literal

import orjson
import pytest

from extender.chaos import vetoes
from extender.chaos.judge import Judge
from extender.chaos.network import Shown
from extender.chaos.past import Past
from extender.chaos.run import run
from extender.chaos.senders import Life, Sent, placed
from extender.chaos.workloads import NAMESPACE, Workload
from extender.core import api
from extender.core.objects import Manifest
from extender.sim.history import Change
from extender.sim.rest import Request


@pytest.mark.usefixtures("groups_are_told_late")
def test_a_gang_was_whole_if_it_was_for_who_bound_the_last_of_it(monkeypatch):
    """Seeds 200402, 200631: the minimum was raised, and the leader was told a minute later."""
    minimums = []

    def scene(plant, users, faults):
        users.add_node("n0", 1)
        work = Workload("g", "volcano", gpus=1, size=2, least=1, rollback=True, record_first=True)
        users.submit(work)
        body = {"spec": {"minMember": 2}}
        faults._after(0.001, lambda: users.patch(api.VOLCANO_GROUPS, NAMESPACE, "g", body))
        told = plant.judge._note_whole_for

        def note(*args):
            told(*args)
            minimums.append(len(plant.judge.whole))

        monkeypatch.setattr(plant.judge, "_note_whole_for", note)

    assert run(1, scene).violations == []
    assert minimums[-1] == 1


def pod(name, uid, node=""):
    """A member of the Volcano gang g."""
    annotations = {"scheduling.k8s.io/group-name": "g"}
    meta = {"name": name, "namespace": NAMESPACE, "uid": uid, "annotations": annotations}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


class Wire:
    """A link as the judge looks at it."""

    def __init__(self) -> None:
        self.process = SimpleNamespace(dead=False, paused=False)
        self.shown: defaultdict[api.Resource, Shown] = defaultdict(Shown)


@pytest.mark.parametrize(("told", "whole"), [(2, {"new"}), (3, set())])
def test_a_gang_was_whole_if_it_was_for_who_says_how_its_record_stands(told, whole):
    """Seed 35546: the record was made anew while the watch of pods was silent, and one was gone."""
    judge, wire = Judge(lambda: 0.0), Wire()
    link: Any = wire
    judge.started(link, "muster-0_1")
    judge._lives[link].renewed = 0.0
    meta = {"name": "g", "namespace": NAMESPACE, "uid": "new"}
    record = {"metadata": meta, "spec": {"minMember": 2}}
    first, second = pod("g-a", "a", "n0"), pod("g-b", "b", "n0")
    changes: list[tuple[int, str, Literal["ADDED", "DELETED"], Manifest]] = [
        (1, "g-a", "ADDED", first),
        (2, "g-b", "ADDED", second),
        (3, "g-b", "DELETED", second),
    ]
    for version, name, kind, obj in changes:
        judge.changed(Change(version, api.PODS, (NAMESPACE, name), kind, obj, None), None, None)
    place = (NAMESPACE, "g")
    judge.changed(Change(4, api.VOLCANO_GROUPS, place, "ADDED", record, None), None, None)
    assert judge.whole == set()
    wire.shown[api.PODS].listed(told)
    wire.shown[api.VOLCANO_GROUPS].listed(4)
    path = f"{api.VOLCANO_GROUPS.path(NAMESPACE)}/g/status"
    request = Request("PATCH", path)
    judge.sent(link, request)
    judge.changed(Change(5, api.VOLCANO_GROUPS, place, "MODIFIED", record, record), link, request)
    assert judge.violations == []
    assert judge.whole == whole


def past_of_four() -> Past:
    """Members a and b are there at version 2, c and d come after it and are gone before 9."""
    past = Past(lambda: 0.0)
    record = {"metadata": {"name": "g", "namespace": NAMESPACE}, "spec": {"minMember": 2}}
    changes: list[tuple[api.Resource, str, Literal["ADDED", "DELETED"], Manifest]] = [
        (api.VOLCANO_GROUPS, "g", "ADDED", record),
        *((api.PODS, f"g-{uid}", "ADDED", pod(f"g-{uid}", uid, "n0")) for uid in "ab"),
        *((api.PODS, f"g-{uid}", "ADDED", pod(f"g-{uid}", uid)) for uid in "cd"),
        *((api.PODS, f"g-{uid}", "DELETED", pod(f"g-{uid}", uid)) for uid in "cd"),
    ]
    for number, (resource, name, kind, obj) in enumerate(changes):
        past.add(Change(number, resource, (NAMESPACE, name), kind, obj, None))
    return past


@pytest.mark.parametrize(
    ("version", "bound", "victims", "said"),
    [
        pytest.param(2, "", "a", 1, id="one of two of two"),
        # Seed 200479: the watch was silent, and the answers to creates and Bindings were not.
        pytest.param(2, "cd", "a", 0, id="it has bound others that it was not shown"),
        pytest.param(2, "cd", "acd", 1, id="among them"),
        pytest.param(9, "cd", "a", 1, id="which are gone since"),
    ],
)
def test_what_preempt_may_allow(version, bound, victims, said):
    past = past_of_four()
    shown: defaultdict[api.Resource, Shown] = defaultdict(Shown)
    for resource in (api.PODS, api.VOLCANO_GROUPS):
        shown[resource].listed(version)
    group = (api.VOLCANO_GROUPS, NAMESPACE, "g")
    own = {group: {uid: (NAMESPACE, f"g-{uid}") for uid in bound}}
    preemptor = {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": {}}
    allowed = {"n0": {"Pods": [{"UID": uid} for uid in victims]}}
    link: Any = SimpleNamespace(shown=shown)
    found = vetoes.broken(
        past,
        link,
        own,
        orjson.dumps({"Pod": preemptor}),
        orjson.dumps({"NodeNameToMetaVictims": allowed}),
    )
    assert len(list(found)) == said


@pytest.mark.parametrize(
    ("version", "bound", "known"),
    [
        pytest.param(2, "", "ab", id="two that were shown"),
        # Seed 210 of commit 97d8111: that one of them had gone was never told.
        pytest.param(2, "cd", "abcd", id="and two that were not, which it has bound"),
        pytest.param(9, "cd", "ab", id="of which it has been told that they are gone"),
    ],
)
def test_what_a_sender_knows_to_be_placed(version, bound, known):
    life = Life("muster")
    group = (api.VOLCANO_GROUPS, NAMESPACE, "g")
    life.bound.update(bound)
    life.sent_for[group] = {uid: (NAMESPACE, f"g-{uid}") for uid in "cd"}
    record = Sent(0.0, 1, version, version, {}, {}, Shown())
    assert placed(past_of_four(), life, group, record) == set(known)
