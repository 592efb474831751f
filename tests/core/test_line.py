"""kube-scheduler's line: who is late, and who only waits for his turn."""

from __future__ import annotations

import pytest

from extender.core.line import Line

PATIENCE = 3.0


@pytest.mark.parametrize(
    ("came", "priority", "released_at", "now", "waits"),
    [
        pytest.param([], 0, 0.0, 1.0, False, id="it has come for nobody"),
        pytest.param(
            [(0, 0.0, 9.0)], 0, 0.0, 10.0, True, id="it comes for those let through with it"
        ),
        pytest.param([(0, 0.0, 6.0)], 0, 0.0, 10.0, False, id="it has been quiet for too long"),
        pytest.param([(0, 5.0, 9.0)], 0, 0.0, 10.0, False, id="it came for one behind"),
        pytest.param(
            [(0, 3.0, 9.0)], 0, 0.0, 10.0, True, id="one behind may have overtaken a back-off"
        ),
        pytest.param([(7, 5.0, 9.0)], 0, 0.0, 10.0, True, id="a higher priority is served first"),
        pytest.param([(-7, 5.0, 9.0)], 0, 0.0, 10.0, False, id="a lower priority is not"),
        pytest.param(
            [(0, 5.0, 8.0), (0, 1.0, 9.0)], 0, 0.0, 10.0, False, id="what was reached stays reached"
        ),
    ],
)
def test_who_still_stands_in_line(came, priority, released_at, now, waits):
    line = Line()
    for each in came:
        line.came(*each)
    assert line.holds(priority, released_at, now, PATIENCE) is waits
