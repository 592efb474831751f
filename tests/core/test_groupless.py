"""A PodGroup that is deleted while its gang's Bindings are on their way."""

from __future__ import annotations

import pytest

from extender.core.api import VOLCANO_GROUPS
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine


@pytest.mark.parametrize("how", ["409", "403", "422", "404", "500", "unsent"])
def test_a_binding_that_fails_after_its_group_went_keeps_no_place(how: str) -> None:
    """It was released again, to a gang of nobody, which 1 made whole: for ever (I3)."""
    m = Machine()
    do.nodes(m, 3)
    m.faults.append(Fault("hold", verb="Bind"))
    do.gang(m, "train", 3)
    m.rest(2)
    m.api.delete((VOLCANO_GROUPS, "default", "train"))
    m.flush()
    m.faults[:] = [Fault(how, verb="Bind", name="train-1")]
    m.rest(60)
    assert sorted(m.bound("train")) == ["train-0", "train-2"]
    do.gang(m, "other", 1)
    m.rest(60)
    assert list(m.bound("other")) == ["other-0"]
    m.finish()
