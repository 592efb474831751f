"""A field that a section does not have is said with what the section has; and what one value asks of another."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.errors import ConfigError
from extender.runtime import rules_of
from extender.settings import parse

NOWHERE = "nonsense"


@pytest.mark.parametrize(
    ("place", "one_of_its_fields"),
    [
        ((), "tiers"),
        (("muster",), "schedulerNames"),
        (("muster", "listen"), "adminPort"),
        (("muster", "tls"), "clientCAFile"),
        (("muster", "leaderElection"), "leaseDurationSeconds"),
        (("muster", "topology"), "levels"),
        (("muster", "topology", "levels", 0), "oversubscription"),
        (("muster", "nodeLoss"), "avoidSeconds"),
        (("muster", "termination"), "noticeSeconds"),
        (("muster", "agent"), "sysfs"),
        (("tiers", 0), "plugins"),
    ],
)
def test_an_unknown_field_is_answered_with_those_there_are(
    place: tuple[str | int, ...], one_of_its_fields: str
) -> None:
    document: Any = {NOWHERE: 1}
    for part in reversed(place):
        document = [document] if isinstance(part, int) else {part: document}
    with pytest.raises(ConfigError, match="no such field") as refused:
        parse(document, "muster.yaml")
    said = next(each for each in refused.value.each if NOWHERE in each)
    assert one_of_its_fields in said.split("allowed: ")[1].split(", ")


def test_the_shortest_time_at_bind_leaves_a_barrier_its_patience() -> None:
    rules = rules_of(parse({"muster": {"bindTimeoutSeconds": 12}}, "muster.yaml"))
    assert rules.bind_timeout == rules.pod_max_backoff + rules.arrival_slack
