"""What becomes of a gang of which one member dies, and of the nodes on which gangs fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.core import commands as c
from extender.core import events as e
from extender.core import inspecting
from extender.core.api import NODES, PODS, PYTORCH_JOBS
from extender.core.health import NOT_READY, OUT_OF_SERVICE, UNREACHABLE, Avoid, Notices
from extender.core.times import rfc3339
from extender.jobs.restarts import RECORD
from tests.core import machine_stories as do
from tests.core.machine import RULES, Fault, Machine, Replica

SPOT = "aws-node-termination-handler/spot-itn"
RULES = msgspec.structs.replace(
    RULES,
    notices=Notices(
        frozenset({SPOT}), frozenset({"Maintenance"}), frozenset({"example.com/going"}), 7
    ),
    avoid=Avoid(gangs=2, window=600.0, seconds=300.0),
    force_delete_after=60.0,
    node_loss=20,
)


def leader(m: Machine) -> Replica:
    assert m.leader is not None
    return m.leader


def whole(workers: int, size: int = 0, **spec: Any) -> Machine:
    """A job j of so many members, whole on nodes of one GPU each."""
    m = Machine(RULES)
    do.nodes(m, workers)
    do.job(m, "j", size or workers - 1, **spec)
    m.rest(20)
    assert len(m.bound()) == (size or workers - 1)
    return m


def record(m: Machine, name: str = "j") -> dict[str, Any]:
    job = m.api.get(PYTORCH_JOBS, name)
    assert job is not None
    return dict(msgspec.json.decode(job["metadata"]["annotations"].get(RECORD, "{}")))


def uids(m: Machine) -> set[str]:
    return {pod["metadata"]["uid"] for pod in m.api.pods()}


def conditions(m: Machine) -> set[str]:
    """Those of the job j that hold."""
    job = m.api.get(PYTORCH_JOBS, "j")
    assert job is not None
    return {each["type"] for each in job["status"]["conditions"] if each["status"] == "True"}


def fail(m: Machine, pod: str, code: int = 137, at: float | None = None) -> None:
    end = {"exitCode": code, **({} if at is None else {"finishedAt": rfc3339(at)})}
    box = {"name": "pytorch", "state": {"terminated": end}}
    m.api.change((PODS, "default", pod), status={"phase": "Failed", "containerStatuses": [box]})


def taint(m: Machine, node: str, *keys: str) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    m.api.change((NODES, "", node), spec={"taints": taints})


def deletions(m: Machine) -> list[c.Delete]:
    """Deletions of pods from here on."""
    found: list[c.Delete] = []
    replica = leader(m)
    take = replica._take

    def taken(command: c.Command) -> None:
        if isinstance(command, c.Delete) and command.resource == PODS:
            found.append(command)
        take(command)

    replica._take = taken  # type: ignore[method-assign]
    return found


def test_all_are_stopped_and_placed_again_elsewhere() -> None:
    m = whole(5)
    before, bad = uids(m), m.bound()["j-worker-1"]
    fail(m, "j-worker-1")
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert not uids(m) & before
    assert bad not in m.bound().values()
    assert (record(m)["number"], record(m)["counted"]) == (1, 1)


def test_the_node_that_failed_is_used_where_there_is_no_other() -> None:
    m = whole(4, 4)
    fail(m, "j-worker-1")
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert record(m)["number"] == 1


def test_a_gang_that_starts_again_waits_whole_for_room() -> None:
    m = whole(4, 4)
    m.api.remove((NODES, "", m.bound()["j-worker-1"]))
    m.rest(60)
    assert m.bound() == {}
    do.node(m, "n9", 1)
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert record(m)["number"] == 1


@pytest.mark.parametrize(("later", "ends"), [(True, "Running"), (False, "Failed")])
def test_an_exit_for_good_is_judged_when_the_others_have_had_time_to_tell(
    later: bool, ends: str
) -> None:
    """Under ExitCode a peer that lost a member is the quicker one to be told."""
    m = whole(5)
    place = (PYTORCH_JOBS, "default", "j")
    roles = {role: {"restartPolicy": "ExitCode"} for role in ("Master", "Worker")}
    m.api.change(place, spec={"pytorchReplicaSpecs": roles})
    m.rest(5)
    killed_at = m.now
    m.advance(2)
    fail(m, "j-worker-0", 1, m.now)
    m.rest(2)
    assert conditions(m) >= {"Running"}
    assert record(m) == {}
    if later:
        fail(m, "j-worker-1", 137, killed_at)
    m.rest(90)
    assert conditions(m) & {"Running", "Failed"} == {ends}
    assert record(m).get("number", 0) == int(later)


def test_a_large_gang_is_stopped_and_made_again_without_a_rest() -> None:
    """Its passes rest in between, but none of what a restart takes waits for that."""
    m = whole(13)
    m.advance(5)
    before = uids(m)
    fail(m, "j-worker-1")
    m.flush()
    m.finish()
    assert len(m.bound()) == 12
    assert not uids(m) & before


def test_muster_dies_while_it_stops_a_gang() -> None:
    m = Machine(RULES, replicas=2)
    do.nodes(m, 5)
    do.job(m, "j", 4)
    m.rest(20)
    before = uids(m)
    fail(m, "j-worker-0")
    for place in list(leader(m).backlog):
        leader(m).deliver(place)
    for _ in range(3):
        for key in list(leader(m).chains):
            leader(m).carry_out(key)
    m.lose()
    m.gain(m.replicas[1])
    m.rest(60)
    m.finish()
    assert len(m.bound()) == 4
    assert not uids(m) & before
    assert record(m)["number"] == 1


def test_a_pod_on_a_dead_node_is_removed_after_its_grace() -> None:
    m = whole(5)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    taint(m, node, UNREACHABLE)
    m.rest(5)
    assert record(m) == {}
    shown = {each["name"]: each.get("silent") for each in inspecting.nodes(leader(m).state)}
    assert shown.pop(node) == "is not heard of"
    assert set(shown.values()) == {None}
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest(40)
    assert [*m.bound()] == ["j-worker-1"]
    m.rest(80)
    m.finish()
    assert len(m.bound()) == 4
    assert node not in m.bound().values()
    assert record(m)["number"] == 1


def test_a_node_that_was_deleted_is_remembered_while_pods_are_shown_there() -> None:
    m = whole(5)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    health = leader(m).coordinator.state.health
    m.faults.append(Fault("hold", verb="Delete", kind="Pod", name="j-worker-1"))
    m.api.remove((NODES, "", node))
    m.rest(39)
    assert (health.news.lost, record(m)) == ({}, {})
    m.rest(20)
    assert health.news.lost == {node: "does not exist any more"}
    m.faults.clear()
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert not health.news.lost
    assert not health.gone
    assert (record(m)["number"], record(m)["cause"]) == (1, "NodeLost")


@pytest.mark.parametrize("back_after", [0, 1, 39])
def test_a_node_that_is_deleted_by_mistake_and_made_again_stops_nobody(back_after: float) -> None:
    m = whole(5)
    before, node = uids(m), m.bound()["j-worker-1"]
    m.api.remove((NODES, "", node))
    m.flush()
    m.advance(back_after)
    do.node(m, node, 1)
    m.rest(100)
    m.finish()
    assert uids(m) == before
    assert record(m) == {}
    health = leader(m).coordinator.state.health
    assert (health.gone, health.news.silent, health.news.since) == ({}, {}, {})


@pytest.mark.parametrize("mark", [NOT_READY, UNREACHABLE, SPOT])
def test_a_node_that_was_not_well_is_believed_to_be_gone_at_once(mark: str) -> None:
    m = whole(5, restart="pod" if mark == SPOT else "")
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    taint(m, node, mark)
    m.flush()
    m.api.remove((NODES, "", node))
    m.rest(5)
    m.finish()
    assert len(m.bound()) == 4
    assert node not in m.bound().values()


def test_a_deletion_that_one_leader_has_seen_is_believed_in_time_by_the_next() -> None:
    m = Machine(RULES, replicas=2)
    do.nodes(m, 5)
    do.job(m, "j", 4)
    m.rest(20)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    m.api.remove((NODES, "", node))
    m.flush()
    m.advance(20)
    m.lose()
    m.gain(m.replicas[1])
    m.rest(60)
    m.finish()
    assert len(m.bound()) == 4
    assert (record(m)["number"], record(m)["cause"]) == (1, "NodeLost")


@pytest.mark.parametrize(("missed", "ends"), [(True, "Running"), (False, "Failed")])
def test_peers_that_exit_for_good_are_not_judged_before_a_dead_node_is_missed(
    missed: bool, ends: str
) -> None:
    m = whole(5)
    place = (PYTORCH_JOBS, "default", "j")
    roles = {role: {"restartPolicy": "ExitCode"} for role in ("Master", "Worker")}
    m.api.change(place, spec={"pytorchReplicaSpecs": roles})
    m.rest(5)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    m.advance(3)
    for peer in ("j-master-0", "j-worker-0", "j-worker-2"):
        fail(m, peer, 1, m.now)
    m.flush()
    m.advance(45)
    m.flush()
    assert conditions(m) >= {"Running"}
    if missed:
        taint(m, node, UNREACHABLE)
    m.rest(150)
    assert conditions(m) & {"Running", "Failed"} == {ends}
    assert record(m).get("cause", "") == ("NodeLost" if missed else "")
    m.finish()


def test_a_pod_that_a_kubelet_which_is_not_ready_does_not_end_is_removed() -> None:
    m = whole(5)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    taint(m, node, NOT_READY)
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest(80)
    m.finish()
    assert len(m.bound()) == 4
    assert node not in m.bound().values()


def test_a_node_out_of_service_is_not_waited_for() -> None:
    m = whole(5)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    taint(m, node, OUT_OF_SERVICE)
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert node not in m.bound().values()


def test_a_node_that_is_ready_is_not_out_of_service() -> None:
    """Its kubelet ends pods itself, in their grace, and they may run until then."""
    m = whole(5)
    node = m.bound()["j-worker-1"]
    place = (NODES, "", node)
    m.api.change(place, status={"conditions": [{"type": "Ready", "status": "True"}]})
    m.dead.add(node)
    taint(m, node, OUT_OF_SERVICE)
    m.rest(20)
    assert record(m) == {}
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest(100)
    assert [*m.bound()] == ["j-worker-1"]
    m.api.change(place, status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4
    assert node not in m.bound().values()


def test_where_pods_are_not_removed_by_force_the_gang_waits_for_the_node() -> None:
    m = Machine(msgspec.structs.replace(RULES, force_delete_after=None))
    do.nodes(m, 5)
    do.job(m, "j", 4)
    m.rest(20)
    node = m.bound()["j-worker-1"]
    m.dead.add(node)
    taint(m, node, UNREACHABLE)
    m.api.delete((PODS, "default", "j-worker-1"))
    m.rest(300)
    assert [*m.bound()] == ["j-worker-1"]
    m.dead.clear()
    m.rest(20)
    m.finish()
    assert len(m.bound()) == 4


def test_a_notice_moves_all_the_gang_within_its_time() -> None:
    m = whole(5)
    node, found = m.bound()["j-worker-1"], deletions(m)
    for pod in m.api.pods():
        place = (PODS, "default", pod["metadata"]["name"])
        m.api.change(place, spec={"terminationGracePeriodSeconds": 600})
    taint(m, node, SPOT)
    m.rest(20)
    m.finish()
    assert {(each.name, each.grace) for each in found} == {
        (name, 7) for name in ("j-master-0", "j-worker-0", "j-worker-1", "j-worker-2")
    }
    assert len(m.bound()) == 4
    assert node not in m.bound().values()
    assert (record(m)["number"], record(m).get("counted", 0)) == (1, 0)


@pytest.mark.parametrize(("after", "given"), [(0.0, 7), (3.0, 7), (4.0, 600), (300.0, 600)])
def test_a_pod_that_was_just_given_longer_than_its_node_will_be_there_is_hurried(
    after: float, given: int
) -> None:
    """Of a deletion that is older, what the notice leaves would be over: the API server would have the
    pod killed in 1 s, while it writes its checkpoint.
    """
    m = whole(5, restart="pod")
    place = (PODS, "default", "j-worker-1")
    m.api.change(place, spec={"terminationGracePeriodSeconds": 600})
    node, found = m.bound()["j-worker-1"], deletions(m)
    m.lingering = True
    m.api.delete(place)
    m.flush()
    m.advance(after)
    taint(m, node, SPOT)
    m.rest(20)
    assert [(each.name, each.grace) for each in found] == [("j-worker-1", 7)][: given == 7]
    pod = m.api.get(PODS, "j-worker-1")
    assert pod is not None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == given
    m.lingering = False
    m.rest(20)
    m.finish()
    assert node not in m.bound().values()
    assert len(m.bound()) == 4


def test_replicas_that_start_alone_leave_a_node_alone() -> None:
    m = whole(5, restart="pod")
    places, before, found = m.bound(), uids(m), deletions(m)
    taint(m, places["j-worker-1"], SPOT)
    m.rest(20)
    m.finish()
    assert [each.name for each in found] == ["j-worker-1"]
    assert len(uids(m) & before) == 3
    assert len(m.bound()) == 4
    assert places["j-worker-1"] not in m.bound().values()


def test_nothing_is_planned_on_a_node_that_only_says_that_it_goes() -> None:
    m = Machine(RULES)
    do.nodes(m, 3)
    m.api.change(
        (NODES, "", "n1"), status={"conditions": [{"type": "Maintenance", "status": "True"}]}
    )
    m.api.change((NODES, "", "n2"), metadata={"annotations": {"example.com/going": "10:00"}})
    do.job(m, "j", 2)
    m.rest(10)
    assert m.bound() == {}
    m.api.change((NODES, "", "n1"), status={"conditions": []})
    m.rest(20)
    m.finish()
    assert sorted(m.bound().values()) == ["n0", "n1"]


def test_two_gangs_that_have_to_move_do_not_share_what_is_free() -> None:
    m = Machine(RULES)
    do.nodes(m, 4)
    do.job(m, "a", 2)
    do.job(m, "b", 2)
    m.rest(20)
    do.node(m, "free-0", 1)
    do.node(m, "free-1", 1)
    for node in ("n0", "n1", "n2", "n3"):
        taint(m, node, SPOT)
    m.rest(60)
    assert sorted(m.bound().values()) == ["free-0", "free-1"]
    assert len({name[0] for name in m.bound()}) == 1


def test_a_node_on_which_two_gangs_failed_is_the_last_choice_of_all() -> None:
    m = Machine(RULES)
    do.nodes(m, 1)
    for name in ("a", "b"):
        do.job(m, name, 1, restart="gang")
        m.rest(10)
        fail(m, f"{name}-worker-0")
        m.rest(1)
        m.api.delete((PYTORCH_JOBS, "default", name))
        m.rest(10)
    state = leader(m).coordinator.state
    assert state.health.avoiding["n0"].gangs == 2
    (shown,) = inspecting.nodes(state)
    assert shown["avoided"]["gangsFailed"] == 2
    assert [n.message for n in leader(m).notices if n.resource == NODES and n.reason == "Avoided"]
    do.node(m, "n1", 1)
    do.job(m, "c", 1)
    m.rest(10)
    assert m.bound() == {"c-worker-0": "n1"}
    do.job(m, "d", 1)
    m.rest(10)
    assert m.bound()["d-worker-0"] == "n0"
    m.rest(300)
    assert state.health.avoiding == {}


def test_what_jobs_tell_of_failures_moves_their_own_gangs_alone() -> None:
    """Whoever may edit a job writes what he likes there."""
    m = Machine(RULES)
    do.nodes(m, 2)
    told = {"number": 1, "failures": [{"node": node, "at": m.now} for node in ("n0", "no-node")]}
    mark = {RECORD: msgspec.json.encode(told).decode()}
    for name in "abcd":
        do.job(m, name, 1, gpus=0)
        m.api.change((PYTORCH_JOBS, "default", name), metadata={"annotations": mark})
    m.rest(20)
    assert set(m.bound().values()) == {"n1"}
    state = leader(m).coordinator.state
    state.health.judge(m.now)
    assert state.health.avoiding == {}
    assert state.health._failures == {}
    m.finish()


def test_pods_leave_a_lost_node_soon_unless_they_say_when() -> None:
    m = Machine(RULES)
    do.nodes(m, 2)
    do.job(m, "j", 2)
    own = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    worker = {"template": {"spec": {"tolerations": [own]}}}
    m.api.change((PYTORCH_JOBS, "default", "j"), spec={"pytorchReplicaSpecs": {"Worker": worker}})
    m.rest(20)
    pods = {pod["metadata"]["name"]: pod["spec"]["tolerations"] for pod in m.api.pods()}
    assert {(t["key"], t["tolerationSeconds"]) for t in pods["j-master-0"]} == {
        ("node.kubernetes.io/not-ready", 20),
        (UNREACHABLE, 20),
    }
    assert [t for t in pods["j-worker-0"] if t["key"] == UNREACHABLE] == [own]


def test_masters_keep_off_spot_nodes_where_the_job_says_so() -> None:
    m = Machine(RULES)
    do.nodes(m, 1)
    do.node(m, "spot", 1)
    m.api.change((NODES, "", "spot"), metadata={"labels": {"karpenter.sh/capacity-type": "spot"}})
    do.job(m, "j", 2)
    place = (PYTORCH_JOBS, "default", "j")
    wish = {"scheduling.muster.dev/capacity": "Master=on-demand, worker=spot"}
    m.api.change(place, metadata={"annotations": wish})
    m.rest(20)
    m.finish()
    assert m.bound() == {"j-master-0": "n0", "j-worker-0": "spot"}


def test_where_a_zone_goes_every_pod_is_looked_at_once() -> None:
    m = whole(5)
    for at in range(10, 60):
        do.node(m, f"n{at}", 0)
    m.rest(5)
    (job,) = leader(m).state.jobs.values()
    looks = []

    class Counted(dict[str, Any]):
        def values(self) -> Any:
            looks.append(1)
            return super().values()

    job.pods = Counted(job.pods)
    leader(m).turn(*(e.NodeGone(f"n{at}") for at in range(10, 60)))
    assert len(looks) < 10


def test_a_standby_keeps_no_news_of_nodes() -> None:
    m = whole(2)
    replica = leader(m)
    replica.turn(e.LeaderLost())
    replica.turn(e.NodeGone("n0"))
    assert not replica.state.node_news
