"""The loop's clock, and the times that it measures."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from extender.core import commands as c
from extender.core.events import Tick
from extender.loop import BATCH, CROWDED, WAKE_STEP, Loop, steady
from extender.obs.metrics import Metrics
from tests.core import machine_stories as do
from tests.core.machine import START, Machine


def test_setting_the_machine_s_clock_does_not_move_the_loop_s() -> None:
    wall, counter = [1_800_000_000.0], [50.0]
    clock = steady(lambda: wall[0], lambda: counter[0])
    wall[0] -= 3600
    counter[0] += 2.5
    assert clock() == 1_800_000_002.5


async def test_what_planning_took_is_measured_and_other_steps_are_not() -> None:
    m, metrics = Machine(), Metrics()
    (replica,) = m.replicas
    ticks = itertools.count(START + 1, 0.25)
    loop = Loop(replica.coordinator, metrics, clock=lambda: next(ticks))
    do.nodes(m, 2)
    do.group(m, "g", 2)
    for pod in ("g-0", "g-1"):
        loop.turn()
        assert metrics.registry.get_sample_value("muster_plan_seconds_count") == 0
        do.pod(m, pod, "g")
        for waiting in replica.backlog.values():
            while waiting:
                loop.put(waiting.popleft())
    loop.turn()
    assert metrics.registry.get_sample_value("muster_plan_seconds_count") == 1
    assert metrics.registry.get_sample_value("muster_plan_seconds_sum") == pytest.approx(0.25)
    loop.turn()
    assert metrics.registry.get_sample_value("muster_plan_seconds_count") == 1


async def test_barriers_are_measured_from_the_first_arrival_and_told_once() -> None:
    m, metrics = Machine(), Metrics()
    (replica,) = m.replicas
    loop = Loop(replica.coordinator, metrics, clock=lambda: m.now)
    do.nodes(m, 2)
    m.scheduler.held_back.add("g-1")
    do.gang(m, "g", 2)
    m.flush()
    m.advance(1.5)
    assert replica.state.barriers == []
    m.scheduler.held_back.clear()
    m.flush()
    assert len(m.bound("g")) == 2
    for _ in range(2):
        loop.turn()
        assert metrics.registry.get_sample_value("muster_barrier_seconds_count") == 1
        assert metrics.registry.get_sample_value("muster_barrier_seconds_sum") == 1.5


async def test_who_can_wait_does_while_too_many_events_are_queued() -> None:
    m, metrics = Machine(), Metrics()
    (replica,) = m.replicas
    loop = Loop(replica.coordinator, metrics, clock=lambda: m.now)
    for _ in range(CROWDED + 2 * BATCH):
        loop.put(Tick())
    waiting = asyncio.create_task(loop.room())
    for turns in range(1, 4):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done(), turns
        loop.turn()
    await waiting
    assert metrics.registry.get_sample_value("muster_queue_length") == CROWDED - BATCH


@pytest.mark.looptime
@pytest.mark.parametrize("rate", [0.9998, 1.0, 1.0002])
async def test_the_core_is_woken_at_its_time_and_not_a_moment_before(rate: float) -> None:
    """A wake that comes early changes nothing, and none follows (chaos seed 100301)."""
    m, timer = Machine(), asyncio.get_running_loop()
    (replica,) = m.replicas
    loop = Loop(replica.coordinator, Metrics(), clock=lambda: START + 0.3 + rate * timer.time())
    wishes = [START + at for at in (2.0, 7.049876, 7.05, 50.0499)]
    for at in wishes:
        replica.state.send(c.WakeAt(at))
    turns: list[float] = []
    step = replica.coordinator.step

    def told(now: float) -> list[c.Command]:
        turns.append(now)
        return step(now)

    replica.coordinator.step = told  # type: ignore[method-assign]
    running = asyncio.create_task(loop.run())
    loop.put(Tick())
    await asyncio.sleep(60.0)
    running.cancel()
    for at in wishes:
        assert any(at <= now <= at + 2 * WAKE_STEP for now in turns), (at, turns)
    assert len(turns) <= 1 + len(wishes)


@pytest.mark.parametrize(
    ("took", "queued", "rests"),
    [(0.0, 1, 0.0), (0.001, 1, 0.003), (0.25, 1, 0.005), (-1.0, 1, 0.0), (0.25, 2 * BATCH, 0.0)],
)
async def test_events_gather_while_the_loop_rests_unless_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, took: float, queued: int, rests: float
) -> None:
    m = Machine()
    (replica,) = m.replicas
    assert replica.state.synced
    clock = [START + 1]
    loop = Loop(replica.coordinator, Metrics(), clock=lambda: clock[0])
    rested: list[float] = []
    sleep, turn = asyncio.sleep, loop.turn

    async def noted(seconds: float) -> None:
        rested.append(round(seconds, 6))
        task.cancel()
        await sleep(0)

    def timed() -> None:
        turn()
        clock[0] += took

    monkeypatch.setattr(asyncio, "sleep", noted)
    monkeypatch.setattr(loop, "turn", timed)
    for _ in range(queued):
        loop.put(Tick())
    task = asyncio.create_task(loop.run())
    await asyncio.wait([task])
    assert rested == [rests]
