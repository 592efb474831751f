"""A field that a section does not have: said with what the section has, in every section."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.errors import ConfigError
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
