"""Alerts, board and runbook: all that they name is there, and none of the three lacks what another has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.obs.metrics import Metrics
from tests.monitoring import promql

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "manifests" / "monitoring"
SERIES = promql.exported(Metrics())
WORDS = promql.quoted("\n".join(p.read_text() for p in (ROOT / "extender").rglob("*.py")))
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SEVERITIES = {"critical", "warning", "info"}


def _alerts() -> list[dict[str, Any]]:
    found = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


ALERTS = _alerts()
BOARD = json.loads((FOLDER / "board.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [(p["title"], t["expr"], t["legendFormat"]) for p in PANELS for t in p["targets"]]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each["alert"])
def test_an_alert_asks_for_what_the_service_has(alert):
    assert promql.problems(alert["expr"], SERIES, WORDS) == []
    assert alert["labels"]["severity"] in SEVERITIES
    told = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    assert told <= promql.labels_of(alert["expr"], SERIES)
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"


@pytest.mark.parametrize(("title", "query", "legend"), QUERIES)
def test_a_panel_asks_for_what_the_service_has(title, query, legend):
    assert promql.problems(query, SERIES, WORDS) == []
    assert set(re.findall(r"{{(\w+)}}", legend)) <= promql.labels_of(query, SERIES), title


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("muster_gone > 1", "no such metric"),
        ('muster_gangs{phrase="Partial"}', "no label phrase"),
        ('muster_gangs{phase="Partly"}', "nothing sets phase to Partly"),
        ('sum(rate(muster_lease_renewals_total{result=~"refused|mislaid"}[5m]))', "to mislaid"),
        ("sum by (node) (muster_gangs)", "no label node"),
        ("muster_lists_total > 3", "a counter is for rate"),
        ("rate(muster_evidence[5m])", "a gauge is not"),
    ],
)
def test_what_is_not_there_is_found(query, says):
    (problem,) = promql.problems(query, SERIES, WORDS)
    assert says in problem


def test_what_prometheus_would_not_take_is_found():
    with pytest.raises(ValueError, match="paren"):
        promql.read("sum(rate(muster_lists_total[5m])")


def test_every_alert_has_its_section_and_every_section_its_alert():
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert re.findall(r"(?m)^### (Muster\w+)$", RUNBOOK) == names, "in the same order"
    for name in names:
        text = re.search(rf"(?ms)^### {name}$(.*?)(?=^##|\Z)", RUNBOOK)
        assert text is not None
        assert "**Means.**" in text[1], name
        assert "**Do.**" in text[1], name


def test_metrics_and_commands_that_the_runbook_names_exist():
    named = set(re.findall(r"`(muster_\w+)", RUNBOOK))
    assert named
    assert sorted(named - SERIES.keys()) == []


def test_every_metric_is_on_the_board_or_in_an_alert_or_meant_for_looking_it_up():
    shown = {
        asked.name
        for text in [query for _, query, _ in QUERIES] + [alert["expr"] for alert in ALERTS]
        for asked in promql.read(text).selectors
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in SERIES}
    missing = families - {re.sub(r"_bucket$", "", name) for name in shown}
    assert missing == {"muster_nulls_stripped_total", "muster_lists_total"} | LOOKED_UP


#: Of the pages' access: a refusal is the answer of somebody who sees it.
LOOKED_UP = {"muster_page_access_total"} & SERIES.keys()
#: Of `muster agent`, another process, which tells the same in its log.
LOOKED_UP |= {"muster_agent_lacks_total", "muster_agent_writes_total"}


def test_panels_are_readable_and_do_not_overlap():
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    cells = set[tuple[int, int]]()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        new = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not new & cells, panel["title"]
        cells |= new
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_folder_applies_as_a_whole():
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    (board,) = kustomization["configMapGenerator"]
    named = {*kustomization["resources"], *board["files"], "kustomization.yaml"}
    assert named == {path.name for path in FOLDER.iterdir()}


def test_the_monitor_finds_every_replica_and_has_a_token_for_its_pages():
    account, token, binding, monitor = yaml.safe_load_all((FOLDER / "podmonitor.yaml").read_text())
    base = [
        each
        for name in ("deployment.yaml", "rbac.yaml")
        for each in yaml.safe_load_all((ROOT / "manifests/base" / name).read_text())
    ]
    pod = next(each for each in base if each["kind"] == "Deployment")["spec"]["template"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    # What the alerts call the job.
    assert pod["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "muster"

    name = account["metadata"]["name"]
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
    assert endpoint["authorization"]["credentials"]["name"] == token["metadata"]["name"]
    role = next(each for each in base if each["metadata"]["name"] == binding["roleRef"]["name"])
    assert role["kind"] == binding["roleRef"]["kind"] == "ClusterRole"
    assert endpoint["path"] in [url for rule in role["rules"] for url in rule["nonResourceURLs"]]
    assert [subject["name"] for subject in binding["subjects"]] == [name]
    secrets = [
        volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume
    ]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] in secrets
