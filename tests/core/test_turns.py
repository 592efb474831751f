"""One tenant's hopeless gangs keep nobody waiting: planning is bounded a step, and namespaces have turns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.core import commands as c
from extender.core import events as e
from extender.core import finding, planner, turns
from extender.core.api import GANG_PLANS, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.gang import Gang
from extender.core.identity import GroupKey
from extender.core.podgroups import VolcanoGroup
from extender.core.shape import SLICE_SIZE, SLICE_TOPOLOGY
from extender.core.state import Rules
from extender.settings import Settings
from tests.builders import HOST, node, pod

GROUP = "scheduling.k8s.io/group-name"


class Crowd:
    """A leading core on one node of eight GPUs, and gangs made in the order of their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = Coordinator(Rules(), Settings().session(), {})
        self.now = 1000.0
        self.searches = 0
        self._made = 0
        plan = planner.plan

        def counted(*args: Any, **options: Any) -> Any:
            self.searches += 1
            return plan(*args, **options)

        monkeypatch.setattr(finding, "plan", counted)
        for event in (e.NodeSeen(node("n", gpus=8)), e.Synced(), e.LeaderGained(epoch=1)):
            self.core.apply(event, self.now)

    def gang(self, namespace: str, name: str, *, gpus: int, size: int = 1, cpu: str = "1") -> None:
        self._gang(namespace, name, [(gpus, cpu)] * size, {})

    def parts(self, namespace: str, name: str, members: list[tuple[int, str]]) -> None:
        """A gang whose members, of so many GPUs and so much cpu, are a part each."""
        self._gang(namespace, name, members, {SLICE_TOPOLOGY: HOST, SLICE_SIZE: "1"})

    def _gang(
        self, namespace: str, name: str, members: list[tuple[int, str]], marks: dict[str, str]
    ) -> None:
        self._made += 1
        stamp = (
            f"2026-01-01T{self._made // 3600:02}:{self._made // 60 % 60:02}:{self._made % 60:02}Z"
        )
        meta = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
        body = {
            "metadata": meta | {"resourceVersion": "1", "creationTimestamp": stamp},
            "spec": {"minMember": len(members)},
        }
        group = msgspec.convert(body, VolcanoGroup)
        self.core.apply(e.GroupSeen(VOLCANO_GROUPS, group), self.now)
        for number, (gpus, cpu) in enumerate(members):
            member = pod(
                f"{name}-{number}",
                namespace=namespace,
                gpus=gpus,
                cpu=cpu,
                annotations={GROUP: name, **marks},
            )
            self.core.apply(e.PodSeen(member), self.now)

    def hopeless(self, namespace: str, count: int) -> None:
        """Gangs for which no node is large enough, each asking for something else."""
        for number in range(count):
            self.gang(namespace, f"bad-{number}", gpus=9, cpu=f"{number + 1}m")

    def step(self) -> list[str]:
        """One step; the names of the plans that it writes."""
        self.now += 0.01
        commands = self.core.step(self.now)
        made = (x for x in commands if isinstance(x, c.Create) and x.resource == GANG_PLANS)
        return [str(x.body["spec"]["groupRef"]["name"]) for x in made]

    def grow(self) -> None:
        """Capacity grows: whatever was refused is tried again."""
        self.core.state.cluster.capacity_generation += 1


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(monkeypatch)


def test_a_step_searches_for_so_many_and_the_next_goes_on(crowd: Crowd) -> None:
    crowd.hopeless("a", 200)
    crowd.gang("a", "good", gpus=1)
    steps: list[list[str]] = []
    while not steps or steps[-1] == []:
        before = crowd.searches
        steps.append(crowd.step())
        assert crowd.searches - before <= turns.STEP // turns.SEARCH + turns.LATE
    assert steps[-1] == ["good"]
    assert len(steps) == 4
    assert crowd.searches == 201


def test_each_part_of_a_gang_is_a_search(crowd: Crowd) -> None:
    """Gangs of twenty parts that are unlike each other, of which the last fits nowhere."""
    for number in range(20):
        parts = [(9 if at == 19 else 0, f"{20 * number + at + 1}m") for at in range(20)]
        crowd.parts("a", f"bad-{number}", parts)
    crowd.gang("a", "good", gpus=1)
    steps: list[list[str]] = []
    while not steps or steps[-1] == []:
        before = crowd.searches
        steps.append(crowd.step())
        # One more gang than fits: 20 parts, in four orders at most.
        assert crowd.searches - before <= turns.STEP // turns.SEARCH + 100
    assert steps[-1] == ["good"]


def test_who_waits_asks_for_another_step_and_who_is_done_does_not(crowd: Crowd) -> None:
    crowd.hopeless("a", 100)
    wakes = [
        c.WakeAt(crowd.now + 0.01 * n) in crowd.core.step(crowd.now + 0.01 * n) for n in (1, 2)
    ]
    # Time alone would come back to them later; what is due now is what was left.
    assert crowd.searches == 100
    assert wakes[0]


def test_hundreds_of_hopeless_gangs_do_not_starve_another_namespace(crowd: Crowd) -> None:
    crowd.hopeless("a", 300)
    crowd.gang("b", "good", gpus=1)
    for number in range(turns.PATIENCE + 1):
        # Every step capacity grows, so that the first in order are always due again.
        crowd.grow()
        assert crowd.step() == (["good"] if number == turns.PATIENCE else [])


def test_nor_do_they_starve_a_gang_of_their_own(crowd: Crowd) -> None:
    crowd.hopeless("a", 150)
    crowd.gang("a", "good", gpus=1)
    for _ in range(200):
        crowd.grow()
        if crowd.step() == ["good"]:
            break
    else:
        pytest.fail("its turn never came")


def test_the_first_in_order_that_fits_is_placed_however_many_are_tried_before(crowd: Crowd) -> None:
    crowd.hopeless("a", 200)
    crowd.gang("a", "first", gpus=8)
    crowd.gang("b", "second", gpus=8)
    made = [name for _ in range(20) for name in crowd.step()]
    assert made == ["first"]


def test_alike_gangs_cost_one_search(crowd: Crowd) -> None:
    for number in range(500):
        crowd.gang("a", f"same-{number}", gpus=9)
    crowd.gang("b", "good", gpus=1)
    assert crowd.step() == ["good"]
    assert crowd.searches == 2


def test_a_giant_is_refused_whatever_room_there_is(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_MEMBERS", 3)
    crowd.gang("a", "giant", gpus=1, size=4)
    crowd.gang("b", "good", gpus=1, size=3)
    assert crowd.step() == ["good"]
    giant = crowd.core.state.gangs[GroupKey(VOLCANO_GROUPS, "a", "giant")]
    assert giant.refusal is not None
    assert giant.refusal.render() == "4 pods wait to be placed, at most 3 of one group can be"
    assert crowd.searches == 1


def late(namespace: str, name: str, passed_over: int) -> Gang:
    return Gang(GroupKey(VOLCANO_GROUPS, namespace, name), passed_over=passed_over)


def test_namespaces_take_turns_and_in_each_the_longest_passed_over_is_first() -> None:
    patience = turns.PATIENCE
    many = [late("a", f"a{n}", patience + n) for n in range(turns.LATE * 3)]
    few = [late("b", "b0", patience), late("c", "c0", patience), late("d", "d0", patience - 1)]
    chosen = {f"{key.name}" for key in turns.overdue([*many, *few])}
    longest = {f"a{turns.LATE * 3 - 1 - n}" for n in range(turns.LATE - 2)}
    assert chosen == longest | {"b0", "c0"}
    assert turns.overdue([late("d", "d0", patience - 1)]) == frozenset()
