"""Parts of gangs that have to be whole: what counting them costs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.core.gang import Member, Slot
from extender.core.objects import LabelSelector
from extender.core.selectors import Selector, canonical, matches
from extender.core.shape import shape_of
from extender.core.subgroups import Minimum, short
from tests.builders import pod


def test_each_set_of_labels_is_looked_at_once_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [shape_of(pod("w", labels={"part": part})) for part in "ab"]
    members = [Slot(f"w-{at}", "", Member.HELD, shape=shapes[at % 2]) for at in range(600)]
    selector = canonical(LabelSelector(), "labelSelector")
    policies = [Minimum(f"s{at}", 300, 2, selector, ("part",)) for at in range(100)]
    looks: list[Mapping[str, str]] = []

    def looked(selector: Selector, labels: Mapping[str, str]) -> bool:
        looks.append(labels)
        return matches(selector, labels)

    monkeypatch.setattr("extender.core.subgroups.matches", looked)
    assert short(policies, members) is None
    assert len(looks) <= 200
    assert short(policies, members[1:]) == (policies[0], 1)
