"""A plan that a new leader adopts half made: replicas that exist tell what the others ask for."""

from __future__ import annotations

from extender.core import events as e
from extender.core.api import PODS, PYTORCH_JOBS, VOLCANO_GROUPS
from extender.core.coordinator import Coordinator
from extender.core.gang import Gang, Slot
from extender.core.identity import GroupKey
from extender.core.jobsync import SMALL_JOB
from extender.core.record import PLANNED, PlannedMember, PlanRecord, encode
from extender.core.shape import PodShape
from extender.settings import Settings
from tests.builders import GPU, node, pod
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine


def test_a_replica_that_is_bound_does_not_keep_those_of_its_role_to_its_own_node() -> None:
    coordinator = Coordinator(RULES, Settings().session(), {})
    s = coordinator.state
    key = GroupKey(VOLCANO_GROUPS, "default", "j")
    for name in ("n0", "n1"):
        coordinator.apply(e.NodeSeen(node(name, gpus=1)), 1.0)
    marks = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": "worker"}
    bound = pod("j-worker-0", node="n0", gpus=1, annotations=marks)
    coordinator.apply(e.PodSeen(bound), 1.0)
    gang = s.gangs[key]
    gang.uid, gang.job, gang.min_member = "group", (PYTORCH_JOBS, "default", "j"), 2
    members = (
        PlannedMember("j-worker-0", bound.metadata.uid, "worker", "n0"),
        PlannedMember("j-worker-1", "", "worker", "n1"),
    )
    raw = encode(PlanRecord(key, "group", 1, 1, PLANNED, 2, members, resource_version="7"))
    coordinator.apply(e.PlanSeen(raw), 1.0)
    coordinator.apply(e.LeaderGained(2), 1.0)
    assert {name: slot.node for name, slot in gang.members.items()} == {
        "j-worker-0": "n0",
        "j-worker-1": "n1",
    }
    assert s.cluster.reservation("default/j-worker-1") == s.cluster.row_of("n1")
    s.cluster.verify()


def test_a_replica_that_a_plan_names_waits_until_its_job_has_been_looked_at() -> None:
    """A large job rests between two looks; its leader lost the Lease and had it again meanwhile."""
    m = Machine()
    size = SMALL_JOB + 2
    do.nodes(m, 1, gpus=size)
    last = f"j-worker-{size - 2}"
    m.faults.append(Fault("hold", verb="Create", kind="Pod", name=last))
    do.job(m, "j", size)
    m.flush()
    m.lose()
    m.gain(m.replicas[0])
    assert m.leader is not None
    assert do.of(m, "j").members[last].node == "n0"
    assert m.leader.state.jobs[PYTORCH_JOBS, "default", "j"].rest_until > m.now
    m.faults.clear()
    m.flush()  # at one instant: it ends
    assert m.api.get(PODS, last) is None
    m.rest()
    assert len(m.bound()) == size
    m.finish()


def test_a_replica_that_does_not_exist_has_not_the_label_of_the_first() -> None:
    """Worker 0 leads where there is no Master. Its shape is not that of the others."""
    m = Machine(replicas=2)
    do.nodes(m, 3)
    m.faults.append(Fault("hold", verb="Create", kind="Pod", name="j-worker-2"))
    box = {"name": "pytorch", "image": "train", "resources": {"requests": {GPU: "1"}}}
    role = {"replicas": 3, "template": {"spec": {"containers": [box]}}}
    meta = {"name": "j", "namespace": "default"}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta}
    m.api.put(PYTORCH_JOBS, body | {"spec": {"pytorchReplicaSpecs": {"Worker": role}}})
    m.flush()
    m.lose()
    m.faults.clear()
    state, given = m.replicas[1].state, dict[str, list[PodShape | None]]()
    assign = state.assign

    def noted(gang: Gang, slot: Slot, node: str) -> None:
        given.setdefault(slot.name, []).append(slot.shape)
        assign(gang, slot, node)

    state.assign = noted  # type: ignore[method-assign]
    m.gain(m.replicas[1])
    m.rest(60)
    assert sorted(m.bound()) == ["j-worker-0", "j-worker-1", "j-worker-2"]
    assert given["j-worker-2"] == given["j-worker-1"] != given["j-worker-0"]
    m.finish()
