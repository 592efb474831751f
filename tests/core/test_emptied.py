"""A group whose pods are gone before it was reported for the first time."""

from __future__ import annotations

from extender.core.api import PODS, VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_a_gang_that_is_emptied_before_its_first_report_says_so() -> None:
    m = Machine()
    (replica,) = m.replicas
    do.gang(m, "g", 2)
    for place in list(replica.backlog):
        replica.deliver(place, len(replica.backlog[place]))
    for name in ("g-0", "g-1"):
        m.api.remove((PODS, "default", name))
    m.rest()
    group = m.api.get(VOLCANO_GROUPS, "g")
    assert group is not None
    assert [each["message"] for each in group["status"]["conditions"]] == [
        "0 of at least 2 pods exist"
    ]
