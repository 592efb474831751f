"""Every in-tree filter against the slow oracle, from the cluster and after what-if changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from extender.core import objects as o
from extender.core.cluster import Cluster
from extender.core.shape import shape_of
from extender.core.snapshot import Snapshot
from tests import builders as b
from tests.core.oracle import World

ZONES = ("east", "west", "north")
APPS = ("web", "db")
SPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "third": {"team": "b"}}


def maybe(strategy: st.SearchStrategy[Any], empty: Any) -> st.SearchStrategy[Any]:
    """Mostly absent, so that several constraints at once do not refuse everything."""
    return st.integers(0, 3).flatmap(lambda n: strategy if n == 0 else st.just(empty))


label_requirements = st.one_of(
    st.builds(
        lambda op, values: {"key": "app", "operator": op, "values": values},
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(APPS), min_size=1, max_size=2),
    ),
    st.builds(
        lambda op: {"key": "app", "operator": op}, st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
label_selectors = st.one_of(
    st.none(),
    st.just({}),
    st.sampled_from(APPS).map(lambda app: {"matchLabels": {"app": app}}),
    st.lists(label_requirements, min_size=1, max_size=2).map(lambda r: {"matchExpressions": r}),
)
keys = st.sampled_from([b.ZONE, b.HOST, "rack"])
pod_terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": label_selectors},
    optional={
        "namespaces": st.lists(st.sampled_from([*SPACES]), min_size=1, max_size=2),
        "namespaceSelector": st.one_of(
            st.just({}), st.sampled_from("ab").map(lambda t: {"matchLabels": {"team": t}})
        ),
        "matchLabelKeys": st.just(["app"]),
        "mismatchLabelKeys": st.just(["tier"]),
    },
)
spreads = st.fixed_dictionaries(
    {
        "topologyKey": keys,
        "maxSkew": st.integers(1, 2),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule"] * 3 + ["ScheduleAnyway"]),
        "labelSelector": label_selectors,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
        "matchLabelKeys": st.just(["tier"]),
    },
)
node_requirements = st.one_of(
    st.builds(
        lambda op, values: {"key": b.ZONE, "operator": op, "values": values},
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(ZONES), min_size=1, max_size=2),
    ),
    st.builds(
        lambda op, n: {"key": "size", "operator": op, "values": [n]},
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["1", "2", "x"]),
    ),
    st.builds(
        lambda op: {"key": "size", "operator": op}, st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
name_requirements = st.builds(
    lambda op, name: {"key": "metadata.name", "operator": op, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "gone"]),
)
node_terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(node_requirements, max_size=2),
        "matchFields": st.lists(name_requirements, max_size=1),
    },
)
tolerations = st.fixed_dictionaries(
    {"operator": st.sampled_from(["Equal", "Exists"])},
    optional={
        "key": st.sampled_from(["gpu", "node.kubernetes.io/unschedulable"]),
        "value": st.sampled_from(["", "yes"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
    },
)
ports = st.builds(
    lambda port, protocol, ip: {"hostPort": port, "protocol": protocol, "hostIP": ip},
    st.sampled_from([80, 443]),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
)
required = "requiredDuringSchedulingIgnoredDuringExecution"


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "") -> o.Pod:
    affinity: dict[str, Any] = {}
    if terms := draw(maybe(st.lists(node_terms, min_size=1, max_size=2), [])):
        affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
    if terms := draw(maybe(st.lists(pod_terms, min_size=1, max_size=2), [])):
        affinity["podAffinity"] = {required: terms}
    if terms := draw(maybe(st.lists(pod_terms, min_size=1, max_size=2), [])):
        affinity["podAntiAffinity"] = {required: terms}
    asked = {"cpu": draw(st.sampled_from(["0", "500m", "2"]))}
    if draw(st.booleans()):
        asked[b.GPU] = draw(st.sampled_from(["0", "1", "2"]))
    spec = {
        "containers": [
            {
                "resources": {"requests": asked},
                "ports": draw(maybe(st.lists(ports, max_size=2), [])),
            }
        ],
        "affinity": affinity,
        "nodeSelector": draw(maybe(st.sampled_from(ZONES).map(lambda z: {b.ZONE: z}), {})),
        "tolerations": draw(maybe(st.lists(tolerations, max_size=2), [])),
        "topologySpreadConstraints": draw(maybe(st.lists(spreads, max_size=2), [])),
    }
    labels = draw(
        st.fixed_dictionaries(
            {}, optional={"app": st.sampled_from(APPS), "tier": st.sampled_from("xy")}
        )
    )
    return b.pod(
        name,
        namespace=draw(st.sampled_from([*SPACES])),
        node=node,
        labels=labels,
        deleting=draw(maybe(st.just(True), False)) if node else False,
        phase=draw(st.sampled_from(["Running"] * 5 + ["Succeeded"])) if node else "",
        spec=spec,
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> o.Node:
    labels = draw(
        st.fixed_dictionaries(
            {},
            optional={
                b.ZONE: st.sampled_from(ZONES),
                "rack": st.sampled_from("12"),
                "size": st.sampled_from(["1", "2", "3", "big"]),
            },
        )
    )
    return b.node(
        name,
        cpu="4",
        gpus=draw(st.integers(0, 4)),
        pods=draw(st.sampled_from([1, 3, 110])),
        labels=labels,
        taints=draw(maybe(st.lists(st.sampled_from(TAINTS), max_size=2), [])),
        unschedulable=draw(maybe(st.just(True), False)),
    )


TAINTS = ["gpu=yes:NoSchedule", "gpu:NoExecute", "soft:PreferNoSchedule"]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[o.Node], list[o.Pod], list[o.Pod], o.Pod]:
    """Nodes, pods bound to them, pods that come later on the overlay, and a pod to place."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 5)))]
    machines = [draw(nodes(name)) for name in names]
    bound = [
        draw(pods(f"b{i}", draw(st.sampled_from(names)))) for i in range(draw(st.integers(0, 5)))
    ]
    later = [
        draw(pods(f"l{i}", draw(st.sampled_from(names)))) for i in range(draw(st.integers(0, 3)))
    ]
    later = [msgspec.structs.replace(p, metadata=undeleted(p), status=o.PodStatus()) for p in later]
    return machines, bound, later, draw(pods("new"))


