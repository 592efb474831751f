"""``muster check``: muster.yaml, and a KubeSchedulerConfiguration's extender entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Check

ROOT = Path(__file__).resolve().parents[2]


def scheduler(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / "config/scheduler-own.yaml").read_text())
    for entry in body["extenders"]:
        entry.update(changes)
    return body


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"httpTimeOut": "2s"}, "no such field; did you mean httpTimeout?"),
        (
            {"urlPrefix": "http://127.0.0.1:8901/scheduler"},
            "port 8901 is not muster.yaml's listen.port (8900)",
        ),
        (
            {"urlPrefix": "http://muster.example:8900/scheduler"},
            "muster.example cannot reach muster.yaml's listen.host (127.0.0.1)",
        ),
        (
            {"urlPrefix": "https://127.0.0.1:8900/scheduler"},
            "https:// but muster.yaml's Muster speaks http (muster.tls)",
        ),
        (
            {"urlPrefix": "http://127.0.0.1:x/scheduler"},
            "'http://127.0.0.1:x/scheduler' is not allowed: no such port",
        ),
    ],
)
def test_an_extender_entry_says_where_and_how_muster_is_asked(check: Check, changes, message):
    muster = str(ROOT / "config/muster.yaml")
    _, problems = check(scheduler(**changes), beside=(muster,))
    assert [problem.split(": ", 2)[2] for problem in problems] == [message] * 2


def test_a_verb_must_be_one_that_muster_answers(check: Check) -> None:
    body = scheduler()
    body["extenders"][1]["bindVerb"] = "bnd"
    assert check(body) == (1, ["extenders[1].bindVerb: error: 'bnd' is not allowed: bind"])


def test_each_mistake_of_a_configuration_is_a_problem_of_its_own(check: Check) -> None:
    plugins = [{"name": "drf"}, {"name": "gang"}, {"name": "proportion"}]
    code, problems = check({"actions": "allocate", "tiers": [{"plugins": plugins}]})
    assert code == 1
    assert [each.split(" (")[0] for each in problems] == [
        "tiers[0].plugins[0].name: error: no plugin 'drf'",
        "tiers[0].plugins[2].name: error: no plugin 'proportion'",
    ]
    section = {f"key{number}": 1 for number in range(12)} | {"concurrency": 0}
    _, problems = check({"muster": section})
    assert len(problems) == 13
    assert "muster.concurrency: error: 0 is not allowed: at least 1" in problems
