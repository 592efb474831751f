"""Whatever the service logs of injected faults is expected."""

from __future__ import annotations

import asyncio
import logging

import pytest
import structlog

from extender.chaos.network import Link
from extender.core import api
from extender.obs import log


@pytest.fixture(autouse=True)
def quiet():
    handlers, level = logging.root.handlers[:], logging.root.level
    log.configure("console", "critical")
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def groups_are_told_late(monkeypatch):
    """Every watch of Volcano's PodGroups tells what has happened since the list a minute later."""
    watch = Link.watch_lines

    async def late(self, resource, version, **more):
        if resource == api.VOLCANO_GROUPS:
            await asyncio.sleep(60.0)
        async for lines in watch(self, resource, version, **more):
            yield lines

    monkeypatch.setattr(Link, "watch_lines", late)