def undeleted(pod: o.Pod) -> o.Meta:
    return msgspec.structs.replace(pod.metadata, deletion_timestamp=None)


def build(machines: list[o.Node], bound: list[o.Pod]) -> Cluster:
    cluster = Cluster()
    for name, labels in SPACES.items():
        cluster.upsert_namespace(b.namespace(name, **labels))
    for each in bound:
        cluster.upsert_pod(each)
    for machine in machines:  # after their pods, which wait for them
        cluster.upsert_node(machine)
    return cluster


def expected(machines: list[o.Node], bound: list[o.Pod], pod: o.Pod) -> dict[str, bool]:
    world = World(machines, bound, SPACES)
    return {node.metadata.name: world.fits(pod, node) for node in machines}


def answer(view: Snapshot, pod: o.Pod) -> dict[str, bool]:
    return dict(zip(view.names, view.feasible(shape_of(pod)).tolist(), strict=True))


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_feasible_is_what_the_oracle_says(world):
    machines, bound, _, pod = world
    want = expected(machines, bound, pod)
    event(f"{sum(want.values())} of {len(want)} nodes fit")
    cluster = build(machines, bound)
    cluster.verify()
    assert answer(Snapshot(cluster), pod) == want


@settings(max_examples=100, deadline=None)
@given(worlds(), st.booleans())
def test_what_is_placed_counts_as_if_it_ran_and_rollback_leaves_no_trace(world, ask_first):
    machines, bound, later, pod = world
    view = Snapshot(build(machines, bound))
    before = expected(machines, bound, pod)
    if ask_first:
        assert answer(view, pod) == before
    free = view.free.copy()
    mark = view.checkpoint()
    for each in later:
        view.place(shape_of(each, ignore_node=True), view.view.row_of[each.spec.node_name])
    assert answer(view, pod) == expected(machines, [*bound, *later], pod)
    view.rollback(mark)
    assert answer(view, pod) == before
    known = free.shape[1]
    assert np.array_equal(view.free[:, :known], free)
    assert not view.free[:, known:].any(), "a resource that no node has"


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_reservations_count_as_pods(world):
    machines, bound, later, pod = world
    cluster = build(machines, bound)
    for each in later:
        row = cluster.view().row_of[each.spec.node_name]
        cluster.reserve(each.metadata.uid, shape_of(each, ignore_node=True), row)
    cluster.verify()
    assert answer(Snapshot(cluster), pod) == expected(machines, [*bound, *later], pod)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_emptied_is_as_if_no_pod_ran(world):
    machines, bound, _, pod = world
    view = Snapshot(build(machines, bound)).emptied()
    assert answer(view, pod) == expected(machines, [], pod)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_removing_a_pod_is_as_if_it_were_gone(world):
    machines, bound, _, pod = world
    staying = [p for p in bound if p.metadata.deletion_timestamp is None]
    view = Snapshot(build(machines, staying))
    view.feasible(shape_of(pod))
    gone = [p for p in staying[:2] if p.status.phase == "Running"]
    for each in gone:
        view.remove(shape_of(each, ignore_node=True), view.view.row_of[each.spec.node_name])
    left = [p for p in staying if p not in gone]
    assert answer(view, pod) == expected(machines, left, pod)


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_every_node_that_refuses_is_explained_once(world):
    machines, bound, _, pod = world
    view = Snapshot(build(machines, bound))
    reasons = view.explain(shape_of(pod))
    assert sum(reason.nodes for reason in reasons) == int((~view.feasible(shape_of(pod))).sum())
    assert len({(r.code, r.params) for r in reasons}) == len(reasons)
    assert all(reason.render() for reason in reasons)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_a_snapshot_does_not_see_later_events(world):
    machines, bound, later, pod = world
    cluster = build(machines, bound)
    view = Snapshot(cluster)
    for each in later:
        cluster.upsert_pod(each)
    for each in bound:
        cluster.remove_pod(each.metadata.uid)
    cluster.remove_node("n0")
    cluster.upsert_node(b.node("another", gpus=8, labels={b.ZONE: "east"}))
    cluster.verify()
    assert answer(view, pod) == expected(machines, bound, pod)


