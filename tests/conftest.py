"""What every test needs."""

import asyncio

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_stray_loop():
    """looptime asks for the current loop before a synchronous test, which would make one that
    nobody closes; once the loop was set to nothing, asking makes none."""
    asyncio.set_event_loop(None)
