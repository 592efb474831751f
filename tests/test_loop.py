"""The loop's clock."""

from __future__ import annotations

from extender.loop import steady


def test_setting_the_machine_s_clock_does_not_move_the_loop_s() -> None:
    wall, counter = [1_800_000_000.0], [50.0]
    clock = steady(lambda: wall[0], lambda: counter[0])
    wall[0] -= 3600
    counter[0] += 2.5
    assert clock() == 1_800_000_002.5