def test_a_pod_that_names_its_node_goes_nowhere_else():
    view = Snapshot(build([b.node("n0"), b.node("n1")], []))
    shape = shape_of(b.pod("p", node="n1"))
    assert view.feasible(shape).tolist() == [False, True]
    assert [r.render() for r in view.explain(shape)] == ["1 node: spec.nodeName asks for n1"]


def test_numeric_tolerations_compare():
    view = Snapshot(build([b.node("n0", taints=["sla=900:NoSchedule"])], []))

    def fits(operator: str, value: str) -> bool:
        toleration = {"key": "sla", "operator": operator, "value": value}
        pod = b.pod("p", spec={"tolerations": [toleration]})
        return bool(view.feasible(shape_of(pod))[0])

    assert fits("Gt", "800")
    assert fits("Lt", "950")
    assert not fits("Gt", "900")
    assert not fits("Lt", "many")
    assert not fits("Gt", "0800")


def test_bans_are_of_one_shape_and_say_why():
    view = Snapshot(build([b.node("n0"), b.node("n1")], []))
    shape = shape_of(b.pod("p"))
    other = replace(shape, priority=7)
    view.ban(shape, 0, "volume zone")
    assert view.feasible(shape).tolist() == [False, True]
    assert view.feasible(other).tolist() == [True, True]
    assert [r.render() for r in view.explain(shape)] == [
        "1 node: kube-scheduler refused it there: volume zone"
    ]
    assert view.emptied().feasible(shape).tolist() == [False, True]


