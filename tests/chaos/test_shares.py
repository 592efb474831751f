"""Whether there is any way to give parts of GPUs."""

from __future__ import annotations

import itertools
import random

import pytest

from extender.chaos import shares, workloads
from extender.chaos.shares import Share


def by_trying(wanted, devices):
    """Every choice of devices for each."""
    choices = [list(itertools.combinations(range(devices), count)) for _, count in wanted]
    for way in itertools.product(*choices):
        given = [0] * devices
        for (milli, _), chosen in zip(wanted, way, strict=True):
            for at in chosen:
                given[at] += milli
        if max(given, default=0) <= shares.WHOLE:
            return True
    return False


@pytest.mark.parametrize(
    ("wanted", "devices", "fits"),
    [
        ([], 0, True),
        ([(250, 1)], 0, False),
        ([(500, 1)] * 4, 2, True),
        ([(600, 1)] * 3, 2, False),  # 1800 of 2000 in all
        ([(600, 1), (600, 1), (300, 1), (300, 1)], 2, True),
        ([(250, 2)], 1, False),  # of two different devices
        ([(1000, 1), (250, 1)], 1, False),
    ],
)
def test_what_fits(wanted, devices, fits):
    assert shares.fit(wanted, devices) is fits


def test_every_way_counts():
    rng = random.Random(7)
    answers = set()
    for _ in range(300):
        devices = rng.randint(1, 3)
        wanted: list[Share] = [
            (rng.choice(workloads.SHARES), rng.randint(1, 2)) for _ in range(rng.randint(0, 5))
        ]
        answers.add(fits := by_trying(wanted, devices))
        assert shares.fit(wanted, devices) is fits, (wanted, devices)
    assert answers == {True, False}
