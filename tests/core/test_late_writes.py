"""Writes that are late, and take effect after those that were given later."""

from __future__ import annotations

from extender.core import commands as c
from tests.core import machine_stories as do
from tests.core.machine import Machine


def test_a_status_that_is_late_does_not_put_back_what_a_later_one_has_changed() -> None:
    """I6: a request that its sender has given up may still arrive after its successor."""
    m = Machine()
    do.nodes(m, 1)
    patches: list[c.Patch] = []
    take = m.replicas[0]._take

    def kept(command: c.Command) -> None:
        if isinstance(command, c.Patch) and command.resource.kind == "PyTorchJob":
            patches.append(command)
        take(command)

    m.replicas[0]._take = kept  # type: ignore[method-assign]
    do.job(m, "j", 1)
    m.flush()
    first = patches[0]
    assert len(patches) > 1
    code, _ = m.api.carry_out(first)
    assert code == 409