def test_rows_left_out_stay_out():
    view = Snapshot(build([b.node("n0"), b.node("n1")], []), np.array([True, False]))
    shape = shape_of(b.pod("p"))
    assert view.feasible(shape).tolist() == [False, True]
    assert view.capacity(shape).tolist() == [0, 64]
    assert view.emptied().feasible(shape).tolist() == [False, True]


def test_a_resource_that_no_node_has_fits_nowhere():
    view = Snapshot(build([b.node("n0")], []))
    shape = shape_of(b.pod("p", requests={"example.com/fpga": "1"}))
    assert not view.feasible(shape).any()
    assert view.request_vector(shape)[view.resources["example.com/fpga"]] == 1
    assert [r.render() for r in view.explain(shape)] == [
        "1 node: 0 of 0 example.com/fpga free, 1 asked"
    ]


def test_an_over_committed_resource_keeps_nobody_out_who_asks_none_of_it():
    cluster = build([b.node("n0", gpus=4)], [b.pod("b", node="n0", gpus=4)])
    cluster.upsert_node(b.node("n0", gpus=2))
    view = Snapshot(cluster)
    assert view.feasible(shape_of(b.pod("p"))).all()
    assert [r.render() for r in view.explain(shape_of(b.pod("p", gpus=1)))] == [
        "1 node: 0 of 2 nvidia.com/gpu free, 1 asked"
    ]


def test_the_nearest_miss_is_told_first():
    machines = [
        b.node("n0", gpus=8),
        b.node("n1", gpus=8),
        b.node("n2", gpus=8),
        b.node("n3", gpus=8, unschedulable=True),
        b.node("n4", gpus=8, taints=["a=b:NoSchedule"]),
        b.node("n5", cpu="1500m", gpus=8),
    ]
    taken = [
        b.pod("x", node="n0", gpus=7),
        b.pod("y", node="n1", gpus=5),
        b.pod("z", node="n2", gpus=5),
    ]
    view = Snapshot(build(machines, taken))
    assert [r.render() for r in view.explain(shape_of(b.pod("p", cpu="2", gpus=4)))] == [
        "2 nodes: 3 of 8 nvidia.com/gpu free, 4 asked",
        "1 node: 1500m of 1500m cpu free, 2 asked",
        "1 node: 1 of 8 nvidia.com/gpu free, 4 asked",
        "1 node: cordoned",
        "1 node: taint a=b:NoSchedule is not tolerated",
    ]


def test_many_ways_to_be_short_are_one_line():
    machines = [b.node(f"n{i}", memory=f"{i + 1}Gi") for i in range(12)]
    view = Snapshot(build(machines, []))
    assert [r.render() for r in view.explain(shape_of(b.pod("p", memory="64Gi")))] == [
        "12 nodes: at most 12Gi of 12Gi memory free, 64Gi asked"
    ]


def test_bound_volumes_tie_a_pod_to_where_they_are():
    cluster = build(
        [b.node("n0", labels={b.ZONE: "east"}), b.node("n1", labels={b.ZONE: "west"})], []
    )
    pod = b.pod("p", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]})
    shape = shape_of(pod)

    def said() -> list[str]:
        return [r.render() for r in Snapshot(cluster).explain(shape)]

    assert said() == ["2 nodes: PersistentVolumeClaim data does not exist"]
    before = cluster.capacity_generation
    cluster.upsert_claim(b.claim("data"))
    assert cluster.capacity_generation > before
    assert Snapshot(cluster).feasible(shape).tolist() == [True, True], "unbound: evidence decides"
    cluster.upsert_claim(b.claim("data", "pv"))
    assert Snapshot(cluster).feasible(shape).tolist() == [False, False], "no such volume yet"
    assert said() == ["2 nodes: volume of claim data cannot be used there"]
    cluster.upsert_volume(b.volume("pv", zone="west"))
    assert Snapshot(cluster).feasible(shape).tolist() == [False, True]
    cluster.upsert_volume(b.volume("pv"))
    assert Snapshot(cluster).feasible(shape).tolist() == [True, True]
    cluster.remove_volume("pv")
    cluster.remove_claim("default", "data")
    assert not Snapshot(cluster).feasible(shape).any()
