"""S12: wrong input is answered by name, field, value and what is allowed; neighbours run on."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extender.core import api
from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.runtime import Service
from extender.sim import fleet
from tests.controlplane.gangs import (
    CONVENTIONS,
    check_landed_whole,
    describe,
    until_refused,
)
from tests.controlplane.world import World, pod

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
BY_RESOURCE = {each.resource: each for each in CONVENTIONS if each.name != "volcano-own"}


@pytest.fixture
async def near(world: World, muster: Service) -> AsyncIterator[World]:
    """A gang that runs beside the wrong one, and another that lands after it."""
    await world.nodes("n1", gpus=8)
    await world.group("near", 2)
    await world.gang("near", 2)
    await world.until(lambda: world.phases("near") == ["Running"] * 2, "the neighbour")
    yield world
    await world.group("later", 2)
    await world.gang("later", 2)
    await world.until(lambda: world.phases("later") == ["Running"] * 2, "a later neighbour")
    assert world.phases("near") == ["Running"] * 2
    check_landed_whole(world, "later", 2)


@pytest.fixture
async def lax(world: World) -> AsyncIterator[None]:
    """Both PodGroup CRDs as upstream has them: no rule for minMember."""
    groups = (api.VOLCANO_GROUPS, api.SIGS_GROUPS)
    strict = [await world.client.get(CRDS, None, f"{each.plural}.{each.group}") for each in groups]
    try:
        for crd in strict:
            await world.client.patch(CRDS, None, crd["metadata"]["name"], without_rules(crd))
        for each in groups:
            await until_accepted(world, each, -1, True)
        yield
    finally:
        for crd in strict:
            versions = {"spec": {"versions": crd["spec"]["versions"]}}
            await world.client.patch(CRDS, None, crd["metadata"]["name"], versions)
        for each in groups:
            await until_accepted(world, each, -1, False)


def without_rules(crd: Manifest) -> Manifest:
    versions = copy.deepcopy(crd["spec"]["versions"])
    for version in versions:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        del spec["minMember"]["x-kubernetes-validations"]
    return {"spec": {"versions": versions}}


async def until_accepted(world: World, resource: Resource, minimum: int, expected: bool) -> None:
    """The API server serves a changed schema a moment after it was written."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **BY_RESOURCE[resource].record("probe", minimum),
    }
    command = ("create", "-f", "-", "--dry-run=server", "-n", world.namespace)
    async with asyncio.timeout(30):
        while True:
            done = await asyncio.to_thread(
                world.plane.kubectl, *command, stdin=json.dumps(body), check=False
            )
            if (done.returncode == 0) == expected:
                return


async def check_answered(world: World, resource: Resource, name: str, words: str) -> None:
    """Condition, event and `kubectl describe` of the object say it; nothing of it is bound."""
    why = await until_refused(world, name, words, resource=resource)
    event = await world.until_event(name, words)
    assert event["type"] == "Warning"
    assert event["involvedObject"]["kind"] == "PodGroup"
    assert why["message"] in await describe(world, f"{resource.plural}.{resource.group}", name)
    assert world.ever_bound(name) == set()


@pytest.mark.parametrize(
    ("resource", "minimum"),
    [
        (api.VOLCANO_GROUPS, -1),
        (api.SIGS_GROUPS, 0),
        (api.SIGS_GROUPS, -1),
        (api.NATIVE_GROUPS, 0),
        (api.NATIVE_GROUPS, -1),
    ],
    ids=lambda x: x.group if isinstance(x, Resource) else str(x),
)
async def test_a_minimum_that_the_api_refuses(
    near: World, resource: Resource, minimum: int
) -> None:
    said = f"spec.minMember: Invalid value: {minimum}"
    if resource == api.NATIVE_GROUPS:
        field = "spec.schedulingPolicy.gang.minCount"
        said = f"{field}: Invalid value: {minimum}" if minimum else f"{field}: Required value"
    with pytest.raises(ApiError, match=said):
        await near.client.create(
            resource, near.namespace, BY_RESOURCE[resource].record("wrong", minimum)
        )


async def test_minmember_0_where_upstreams_schema_lets_it_through(near: World) -> None:
    await near.group("wrong", 0)
    await near.gang("wrong", 2)
    words = "spec.minMember: 0 is not allowed: at least 1"
    await check_answered(near, api.VOLCANO_GROUPS, "wrong", words)
    await near.until(lambda: words in near.scheduled_message("wrong-0"), "the reason on a pod")
    await near.client.patch(api.VOLCANO_GROUPS, near.namespace, "wrong", {"spec": {"minMember": 2}})
    await near.until(lambda: near.phases("wrong") == ["Running"] * 2, "it put right")


