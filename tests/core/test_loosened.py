"""Members that were let through beside a whole gang, which is whole no longer when they arrive."""

from __future__ import annotations

from extender.core import commands as c
from extender.core.api import GANG_PLANS, NODES
from tests.core import machine_stories as do
from tests.core.machine import Machine, Replica, place_of


def leader(m: Machine) -> Replica:
    assert m.leader is not None
    return m.leader


def written(m: Machine) -> list[str]:
    """What is sent from here on: the states of plans, and Bindings."""
    sent: list[str] = []
    take = leader(m)._take

    def kept(command: c.Command) -> None:
        if isinstance(command, c.Bind):
            sent.append("Binding")
        elif isinstance(command, c.Create | c.Patch) and command.resource == GANG_PLANS:
            sent.append(command.body["spec"]["state"])
        take(command)

    leader(m)._take = kept  # type: ignore[method-assign]
    return sent


def with_more(m: Machine) -> None:
    """Two members run, and two more have been let through but are not at /bind yet."""
    do.nodes(m, 4)
    do.gang(m, "g", 2)
    m.flush()
    assert set(m.bound()) == {"g-0", "g-1"}
    m.scheduler.name = "nobody"
    do.pod(m, "g-2", "g")
    do.pod(m, "g-3", "g")
    m.flush()
    assert all(do.of(m, "g").members[f"g-{i}"].node for i in (2, 3))


def lose(m: Machine, *names: str) -> None:
    for raw in m.api.pods():
        if raw["metadata"]["name"] in names:
            m.api.remove(place_of(raw))


def test_what_makes_a_gang_whole_again_is_bound_by_a_plan_that_is_written() -> None:
    """Chaos seed 643."""
    m = Machine()
    with_more(m)
    sent = written(m)
    lose(m, "g-0", "g-1")
    m.scheduler.name = "muster"
    m.rest(30)
    assert set(m.bound()) == {"g-2", "g-3"}
    assert sent == ["Planned", "Binding", "Binding", "Done"]
    assert {"g-2", "g-3"} <= set(do.plan_of(m, "g")["spec"]["members"])
    m.finish()


def test_what_does_not_make_it_whole_again_gives_its_place_back() -> None:
    m = Machine()
    with_more(m)
    lose(m, "g-0", "g-1", "g-2")
    m.scheduler.name = "muster"
    m.flush()
    assert not do.of(m, "g").plans()
    assert do.reason(m, "g") == "NotEnoughPods"
    assert not m.bound()
    m.finish()


def test_half_of_what_a_gang_lost_does_not_keep_a_place_from_others() -> None:
    m = Machine()
    do.nodes(m, 4)
    do.gang(m, "g", 4)
    m.flush()
    assert len(m.bound()) == 4
    nodes = m.bound()
    m.scheduler.name = "nobody"
    lose(m, "g-2", "g-3")
    for name in ("g-2", "g-3"):
        do.pod(m, name, "g")
    m.flush()
    m.api.remove((NODES, "", do.of(m, "g").members["g-3"].node))
    m.scheduler.name = "muster"
    do.gang(m, "h", 1)
    m.rest()
    assert set(m.bound()) == {"g-0", "g-1", "h-0"}
    assert nodes["g-0"] == m.bound()["g-0"]
    m.finish()
