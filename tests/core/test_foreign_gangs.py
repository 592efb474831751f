"""A gang whose pods all name another scheduler (schedulerName was forgotten): who asks is told so."""

from __future__ import annotations

import pytest

from extender.core.api import VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Machine


@pytest.mark.parametrize("grouped", [True, False])
def test_who_asks_is_told_of_the_scheduler_and_nothing_is_written(grouped: bool) -> None:
    m = Machine()
    do.nodes(m, 2)
    if grouped:
        do.group(m, "train", 2)
        m.rest(2)
    for name in ("train-0", "train-1"):
        do.pod(m, name, "train", schedulerName="default-scheduler")
    m.rest(20)
    assert m.leader is not None
    for name in ("train", "train-1"):
        found = m.leader.view.gang("default", name)
        assert found is not None
        (reason,) = found["reasons"]
        assert reason["code"] == "MemberOfAnotherScheduler"
        assert found["message"] == reason["message"]
        assert "pod train-0 names scheduler default-scheduler" in found["message"]
    record = m.api.get(VOLCANO_GROUPS, "train")
    assert (record is not None) == grouped
    assert record is None or not record.get("status")
    m.finish()
