"""Hostile input, in short: what was found, the seeds, and a bounded run of every target.

The long runs are ``python -m tests.fuzz``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core import topology
from extender.core.api import PODS
from extender.core.errors import ConfigError, InvalidObject
from extender.core.topology import nrt
from extender.settings import parse_text
from tests.fuzz.draw import replaced, written
from tests.fuzz.targets import TARGETS, objects, verb
from tests.fuzz.world import Show, World, good

HERE = Path(__file__).parent
FINDINGS = yaml.safe_load((HERE / "findings.yaml").read_text(encoding="utf-8"))
SEEDS = sorted((HERE / "corpus").glob("*/*"))
#: Targets by what one execution costs: those with a world take some ten milliseconds.
EXAMPLES = {
    "scalars": 300,
    "wire": 300,
    "decoding": 200,
    "requests": 100,
    "config": 200,
    "configs": 60,
}


@pytest.mark.parametrize("case", FINDINGS, ids=lambda case: f"{case['kind']} {case['why']}")
def test_finding(case):
    raw = good(case["kind"])
    for path, value in case["set"]:
        replaced(raw, path, value)
    said = objects(case["kind"], [written(raw)], b"")
    if "says" in case:
        assert any(case["says"] in message for message in said), said


@pytest.mark.parametrize("fate", [b"", b"\x01", b"\x03\x04", b"\x06" * 9])
@pytest.mark.parametrize("case", FINDINGS[::4], ids=lambda case: case["why"])
def test_finding_after_a_good_version(case, fate):
    raw = good(case["kind"])
    for path, value in case["set"]:
        replaced(raw, path, value)
    objects(case["kind"], [written(good(case["kind"])), written(raw)], fate)


def test_a_pod_that_changes_its_owner_is_remembered_of_none():
    first, second = good("pods."), good("pods.")
    second["metadata"]["ownerReferences"][0]["uid"] = "u-other"
    objects("pods.", [written(first), written(second)])


@pytest.mark.parametrize("kind", ["pods.", "bound pods."])
@pytest.mark.parametrize("scheduler", ["muster", "other"])
def test_a_pod_that_goes_by_another_name_is_one_pod(kind, scheduler):
    names = ("odd-0", "odd-1")
    shown = [good(kind, name, "u-0") for name in names]
    for raw in shown:
        raw["spec"]["schedulerName"] = scheduler
    objects(kind, [written(raw) for raw in shown])
    with World() as world:
        Show(world, PODS).objects(*(written(raw) for raw in shown))
        gangs = world.state.gangs.values()
        assert not any(names[0] in (*gang.members, *gang.foreign) for gang in gangs)
        assert sum(names[1] in (*gang.members, *gang.foreign) for gang in gangs) == 1


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}-{seed.name}")
def test_seed(seed):
    TARGETS[seed.parent.name](seed.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_any_bytes(name):
    @settings(max_examples=EXAMPLES.get(name, 25))
    @given(st.binary(max_size=96))
    def run(data):
        TARGETS[name](data)

    run()


def test_ten_thousand_containers_and_twice_the_same():
    raw = good("pods.")
    raw["spec"]["containers"] *= 10_000
    assert "requests" not in "".join(objects("pods.", [written(raw)]))


@pytest.mark.parametrize("name", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"Pod":{},"Pod":{"metadata":{"name":"a","uid":"b"}},"NodeNames":["n0"],"NodeNames":[]}',
        b'{"Pod":NaN,"NodeNames":["n0"]}',
        b'{"Pod":{"metadata":{"name":"\xff","uid":"b"}},"NodeNames":["n0"]}',
        b'{"Pod":{"metadata":{"name":"\\ud800","uid":"b"}},"NodeNames":["n0"]}',
        b'{"Pod":{"metadata":{"name":"a","uid":"b"},"spec":{"priority":1e999}},"NodeNames":["n0"]}',
        b'{"Pod":' + b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"PodUID":' + b"9" * 100_000 + b"}",
    ],
    ids=["twice", "NaN", "utf-8", "surrogate", "number", "deep", "lists", "digits"],
)
def test_no_body_breaks_a_verb(name, body):
    verb(name, body)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[" * 2000, "is nested too deeply"),
        (b"\xff\xfe", "cannot be read"),
        (b"a: &a [*a]", "no such field"),
        (b"tiers: [{}" + b", {}" * 41 + b"]", "; and 3"),
        (b"muster: {concurrency: 1.0e+999}", "whole number"),
        (b"muster: {listen: {port: " + b"9" * 5000 + b"}}", "is not YAML"),
        (b"muster: 2026-13-45", "is not YAML"),
    ],
    ids=["deep", "bytes", "cycle", "many", "infinite", "digits", "date"],
)
def test_configuration(text, says):
    with pytest.raises(ConfigError) as found:
        parse_text(text, "muster.yaml")
    assert says in str(found.value)
    assert len(str(found.value)) < 5000


DUMP = (
    "\tGPU0{}GPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\t0-3\t0\nGPU1\tNV12\t X \t4-7\t1\n"
)
ZONE = {"name": "node-0", "type": "Node"}


def test_a_dump_whose_columns_are_no_gpus():
    assert len(topology.read(DUMP.format("\t")).topology) == 2
    with pytest.raises(InvalidObject, match="columns of GPUs"):
        topology.read(DUMP.format("x1"))


@pytest.mark.parametrize(
    ("zones", "says"),
    [
        ([{**ZONE, "costs": [{"name": "node-0", "value": 2**63}]}], r"costs\[0\].value"),
        ([{"name": f"node-{at}", "type": "Node"} for at in range(1025)], "at most 1024"),
        ([{**ZONE, "resources": [{"name": f"r{at}"} for at in range(1025)]}], "at most 1024"),
    ],
    ids=["far", "zones", "resources"],
)
def test_zones_that_no_machine_has(zones, says):
    with pytest.raises(InvalidObject, match=says):
        nrt.zones_of(msgspec.convert({"zones": zones}, nrt.NodeResourceTopology))


def test_a_number_that_int_does_not_read_is_none():
    attributes = [{"name": "topologyManagerMaxNUMANodes", "value": "\u00b2"}]
    raw = msgspec.convert({"attributes": attributes}, nrt.NodeResourceTopology)
    assert nrt.zones_of(raw).most_zones == nrt.DEFAULT_MOST_ZONES
