"""The two log formats."""

import io
import logging

import orjson
import pytest
import structlog

from extender.obs import log
from extender.obs.metrics import Metrics


@pytest.fixture
def stream():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_is_one_object_a_line_from_both_loggers(stream):
    early = log.logger("early")
    log.configure("json", "info", stream)
    early.info("said", gang="ns/g")
    early.debug("not said")
    logging.getLogger("library").warning("a %s", "b")
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("said", "info"),
        ("a b", "warning"),
    ]
    assert (lines[0]["part"], lines[0]["gang"]) == ("early", "ns/g")


def test_console(stream):
    log.configure("console", "debug", stream)
    log.logger("x").debug("said")
    assert "said" in stream.getvalue()


def test_metrics_render():
    metrics = Metrics()
    metrics.leader.set(1)
    assert b"muster_leader 1.0" in metrics.render()
