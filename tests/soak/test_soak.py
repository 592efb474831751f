"""A short slice of the soak; ``python -m tests.soak --kills 200`` is the nightly one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.run import judge, soak

#: About 12 s each on two busy cores.
KILLS = 8


@pytest.mark.controlplane
@pytest.mark.timeout(400)
async def test_nothing_is_lost_in_a_few_kills(tmp_path: Path) -> None:
    report = await soak(KILLS, seed=4, folder=tmp_path)
    assert report["violations"] == []
    assert report["kills"] == KILLS
    # It was a soak: kills of several kinds, and gangs that came whole among them.
    assert len(report["by_kind"]) > 2
    assert report["whole"] > KILLS
    assert report["bound"] > 4 * KILLS
    with (tmp_path / "history.jsonl").open() as history:
        assert judge(history) == []