@pytest.mark.parametrize("resource", [api.VOLCANO_GROUPS, api.SIGS_GROUPS], ids=lambda x: x.group)
@pytest.mark.parametrize("minimum", [0, -1])
async def test_a_minimum_that_a_lax_schema_lets_through(
    near: World, lax: None, resource: Resource, minimum: int
) -> None:
    convention = BY_RESOURCE[resource]
    await near.client.create(resource, near.namespace, convention.record("wrong", minimum))
    await near.create(convention.pods("wrong", 2, minimum))
    words = f"spec.minMember: {minimum} is not allowed: at least 1"
    await check_answered(near, resource, "wrong", words)


@pytest.mark.parametrize(
    ("name", "minimum"),
    # "-1" is no value of a label.
    [(name, minimum) for name in ("ack", "koordinator") for minimum in ("0", "four", "")]
    + [("koordinator", "-1")],
)
async def test_a_minimum_on_the_pods_that_is_none(near: World, name: str, minimum: str) -> None:
    """There is no record to write on: the event is on the pods."""
    convention = next(each for each in CONVENTIONS if each.name == name)
    members = convention.pods("wrong", 2, 2)
    for member in members:
        for marks in (member["metadata"]["labels"], member["metadata"]["annotations"]):
            marks.update({key: minimum for key in marks if key.endswith("/min-available")})
    await near.create(members)
    words = f"/min-available]: '{minimum}' is not allowed: a whole number of at least 1"
    await near.until_event("wrong-0", words)
    await near.until(lambda: words in near.scheduled_message("wrong-0"), "the reason on a pod")
    assert near.ever_bound("wrong") == set()


async def test_a_minimum_beyond_any_cluster(near: World) -> None:
    await near.group("wrong", 1_000_000)
    await near.gang("wrong", 3)
    await check_answered(near, api.VOLCANO_GROUPS, "wrong", "3 of at least 1000000 pods exist")


async def test_a_gang_that_would_not_fit_if_all_were_empty(near: World) -> None:
    await near.group("wrong", 9)
    await near.gang("wrong", 9)
    await check_answered(
        near,
        api.VOLCANO_GROUPS,
        "wrong",
        "8 of 9 pods would fit even if every node were empty",
    )


async def test_an_unknown_priority_class(near: World) -> None:
    await near.group("wrong", 2, priorityClassName="no-such-class")
    await near.gang("wrong", 2)
    words = "spec.priorityClassName: no-such-class does not exist; allowed: "
    await check_answered(near, api.VOLCANO_GROUPS, "wrong", words)
    await fleet.add_priority_class(near.client, "no-such-class", 10)
    await near.until(lambda: near.phases("wrong") == ["Running"] * 2, "it put right")
    await near.client.delete(api.PRIORITY_CLASSES, None, "no-such-class")


async def test_two_podgroups_claimed_by_one_pod(near: World) -> None:
    await near.group("wrong", 2)
    sigs = BY_RESOURCE[api.SIGS_GROUPS]
    await near.client.create(api.SIGS_GROUPS, near.namespace, sigs.record("other", 1))
    await near.gang("wrong", 1)
    await near.create(
        [
            pod(
                "wrong-1",
                labels={"scheduling.x-k8s.io/pod-group": "other"},
                annotations={"scheduling.k8s.io/group-name": "wrong"},
            )
        ]
    )
    words = "pod wrong-1 names two groups: other and wrong"
    event = await near.until_event("wrong-1", words)
    assert event["type"] == "Warning"
    await near.until(lambda: words in near.scheduled_message("wrong-1"), "the reason on the pod")
    await check_answered(near, api.VOLCANO_GROUPS, "wrong", "1 of at least 2 pods exist")
    assert near.ever_bound("wrong") == set()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("tiers: [{plugins: [{name: magic}]}]", "tiers[0].plugins[0]"),
        (
            "tiers: [{plugins: [{name: binpack, arguments: {binpack.wieght: 3}}]}]",
            "binpack.wieght",
        ),
        ("actions: enqueue, teleport", "teleport"),
        ("muster: {podMaxBackofSeconds: 1}", "podMaxBackofSeconds"),
    ],
)
async def test_a_configuration_with_an_unknown_name(
    near: World, tmp_path: Path, config: str, words: str
) -> None:
    """A second Muster does not start with it, and the running one is not troubled."""
    file = tmp_path / "muster.yaml"
    file.write_text(config)
    command = [sys.executable, "-m", "extender.cli", "serve", "--config", str(file)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert str(file) in done.stderr
    assert words in done.stderr
    assert "allowed" in done.stderr
