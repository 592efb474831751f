"""The event loop on virtual time, and processes on it."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from extender.chaos.clock import Process, Stuck, VirtualLoop, later


def run(main, seed=0):
    loop = VirtualLoop(random.Random(seed))
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def now():
    return asyncio.get_running_loop().time()


def test_hours_pass_at_once_and_in_order():
    async def main():
        seen: list[tuple[float, float]] = []

        async def wait(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, now()))

        await asyncio.gather(wait(7200), wait(1), wait(60))
        return seen

    before = time.monotonic()
    assert run(main) == [(1, 1), (60, 60), (7200, 7200)]
    assert time.monotonic() - before < 3600


def test_the_seed_orders_what_is_due_at_one_instant_and_nothing_else_does():
    async def main():
        seen: list[int] = []
        for number in range(8):
            asyncio.get_running_loop().call_later(1.0, seen.append, number)
        await asyncio.sleep(2)
        return tuple(seen)

    assert run(main, 1) == run(main, 1)
    assert len({run(main, seed) for seed in range(10)}) > 5


def test_a_paused_process_finds_on_its_return_what_happened_meanwhile():
    async def main():
        seen = []

        async def work():
            while True:
                await asyncio.sleep(1)
                seen.append(now())

        process = Process("p")
        process.start(work())
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(10)
        assert seen == [1, 2]
        process.resume()
        await asyncio.sleep(1.5)
        process.kill()
        return seen

    assert run(main) == [1, 2, 12.5, 13.5]


def test_a_killed_process_does_nothing_more_and_what_it_sent_arrives():
    async def main():
        seen: list[str] = []

        async def child():
            await asyncio.sleep(3)
            seen.append("child")

        async def work():
            later(2, seen.append, "sent before")
            task = asyncio.get_running_loop().create_task(child())
            try:
                await task
            finally:
                await asyncio.get_running_loop().create_task(child())

        process = Process("p")
        process.start(work())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(10)
        assert process.tasks == {}
        return seen

    assert run(main) == ["sent before"]


def test_a_program_that_fails_is_told_of():
    async def main():
        async def work():
            raise ValueError("a fault")

        Process("p").start(work())
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.faults

    (fault,) = run(main)
    assert "a fault" in fault


def test_waiting_for_what_cannot_come_is_an_error():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(Stuck):
        run(main)


def test_going_round_at_one_instant_is_an_error():
    async def main():
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    with pytest.raises(Stuck):
        run(main)
