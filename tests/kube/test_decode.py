"""One object to one event, however bad its neighbours are."""

import gc
import time
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core import events as e
from extender.core import objects as o
from extender.core.api import GANG_PLANS, NODES, PODS, PYTORCH_JOBS, SERVICES, VOLCANO_GROUPS
from extender.core.errors import ApiError, Gone
from extender.kube.decode import (
    GARBAGE,
    WATCHED,
    Bookmark,
    Change,
    Key,
    Left,
    ObjectDecoder,
    Seen,
)
from extender.kube.nesting import without_nulls
from extender.obs.metrics import Metrics

META = {"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "9"}


@pytest.fixture
def metrics():
    return Metrics()


def line(type_, obj):
    return orjson.dumps({"type": type_, "object": obj})


def value(metrics, name, kind):
    return metrics.registry.get_sample_value(f"muster_{name}_total", {"kind": kind}) or 0


def test_pod_is_decoded_straight_to_the_core(metrics):
    raw = orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**META, "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        }
    )
    seen = ObjectDecoder(PODS, metrics).item(raw)
    pod = o.Pod(
        o.Meta(name="p", namespace="ns", uid="u1", resource_version="9"),
        o.PodSpec(node_name="n1", containers=(o.Container(name="c"),)),
        o.PodStatus(phase="Running"),
    )
    assert seen == Seen(Key("ns", "p", "u1"), e.PodSeen(pod))


@pytest.mark.parametrize("resource", WATCHED, ids=lambda r: r.path())
def test_every_kind_is_seen_and_gone(resource, metrics):
    decoder = ObjectDecoder(resource, metrics)
    change: Any = decoder.line(line("MODIFIED", {"metadata": META}))
    assert change.resource_version == "9"
    assert change.what.key == Key("ns", "p", "u1")
    assert not isinstance(change.what.event, e.InvalidSeen)
    left: Any = decoder.line(line("DELETED", {"metadata": META}))
    assert left == Change(Left(Key("ns", "p", "u1")), "9")
    gone: Any = decoder.gone(left.what.key)
    assert type(gone).__name__.endswith("Gone")
    assert gone.name == "p"


def test_raw_kinds_pass_through_whole(metrics):
    raw = {"metadata": META, "spec": {"x": [1, None]}}
    assert ObjectDecoder(GANG_PLANS, metrics).item(orjson.dumps(raw)).event == e.PlanSeen(raw)
    seen = ObjectDecoder(PYTORCH_JOBS, metrics).item(orjson.dumps(raw))
    assert seen.event == e.JobSeen(PYTORCH_JOBS, raw)


def test_service_keeps_its_metadata_only(metrics):
    seen: Any = ObjectDecoder(SERVICES, metrics).item(orjson.dumps({"metadata": META, "spec": 5}))
    assert seen.event.metadata.name == "p"


def test_nulls_are_empty_as_in_go(metrics):
    pod = {
        "metadata": {**META, "labels": None, "ownerReferences": None},
        "spec": {"containers": [{"name": "c", "resources": None, "ports": None}]},
        "status": None,
    }
    seen = ObjectDecoder(PODS, metrics).item(orjson.dumps(pod))
    assert isinstance(seen.event, e.PodSeen)
    assert seen.event.pod.spec.containers == (o.Container(name="c"),)
    assert value(metrics, "nulls_stripped", "Pod") == 1
    assert value(metrics, "decode_errors", "Pod") == 0


def test_an_object_of_the_wrong_shape_is_invalid_and_known(metrics):
    group = {"metadata": META, "spec": {"minMember": "three"}}
    seen = ObjectDecoder(VOLCANO_GROUPS, metrics).item(orjson.dumps(group))
    assert seen.key == Key("ns", "p", "u1")
    assert isinstance(seen.event, e.InvalidSeen)
    assert (seen.event.resource, seen.event.uid) == (VOLCANO_GROUPS, "u1")
    assert "minMember" in seen.event.message
    assert value(metrics, "decode_errors", "PodGroup") == 1


def test_identity_survives_bad_metadata(metrics):
    pod = {"metadata": {**META, "labels": {"a": 1}}}
    seen = ObjectDecoder(PODS, metrics).item(orjson.dumps(pod))
    assert seen.key == Key("ns", "p", "u1")
    assert isinstance(seen.event, e.InvalidSeen)
    raw_kind = ObjectDecoder(PYTORCH_JOBS, metrics).item(orjson.dumps(pod))
    assert isinstance(raw_kind.event, e.InvalidSeen)


def test_bookmark_only_moves_the_version(metrics):
    change = ObjectDecoder(PODS, metrics).line(
        line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "77"}, "spec": None})
    )
    assert change == Change(Bookmark(), "77")


def test_error_events(metrics):
    decoder = ObjectDecoder(NODES, metrics)
    with pytest.raises(Gone):
        decoder.line(line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))
    with pytest.raises(ApiError, match="500 InternalError: etcd"):
        decoder.line(line("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd"}))


@pytest.mark.parametrize("bad", [b"{", b"[]", b"\xff", b'{"type":"ODD","object":{}}', b"null"])
def test_garbage_is_named_and_counted(bad, metrics):
    with pytest.raises(ApiError) as caught:
        ObjectDecoder(NODES, metrics).line(bad)
    assert caught.value.reason == GARBAGE
    assert value(metrics, "decode_errors", "Node") == 1


def test_empty_list_is_written_as_null(metrics):
    page = ObjectDecoder(PODS, metrics).page(b'{"metadata":{"resourceVersion":"5"},"items":null}')
    assert (page.items, page.metadata.resource_version, page.metadata.next) == (None, "5", "")
    with pytest.raises(ApiError):
        ObjectDecoder(PODS, metrics).page(b"<html>")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "containers", "labels", "name", "uid"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json_values))
def test_whatever_an_object_holds_it_is_one_event(obj):
    for resource in (PODS, VOLCANO_GROUPS, PYTORCH_JOBS):
        seen = ObjectDecoder(resource, Metrics()).item(orjson.dumps(obj))
        assert isinstance(seen.event, e.PodSeen | e.GroupSeen | e.JobSeen | e.InvalidSeen)


@given(json_values)
def test_without_nulls_leaves_the_rest(value):
    stripped = without_nulls(value)
    assert without_nulls(stripped) == stripped
    assert b"null" not in orjson.dumps(stripped) or value is None
    assert msgspec.json.encode(stripped) == orjson.dumps(stripped)


if __name__ == "__main__":  # microseconds a pod: python -m tests.kube.test_decode
    container = {
        "name": "c",
        "image": "registry.example/train:1",
        "env": [{"name": f"E{i}", "value": "x" * 20} for i in range(25)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "4"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    pod = {
        "metadata": {
            **META,
            "labels": {f"l{i}": "v" for i in range(6)},
            "managedFields": ["x" * 900],
        },
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    }
    text = line("ADDED", pod)
    decoder = ObjectDecoder(PODS, Metrics())
    gc.disable()
    begin = time.perf_counter()
    for _ in range(20_000):
        decoder.line(text)
    print(len(text), "bytes", (time.perf_counter() - begin) / 20_000 * 1e6, "us a pod")
