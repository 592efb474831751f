"""What kube-scheduler says of a released member: when it is evidence, and what follows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from extender.core import commands as c
from extender.core import events as e
from extender.core import objects as o
from extender.core.api import GANG_PLANS, PODS, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.evidence import Evidence
from extender.core.gang import Gang, Stage
from extender.core.podgroups import VolcanoGroup, VolcanoGroupSpec
from extender.core.shape import shape_of
from extender.core.state import Rules
from extender.settings import Settings
from tests import builders

BEFORE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
AFTER = "0/2 nodes are available: 2 node(s) had volume node affinity conflict."
RULES = Rules(evidence_seconds_first=2.0, evidence_seconds=300.0)


class Small:
    """One gang of bare pods; writes succeed at once, the watch shows what the test says."""

    def __init__(self, members: int) -> None:
        self.coordinator = Coordinator(RULES, Settings().session(), {})
        self.state = self.coordinator.state
        self.now = 1_000.0
        self.version = 10
        self.pods: dict[str, o.Pod] = {}
        self.wakes: list[float] = []
        for event in (e.LeaderGained(1), e.Synced(), self.group(members)):
            self.tell(event)
        for index in range(members):
            annotations = {"scheduling.k8s.io/group-name": "train"}
            self.show(builders.pod(f"train-{index}", gpus=1, annotations=annotations))

    def group(self, members: int) -> e.GroupSeen:
        meta = o.Meta(name="train", namespace="default", uid="group")
        group = VolcanoGroup(metadata=meta, spec=VolcanoGroupSpec(min_member=members))
        return e.GroupSeen(VOLCANO_GROUPS, group)

    @property
    def gang(self) -> Gang:
        (gang,) = self.state.gangs.values()
        return gang

    def tell(self, event: e.Event) -> None:
        self.coordinator.apply(event, self.now)
        self.step()

    def step(self) -> None:
        while True:
            commands = self.coordinator.step(self.now)
            self.wakes = [x.at for x in commands if isinstance(x, c.WakeAt)]
            writes = [x for x in commands if isinstance(x, c.Create | c.Patch | c.Bind)]
            if not writes and not any(at <= self.now for at in self.wakes):
                return
            for write in writes:
                self.coordinator.apply(self.carry_out(write), self.now)

    def carry_out(self, write: c.Create | c.Patch | c.Bind) -> e.Done:
        self.version += 1
        body: o.Manifest = {"metadata": {"uid": "record", "resourceVersion": str(self.version)}}
        if isinstance(write, c.Patch) and write.resource == PODS:
            pod = self.pods[write.name]
            nominated = write.body["status"]["nominatedNodeName"]
            self.pods[write.name] = self.stamped(pod, nominated, pod.status.conditions)
            body = msgspec.to_builtins(self.pods[write.name])
        assert not isinstance(write, c.Create) or write.resource == GANG_PLANS
        return e.Done(write.id, 200, "", "", body)

    def stamped(self, pod: o.Pod, nominated: str, conditions: tuple[o.Condition, ...]) -> o.Pod:
        self.version += 1
        meta = msgspec.structs.replace(pod.metadata, resource_version=str(self.version))
        status = msgspec.structs.replace(
            pod.status, nominated_node_name=nominated, conditions=conditions
        )
        return msgspec.structs.replace(pod, metadata=meta, status=status)

    def show(self, pod: o.Pod) -> None:
        self.pods[pod.metadata.name] = pod
        self.tell(e.PodSeen(pod))

    def says(self, name: str, message: str, nominated: str = "") -> None:
        """kube-scheduler's word on a pod, as the watch shows it."""
        condition = o.Condition("PodScheduled", "False", "Unschedulable", message)
        self.show(self.stamped(self.pods[name], nominated, (condition,)))


@pytest.fixture
def small() -> Iterator[Small]:
    world = Small(2)
    yield world
    world.state.cluster.verify()
    assert world.state.cluster.over_committed() == []


def add_node(world: Small, name: str, gpus: int = 2) -> None:
    world.tell(e.NodeSeen(builders.node(name, gpus=gpus)))


def test_what_was_said_before_the_release_is_no_answer_to_it(small: Small) -> None:
    # Found by the demo: members that waited for GPUs in use were refused on the nodes they freed.
    for name in small.pods:
        small.says(name, BEFORE)
    add_node(small, "n1")
    assert small.gang.stage == Stage.RELEASED
    for pod in list(small.pods.values()):
        small.tell(e.PodSeen(pod))
    assert {slot.node for slot in small.gang.members.values()} == {"n1"}
    assert len(small.state.evidence) == 0


