"""What a replica knows: what its core has read, not what lies in its inbox."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import orjson
import pytest

from extender.chaos.network import Shown, _versions
from extender.chaos.plant import settings
from extender.chaos.reading import ReadingLoop
from extender.core import api
from extender.core.coordinator import Coordinator
from extender.core.events import Listed, Tick
from extender.loop import FIRST_BATCH
from extender.obs.metrics import Metrics
from extender.runtime import rules_of


@pytest.fixture
def shown():
    return defaultdict(Shown)


@pytest.fixture
def loop(shown):
    coordinator = Coordinator(rules_of(settings()), settings().session(), {})
    return ReadingLoop(coordinator, Metrics(), clock=lambda: 0.0, shown=shown)


def test_a_list_is_known_once_it_is_read(loop, shown):
    loop.put(Listed(api.PODS, "7"))
    assert shown[api.PODS].version == 0
    loop.turn()
    assert shown[api.PODS].version == 7


@pytest.mark.parametrize(("before", "turns"), [(0, 1), (1, 1), (FIRST_BATCH, 2), (300, 2)])
async def test_what_waits_in_the_inbox_is_not_known(loop, before, turns):
    """Seeds 13322 and 21714: a watch had delivered what the core had not come to."""
    for _ in range(before):
        loop.put(Tick())
    read = []
    loop.once_read(lambda: read.append(True))
    loop.put(Tick())
    for _ in range(turns):
        assert not read
        loop.turn()
    assert read == [True]


async def test_a_line_is_known_in_the_turn_that_reads_its_event(loop):
    """Seeds 6300012 and 6300034: its reader waits before it asks for the next, and what the core makes
    of it is sent meanwhile. Events of others come after it.
    """
    read = []
    loop.once_read(lambda: read.append(True))
    await asyncio.create_task(_others(loop, FIRST_BATCH))
    loop.turn()
    assert read == [True]


async def _others(loop, count):
    for _ in range(count):
        loop.put(Tick())


def test_in_the_middle_of_a_list_no_version_says_what_is_known(loop, shown):
    """Seed 6300021: two of a list's pods had been read, and the second made a gang whole."""
    shown[api.PODS].listing = True
    assert shown[api.PODS].now().listing
    loop.put(Listed(api.PODS, "7"))
    assert shown[api.PODS].listing
    loop.turn()
    assert not shown[api.PODS].now().listing


def test_of_lines_that_come_together_each_is_known_by_itself():
    def line(version):
        return orjson.dumps({"type": "ADDED", "object": {"metadata": {"resourceVersion": version}}})

    lines = [line("3"), line("5"), line("5")]
    assert list(_versions(lines, 9)) == [(lines[0], 3), (lines[1], 5), (lines[2], 9)]
