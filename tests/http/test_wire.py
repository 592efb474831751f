"""Bytes in, bytes out. The requests are as Go marshals them: no omitted fields, null for absent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.errors import InvalidObject, InvariantViolated, WireError
from extender.core.objects import Container, Meta, Pod, PodSpec, ResourceRequirements
from extender.core.verdict import FilterAnswer
from extender.http import wire

POD = (
    b'{"metadata":{"name":"w-0","namespace":"team-a","uid":"u-0","creationTimestamp":null},'
    b'"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"nvidia.com/gpu":"8"}}}]},'
    b'"status":{"phase":"Pending","containerStatuses":null}}'
)
DECODED = Pod(
    Meta(name="w-0", namespace="team-a", uid="u-0"),
    PodSpec(
        containers=(
            Container(name="c", resources=ResourceRequirements(limits={"nvidia.com/gpu": "8"})),
        )
    ),
)
CACHED = b'{"Pod":%s,"Nodes":null,"NodeNames":["n2","n1"]}' % POD
NODES = [
    b'{"metadata":{"name":"n2"},"spec":{},"status":{"x": [1, 2.50]}}',
    b'{"metadata":{"name":"n1","annotations":{"k":"\\u00e9"}}}',
]
WHOLE = b'{"Pod":%s,"Nodes":{"metadata":{},"items":[%s]},"NodeNames":null}' % (
    POD,
    b",".join(NODES),
)


def test_the_pod_and_the_names_are_read():
    args = wire.read(CACHED, wire.ExtenderArgs)
    assert args.pod == DECODED
    assert args.names() == ["n2", "n1"]


def test_filter_answer_of_cached_nodes():
    args = wire.read(CACHED, wire.ExtenderArgs)
    answer = FilterAnswer(["n1"], "held")
    assert wire.filter_answer(args, args.names(), answer) == (
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{"n2":"held"},"Error":""}'
    )


def test_filter_answer_of_whole_nodes_returns_their_bytes():
    args = wire.read(WHOLE, wire.ExtenderArgs)
    answer = FilterAnswer(["n2"], "3 of 8 GPUs free, 4 asked")
    assert wire.filter_answer(args, args.names(), answer) == (
        b'{"Nodes":{"metadata":{},"items":[' + NODES[0] + b']},"NodeNames":null,"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{"n1":"3 of 8 GPUs free, 4 asked"},"Error":""}'
    )


def test_filter_answer_that_passes_nothing_is_an_empty_list_not_null():
    """With null, kube-scheduler falls back to Nodes."""
    args = wire.read(CACHED, wire.ExtenderArgs)
    answer = json.loads(wire.filter_answer(args, args.names(), FilterAnswer((), "held")))
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"] == {"n1": "held", "n2": "held"}


def test_a_node_that_was_not_asked_about_cannot_pass():
    args = wire.read(CACHED, wire.ExtenderArgs)
    for passed in (["n3"], ["n3", "n1"]):
        with pytest.raises(InvariantViolated, match="n3"):
            wire.filter_answer(args, args.names(), FilterAnswer(passed))


def test_prioritize_answer():
    assert wire.prioritize_answer(["n2", "n1"], [7, 10]) == (
        b'[{"Host":"n2","Score":7},{"Host":"n1","Score":10}]'
    )
    assert wire.prioritize_answer([], []) == b"[]"


@pytest.mark.parametrize("scores", [[1], [1, 11], [-1, 1]])
def test_scores_that_kube_scheduler_would_not_clamp(scores):
    with pytest.raises(InvariantViolated):
        wire.prioritize_answer(["n1", "n2"], scores)


N2_META = b'"n2":{"Pods":[{"UID":"v3"}],"NumPDBViolations":0}'
N2_WHOLE = b'"NumPDBViolations":1},"n2":{"Pods":[{"metadata":{"uid":"v3"}}],"NumPDBViolations":0}}'


def test_preempt_answer_is_meta_for_both_forms():
    meta = b'{"Pod":%s,"NodeNameToVictims":null,"NodeNameToMetaVictims":%s}' % (
        POD,
        b'{"n1":{"Pods":[{"UID":"v1"},{"UID":"v2"}],"NumPDBViolations":1},%s}' % N2_META,
    )
    whole = b'{"Pod":%s,"NodeNameToVictims":%s,"NodeNameToMetaVictims":null}' % (
        POD,
        b'{"n1":{"Pods":[{"metadata":{"uid":"v1"}},{"metadata":{"uid":"v2"}}],%s' % N2_WHOLE,
    )
    for body in (meta, whole):
        args = wire.read(body, wire.PreemptionArgs)
        assert {node: victims.uids() for node, victims in args.victims().items()} == {
            "n1": ("v1", "v2"),
            "n2": ("v3",),
        }
        assert wire.preempt_answer(args, {"n1": ["v1", "v2"]}) == (
            b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v1"},{"UID":"v2"}],'
            b'"NumPDBViolations":1}}}'
        )


def test_a_node_without_victims_is_dropped_from_the_preempt_answer():
    body = b'{"Pod":%s,"NodeNameToMetaVictims":{"n1":{"Pods":null,"NumPDBViolations":0}}}' % POD
    args = wire.read(body, wire.PreemptionArgs)
    assert wire.preempt_answer(args, {"n1": ()}) == b'{"NodeNameToMetaVictims":{}}'


def test_constant_answers():
    assert wire.bind_answer("") == b'{"Error":""}'
    assert wire.filter_error("why") == (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},'
        b'"Error":"why"}'
    )


def test_keys_in_any_case():
    lower = CACHED.replace(b'"Pod"', b'"pod"').replace(b'"NodeNames"', b'"nodenames"')
    args = wire.read(lower, wire.ExtenderArgs)
    assert (args.pod, args.names()) == (DECODED, ["n2", "n1"])
    only_names = wire.read(CACHED.replace(b'"NodeNames"', b'"nodeNames"'), wire.ExtenderArgs)
    assert (only_names.pod, only_names.names()) == (DECODED, ["n2", "n1"])
    inside = CACHED.replace(b'"metadata"', b'"Metadata"').replace(b'"limits"', b'"Limits"')
    assert wire.read(inside, wire.ExtenderArgs).pod == DECODED
    bind = b'{"podname":"a","PODNAMESPACE":"b","podUid":"c","node":"n"}'
    assert wire.read(bind, wire.BindingArgs) == wire.BindingArgs("a", "b", "c", "n")


def test_whole_nodes_keep_their_bytes_in_any_case():
    other = WHOLE.replace(b'"Nodes"', b'"nodes"').replace(b'"items"', b'"Items"')
    nodes = wire.read(other, wire.ExtenderArgs).nodes
    assert nodes is not None
    assert [bytes(raw) for raw in nodes.items] == NODES


def test_the_exact_key_wins_over_the_same_key_in_another_case():
    body = b'{"nodenames":["x"],"NodeNames":["n"],"nodeNames":["y"],"pod":%s}' % POD
    assert wire.read(body, wire.ExtenderArgs).names() == ["n"]


def test_null_is_absent_anywhere_in_the_pod():
    pod = (
        b'{"metadata":{"name":"a","uid":"u","labels":null,"ownerReferences":[null]},"spec":'
        b'{"containers":null,"initContainers":[{"name":"i","ports":null,"resources":null}],'
        b'"nodeSelector":null,"affinity":{"nodeAffinity":null},"priority":null},"status":null}'
    )
    read = wire.read(b'{"Pod":%s,"NodeNames":[]}' % pod, wire.ExtenderArgs).pod
    assert read.spec == PodSpec(init_containers=(Container(name="i"),), affinity=read.spec.affinity)
    assert read.metadata.labels == {}


@pytest.mark.parametrize("body", [b"", b"{", b'{"Pod":{}} {}', b'{"Pod":\xff}', b"<xml/>"])
def test_what_is_not_json(body):
    with pytest.raises(WireError):
        wire.read(body, wire.ExtenderArgs)


def test_json_that_is_nested_without_end():
    with pytest.raises(WireError, match="nested"):
        wire.read(b'{"Pod":{"x":' + b"[" * 100_000, wire.ExtenderArgs)


NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['a",', '"', "\\", ",", '","', "é", "\x00", "n1"]
)
NAMES = st.lists(NAME, unique=True, max_size=8)


@given(names=NAMES, message=NAME, data=st.data())
def test_filter_answer_equals_the_plain_encoding(names, message, data):
    passed = [name for name in names if data.draw(st.booleans())]
    rest = [name for name in names if name not in passed]
    args = wire.ExtenderArgs(pod=DECODED, node_names=names)
    answer = wire.filter_answer(args, names, FilterAnswer(passed, message))
    assert json.loads(answer) == {
        "Nodes": None,
        "NodeNames": passed,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": dict.fromkeys(rest, message),
        "Error": "",
    }


@given(rows=st.lists(st.tuples(NAME, st.integers(0, 10)), max_size=8))
def test_prioritize_answer_equals_the_plain_encoding(rows):
    answer = wire.prioritize_answer([name for name, _ in rows], [score for _, score in rows])
    assert json.loads(answer) == [{"Host": name, "Score": score} for name, score in rows]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAME,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=8,
)


@given(pod=JSON, names=JSON)
def test_any_json_is_read_or_blamed(pod, names):
    body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
    try:
        args = wire.read(body, wire.ExtenderArgs)
    except InvalidObject as error:
        blamed = error.field
    else:
        blamed = ""
        assert args.names() == names
    assert blamed or isinstance(names, list)
