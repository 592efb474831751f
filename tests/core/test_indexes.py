"""Terms that name a replica's own index, as kube-scheduler compares it: each is a group of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from extender.core import commands as c
from extender.core import objects as o
from extender.core.api import NODES, PODS
from extender.core.indexes import renumbered
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from tests import builders as b
from tests.core import machine_stories as do
from tests.core.machine import Machine
from tests.core.test_admitted_alike import dry_runs, job, places, zones
from tests.core.test_fit import answer, build, expected, keys, label_selectors, nodes

INDEX = "training.kubeflow.org/replica-index"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WORKERS = {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}}

some_keys = st.sampled_from([[INDEX], ["app", INDEX], []])
terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": label_selectors, "matchLabelKeys": some_keys},
    optional={"mismatchLabelKeys": some_keys},
)
spreads = st.fixed_dictionaries(
    {
        "topologyKey": keys,
        "maxSkew": st.integers(1, 2),
        "whenUnsatisfiable": st.just("DoNotSchedule"),
        "labelSelector": label_selectors,
        "matchLabelKeys": st.just([INDEX]),
    }
)


@st.composite
def replicas(draw: st.DrawFn) -> tuple[list[o.Node], list[o.Pod], o.Pod]:
    """Pods of one template, of two jobs, each with an index; those that are bound, and a new one."""
    # Whatever else it says, one term names the index: else that is no part of a shape.
    apart = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "none"}}}
    spec = {
        "affinity": {
            "podAffinity": {REQUIRED: draw(st.lists(terms, max_size=1))},
            "podAntiAffinity": {
                REQUIRED: [*draw(st.lists(terms, max_size=1)), {**apart, "matchLabelKeys": [INDEX]}]
            },
        },
        "topologySpreadConstraints": draw(st.lists(spreads, max_size=1)),
    }

    def replica(name: str, node: str) -> o.Pod:
        labels = {"app": draw(st.sampled_from(["web", "db"])), INDEX: draw(st.sampled_from("012"))}
        return b.pod(name, node=node, labels=labels, spec=spec)

    names = [f"n{at}" for at in range(draw(st.integers(1, 4)))]
    bound = [
        replica(f"b{at}", draw(st.sampled_from(names))) for at in range(draw(st.integers(0, 5)))
    ]
    return [draw(nodes(name)) for name in names], bound, replica("new", "")


@settings(max_examples=200, deadline=None)
@given(replicas())
def test_replicas_are_compared_by_their_indexes(world) -> None:
    machines, bound, pod = world
    assert answer(Snapshot(build(machines, bound)), pod) == expected(machines, bound, pod)


def term(key: str, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": WORKERS, "matchLabelKeys": [INDEX], **more}


def written(m: Machine) -> None:
    """The API server writes the values of matchLabelKeys into the selector."""
    carry_out = m.api.carry_out

    def merged(command: c.Command) -> Any:
        code, made = carry_out(command)
        if isinstance(command, c.Create) and command.resource == PODS and code == 201:
            assert made is not None
            affinity = made["spec"]["affinity"]
            for kind in affinity.keys() & {"podAffinity", "podAntiAffinity"}:
                for each in affinity[kind][REQUIRED]:
                    own = {"key": INDEX, "values": [made["metadata"]["labels"][INDEX]]}
                    rows = [own | {"operator": "In"}] if each.get("matchLabelKeys") else []
                    rows += [own | {"operator": "NotIn"}] if each.get("mismatchLabelKeys") else []
                    each["labelSelector"] = {**WORKERS, "matchExpressions": rows}
        return code, made

    m.api.carry_out = merged  # type: ignore[method-assign]


@pytest.mark.parametrize("writes", [False, True])
def test_a_job_whose_replicas_are_to_be_with_themselves_starts(writes: bool) -> None:
    """It waited for ever: no pod without its index was one of the group that it starts."""
    m = Machine()
    zones(m, x=2, y=2)
    if writes:
        written(m)
    asked = dry_runs(m)
    job(m, "a", replicas=4, affinity={"podAffinity": {REQUIRED: [term("zone")]}})
    m.rest()
    assert len(m.bound()) == 4
    # The first is labelled as the master; of the others one tells what all will be.
    assert asked == ["a-worker-0", "a-worker-1"]
    gang = do.of(m, "a")
    pods = {each["metadata"]["name"]: convert(each, o.Pod) for each in m.api.pods()}
    for name, slot in gang.members.items():
        assert slot.shape == shape_of(pods[name], ignore_pin=True, ignore_node=True)
    m.finish()


@pytest.mark.parametrize("writes", [False, True])
def test_replicas_that_do_not_exist_have_their_own_indexes(writes: bool) -> None:
    m = Machine()
    if writes:
        written(m)
    job(m, "a", replicas=4, affinity={"podAntiAffinity": {REQUIRED: [term("zone")]}})
    m.flush()
    shapes = {name[-1]: slot.shape for name, slot in do.of(m, "a").members.items()}
    assert sorted(shapes) == ["0", "1", "2", "3"]
    for index, shape in shapes.items():
        assert shape is not None
        named = [each for each in shape.anti_affinity[0].selector or () if each.key == INDEX]
        assert named == [o.Requirement(INDEX, "In", (index,))]
        assert dict(shape.labels)[INDEX] == index


@pytest.mark.parametrize("writes", [False, True])
def test_replicas_of_one_index_stay_together_across_jobs(writes: bool) -> None:
    m = Machine()
    zones(m, x=1, y=1)
    if writes:
        written(m)
    affinity = {"podAffinity": {REQUIRED: [term("zone")]}}
    job(m, "a", affinity=affinity)
    m.flush()
    first = {name[-1]: slot.node for name, slot in do.of(m, "a").members.items()}
    assert set(first.values()) == {"n-x", "n-y"}
    for zone in "yx":
        do.node(m, f"m-{zone}", 1)
        m.api.change((NODES, "", f"m-{zone}"), metadata={"labels": {"zone": zone}})
    job(m, "b", affinity=affinity)
    m.flush()
    found = {name[-1]: slot.node for name, slot in do.of(m, "b").members.items()}
    assert found == {index: node.replace("n", "m") for index, node in first.items()}


def test_replicas_of_one_index_are_kept_apart_across_jobs_and_not_within_one() -> None:
    m = Machine()
    zones(m, x=4)
    affinity = {"podAntiAffinity": {REQUIRED: [term("zone")]}}
    job(m, "a", affinity=affinity)
    m.flush()
    assert places(do.of(m, "a")) == {"n-x"}
    job(m, "b", affinity=affinity)
    m.flush()
    assert do.reason(m, "b") == "NotEnoughRoom"
    zones(m, y=4)
    m.rest()
    assert places(do.of(m, "b")) == {"n-y"}


def test_a_pod_that_is_to_be_with_all_others_but_itself_does_not_start() -> None:
    """Nobody is of the group that it would be the first of (interpodaffinity's first pod)."""
    m = Machine()
    zones(m, x=4)
    alone = term("zone", matchLabelKeys=[], mismatchLabelKeys=[INDEX])
    job(m, "a", affinity={"podAffinity": {REQUIRED: [alone]}})
    m.flush()
    assert not m.bound()


def test_another_replica_of_a_template_has_its_own_index_in_what_was_written() -> None:
    def pod(index: str) -> o.Pod:
        rows = [{"key": INDEX, "operator": "In", "values": [index]}]
        each = term("zone") | {"labelSelector": {**WORKERS, "matchExpressions": rows}}
        spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec = {
            "affinity": {"podAffinity": {REQUIRED: [each]}},
            "topologySpreadConstraints": [each | spread],
        }
        return b.pod("p", labels={INDEX: index, "job": "j"}, spec=spec)

    zero, one = pod("0"), pod("1")
    again = renumbered(zero, {INDEX: "1", "more": "no label of an admitted pod"})
    assert shape_of(again) == shape_of(one) != shape_of(zero)
    assert renumbered(zero, {INDEX: "0"}) is zero
    assert renumbered(zero, {}) is zero
    bare = replace(zero, spec=o.PodSpec())
    assert renumbered(bare, {INDEX: "7"}).metadata.labels == {INDEX: "7", "job": "j"}
