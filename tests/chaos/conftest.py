"""Whatever the service logs of injected faults is expected."""

from __future__ import annotations

import logging

import pytest
import structlog

from extender.obs import log


@pytest.fixture(autouse=True)
def quiet():
    handlers, level = logging.root.handlers[:], logging.root.level
    log.configure("console", "critical")
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
