"""A cluster in which nothing happens costs nothing: the core is woken by deadlines alone."""

from __future__ import annotations

from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_gangs_that_wait_do_not_keep_each_other_awake():
    m = Machine()
    do.node(m, "n0", 1)
    turns = m.replicas[0].checks
    for number in range(4):
        do.gang(m, f"g{number}", 2)
        m.flush()
        m.advance(0.02)
    m.rest(20.0)
    before = turns.turns
    m.rest(100.0)
    # Their own deadlines are due no more often than once in a second or two.
    assert turns.turns - before < 100
