"""When the agent writes: what differs, once in a while, and later when it is asked to wait."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from extender.agent.publish import Publisher
from extender.kube.complaints import Complaints
from extender.kube.replies import MERGE_PATCH, Reply
from extender.obs.metrics import Metrics
from extender.settings import Agent


class Server:
    """An API server with one node, that refuses what it is told to."""

    def __init__(self) -> None:
        self.annotations = {"of.others/key": "theirs"}
        self.requests: list[tuple[str, dict | None]] = []
        self.refusals: list[Reply] = []

    async def send(self, method, path, *, query=None, body=None, content_type="", **_):
        assert path == "/api/v1/nodes/n1"
        patch = None
        if method == "PATCH":
            assert content_type == MERGE_PATCH
            patch = json.loads(body)
            assert list(patch) == ["metadata"]
            assert list(patch["metadata"]) == ["annotations"]
            patch = patch["metadata"]["annotations"]
        else:
            assert query == {"resourceVersion": "0"}
        self.requests.append((method, patch))
        if self.refusals:
            return self.refusals.pop(0)
        self.annotations |= patch or {}
        return Reply(200, json.dumps({"metadata": {"annotations": self.annotations}}).encode())

    def sent(self) -> list[tuple[str, dict | None]]:
        done, self.requests = self.requests, []
        return done


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.server = Server()
        self.metrics = Metrics()
        self.settings = Agent()

    def agent(self, seed: int = 1) -> Publisher:
        return Publisher(
            self.server,
            "n1",
            self.settings,
            random.Random(seed),
            self.metrics,
            Complaints(),
            clock=lambda: self.now,
        )

    def counted(self, result: str) -> float:
        return self.metrics.agent_writes.labels(result)._value.get()


@pytest.fixture
def world() -> World:
    return World()


async def test_only_what_differs_is_written_and_nothing_twice(world):
    agent = world.agent()
    assert await agent.settle({"a": "1", "b": "1"})
    assert world.server.sent() == [("GET", None), ("PATCH", {"a": "1", "b": "1"})]
    assert await agent.settle({"a": "1", "b": "1"})
    # Another one, after a restart.
    assert await world.agent().settle({"a": "1", "b": "1"})
    assert world.server.sent() == [("GET", None)]
    world.now = 100
    assert await agent.settle({"a": "1", "b": "2"})
    assert world.server.sent() == [("PATCH", {"b": "2"})]
    assert world.server.annotations == {"of.others/key": "theirs", "a": "1", "b": "2"}


async def test_changes_are_written_once_an_interval_and_the_last_one_counts(world):
    agent = world.agent()
    patches = []
    for second in range(0, 660, 15):
        world.now = second
        await agent.settle({"a": str(second)})
        patches += [(second, p) for method, p in world.server.sent() if method == "PATCH"]
    times = [second for second, _ in patches]
    assert patches == [(second, {"a": str(second)}) for second in times]
    assert len(times) == 9
    gaps = [b - a for a, b in pairwise(times)]
    # 60 s and up to a tenth more, seen every 15 s.
    assert set(gaps) == {75}
    assert world.counted("ok") == 9
    assert world.counted("later") == 44 - 9


async def test_what_somebody_else_changed_is_put_right_in_time(world):
    agent = world.agent()
    await agent.settle({"a": "1"})
    del world.server.annotations["a"]
    world.server.sent()
    world.now = 599
    assert await agent.settle({"a": "1"})
    assert world.server.sent() == []
    world.now = 661
    assert await agent.settle({"a": "1"})
    assert world.server.sent() == [("GET", None), ("PATCH", {"a": "1"})]


@pytest.mark.parametrize(
    ("refusal", "first"),
    [
        (Reply(429, reason="TooManyRequests", retry_after=7.0), 7.0),
        (Reply(500, reason="InternalError"), 0.5),
        (Reply(503, reason="ServiceUnavailable"), 0.5),
        (Reply(0, reason="Unreachable", message="no route"), 0.5),
        (Reply(403, reason="Forbidden"), 0.5),
        (Reply(404, reason="NotFound"), 0.5),
        (Reply(200, b"<html>"), 0.5),
    ],
    ids=lambda value: str(getattr(value, "code", "")),
)
async def test_a_refusal_is_waited_out_ever_longer(world, refusal, first):
    agent = world.agent()
    await agent.settle({"a": "1"})
    world.now, world.server.refusals = 1000.0, [refusal] * 6
    world.server.sent()
    tries = []
    while world.server.refusals:
        await agent.settle({"a": "2"})
        if world.server.sent():
            tries.append(world.now)
        world.now += 0.5
    pauses = [b - a for a, b in pairwise(tries)]
    assert pauses[0] >= first
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 8 or len(pauses) < 5
    world.now += 600
    assert await agent.settle({"a": "2"})
    # What became of the write is not known: it is read first.
    assert world.server.sent()[-2:] == [("GET", None), ("PATCH", {"a": "2"})]


async def test_nodes_that_change_together_do_not_write_together(world):
    free = set()
    for seed in range(20):
        agent = world.agent(seed)
        await agent.settle({"a": "1"})
        free.add(agent._write_after)
        world.server.annotations = {}
    assert len(free) == 20
    assert 60 <= min(free) <= max(free) <= 66


def test_settings_of_the_sample_are_the_defaults():
    root = Path(__file__).resolve().parents[2]
    sample = yaml.safe_load((root / "config/muster.yaml").read_text())["muster"]["agent"]
    given = Agent.model_validate(sample).model_dump(by_alias=True)
    assert given == Agent().model_dump(by_alias=True)
    assert set(given) - set(sample) == {"kubeletConfig", "metricsPort"}