def test_an_event_from_before_the_release_that_comes_late_is_no_answer_either(
    small: Small,
) -> None:
    late = small.stamped(
        small.pods["train-0"], "", (o.Condition("PodScheduled", "False", "Unschedulable", AFTER),)
    )
    add_node(small, "n1")
    small.tell(e.PodSeen(late))
    assert len(small.state.evidence) == 0


@pytest.mark.parametrize("message", [BEFORE, AFTER])
def test_a_nomination_that_is_taken_back_is_an_answer_in_any_words(
    small: Small, message: str
) -> None:
    small.says("train-0", BEFORE)
    add_node(small, "n1")
    small.says("train-0", message)
    assert len(small.state.evidence) == 1


def test_an_attempt_that_cannot_be_completed_holds_nothing(small: Small) -> None:
    add_node(small, "n1")
    assert len(small.state.cluster.reserved_keys) == 2
    small.says("train-0", AFTER)
    assert small.gang.stage == Stage.WAITING
    assert len(small.state.cluster.reserved_keys) == 0
    assert AFTER in (small.gang.refusal.render() if small.gang.refusal else "")


def test_a_refused_member_goes_to_a_node_that_kube_scheduler_did_not_know(small: Small) -> None:
    add_node(small, "n1")
    add_node(small, "n2")
    small.says("train-0", AFTER.replace("2", "1"))
    nodes = {name: slot.node for name, slot in small.gang.members.items()}
    assert nodes == {"train-0": "n2", "train-1": "n1"}
    assert small.gang.stage == Stage.RELEASED


def test_a_member_refused_on_all_nodes_is_not_tried_on_each(small: Small) -> None:
    # Found by S6: a zone without volumes was tried node after node.
    add_node(small, "n1")
    add_node(small, "n2")
    small.says("train-0", AFTER)
    assert len(small.state.evidence) == 2
    assert small.gang.stage == Stage.WAITING
    assert len(small.state.cluster.reserved_keys) == 0


@pytest.mark.parametrize(("offered", "left"), [(("n3",), {"n3"}), (("n2", "n3"), {"n2", "n3"})])
def test_one_look_at_the_list_teaches_every_node_that_is_not_on_it(
    small: Small, offered: tuple[str, ...], left: set[str]
) -> None:
    add_node(small, "n1")
    for name in ("n2", "n3"):
        add_node(small, name)
    slot = small.gang.members["train-0"]
    assert slot.node == "n1"
    small.tell(e.FilterAsked(slot.uid, full=True, planned_offered=False, offered=offered))
    assert slot.node in left
    assert len(small.state.evidence) == 3 - len(offered)


def test_the_end_of_evidence_wakes_the_gang_that_waits_for_it(small: Small) -> None:
    add_node(small, "n1")
    small.says("train-0", AFTER)
    ends = small.state.evidence.next_end()
    assert ends == small.now + 2.0
    assert ends in small.wakes
    small.now = max(ends, small.gang.not_before)
    small.tell(e.Tick())
    assert small.gang.stage == Stage.RELEASED


def test_what_is_refused_again_and_again_is_believed_longer_up_to_a_limit() -> None:
    shape, evidence, now, lasted = shape_of(builders.pod("p")), Evidence(2.0, 300.0), 0.0, []
    for _ in range(6):
        evidence.add(shape, "n1", AFTER, now)
        end = evidence.next_end()
        assert end is not None
        lasted.append(end - now)
        assert not evidence.ended(end - 0.5)
        assert evidence.ended(end)
        assert not evidence.ended(end)
        now = end
    assert lasted == [2, 8, 32, 128, 300, 300]
    evidence.ended(now + 300.0)
    evidence.add(shape, "n1", AFTER, now + 300.0)
    assert evidence.next_end() == now + 302.0


def test_a_change_of_the_node_ends_evidence_at_once() -> None:
    evidence = Evidence(2.0, 300.0)
    evidence.add(shape_of(builders.pod("p")), "n1", AFTER, 0.0)
    evidence.forget("n2")
    assert not evidence.ended(0.0)
    evidence.forget("n1")
    assert evidence.ended(0.0)
    assert len(evidence) == 0
