"""What the tests of the executor share."""

import pytest

from tests.kube.bench import Bench


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    await bench.executor.drain(0)
