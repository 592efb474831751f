"""What every test needs."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings

from extender.sim.binaries import VERSION

# How long an example takes is the machine's affair (pytest-timeout finds what hangs).
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which Kubernetes the tests of the real control plane run on, and whether jobs really train."""
    parser.addoption(
        "--kubernetes-version", default=VERSION, help="e.g. 1.35.4 (default: %(default)s)"
    )
    parser.addoption(
        "--training",
        metavar="PYTHON",
        help='run jobs as processes: --training "$(scripts/training)"',
    )


@pytest.fixture(scope="session", autouse=True)
def no_stray_loop():
    """looptime asks for the current loop before a synchronous test, which would make one that
    nobody closes; once the loop was set to nothing, asking makes none."""
    asyncio.set_event_loop(None)
