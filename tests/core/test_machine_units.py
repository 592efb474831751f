"""Steps of the gang machine that no story reaches in their exact order."""

from __future__ import annotations

from extender.core import commands as c
from extender.core import events as e
from extender.core.api import PODS, PYTORCH_JOBS
from extender.core.reasons import Code
from tests.core import machine_stories as do
from tests.core.machine import Fault, Machine
from tests.core.machine_api import seen


def test_confirming_a_member_wakes_no_gang_that_waits() -> None:
    """A Binding turns a reservation into usage: no capacity is gained, nobody is planned anew."""
    m = Machine()
    do.nodes(m, 2, gpus=2)
    do.gang(m, "waits", 5)
    m.faults.append(Fault("hold", verb="Bind"))
    do.gang(m, "g", 4)
    do.pod(m, "plain", gpus=0)
    m.flush()
    assert m.leader is not None
    cluster = m.leader.state.cluster
    before, refused = cluster.capacity_generation, do.of(m, "waits").refused_at
    assert len(m.leader.pending()) == 5
    m.faults.clear()
    m.flush()
    assert len(m.bound("g")) == 4
    assert len(m.bound("plain")) == 1
    assert cluster.capacity_generation == before
    assert do.of(m, "waits").refused_at == refused == before


def test_a_pod_bound_elsewhere_than_reserved_frees_its_reservation() -> None:
    m = Machine()
    do.nodes(m, 2, gpus=2)
    m.faults.append(Fault("hold", verb="Bind"))
    do.gang(m, "g", 2)
    m.flush()
    assert m.leader is not None
    cluster = m.leader.state.cluster
    before = cluster.capacity_generation
    planned = do.of(m, "g").members["g-0"].node
    other = "n1" if planned == "n0" else "n0"
    m.api.change(
        next(place for place in m.api.objects if place[2] == "g-0"), spec={"nodeName": other}
    )
    m.flush()
    assert cluster.capacity_generation > before
    m.faults.clear()
    m.rest()
    m.finish()


def test_a_job_edited_before_its_pods_are_made_is_refused_not_raised() -> None:
    """JobSeen and the plan's answer in one turn: the pods are asked for with the edited job."""
    m = Machine()
    do.nodes(m, 1, gpus=2)
    m.faults.append(Fault("hold", verb="Create", kind="GangPlan"))
    do.job(m, "j", 2)
    m.flush()
    replica = m.leader
    assert replica is not None
    box = {"name": "somebody", "image": "train"}
    spec = {"template": {"spec": {"containers": [box]}}}
    place = (PYTORCH_JOBS, "default", "j")
    m.api.change(place, spec={"pytorchReplicaSpecs": {"Master": spec, "Worker": spec}})
    (plan,) = (key for key, chain in replica.chains.items() if isinstance(chain[0], c.Create))
    replica.carry_out(plan)
    edited = seen(PYTORCH_JOBS, m.api.objects[place])
    answer = replica.replies.pop()
    # As a large job does between two passes.
    replica.state.jobs[PYTORCH_JOBS, "default", "j"].rest_until = m.now + 1.0
    replica.turn(edited, answer)
    assert replica.state.counters["invalid_replicas"] == 2
    assert not list(replica.state.cluster.reserved_keys)
    m.rest()
    m.finish()
    assert m.bound("j") == {}


def test_an_open_bind_of_a_plain_pod_is_answered_when_leadership_ends() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.faults.append(Fault("hold", verb="Bind"))
    do.pod(m, "p")
    m.flush()
    assert len(m.scheduler.open) == 1
    m.lose()
    assert m.scheduler.open == {}


def test_an_abandoned_plain_bind_is_answered_no_more() -> None:
    m = Machine()
    do.nodes(m, 1)
    m.faults.append(Fault("hold", verb="Bind"))
    do.pod(m, "p")
    m.flush()
    m.scheduler.abandon(next(iter(m.scheduler.open)))
    m.flush()
    m.faults.clear()
    m.rest()  # the checks object to an answer
    assert len(m.bound("p")) == 1
    m.finish()


def test_a_plain_pod_takes_no_place_that_was_reserved_since_it_was_filtered() -> None:
    m = Machine()
    do.nodes(m, 1)
    do.pod(m, "p")
    replica = m.leader
    assert replica is not None
    for place in list(replica.backlog):
        replica.deliver(place, 10)
    m.scheduler.cycle((PODS, "default", "p"))  # passes, and /bind is on its way
    do.gang(m, "g", 1)
    for place in list(replica.backlog):
        replica.deliver(place, 10)
    assert do.of(m, "g").members["g-0"].node == "n0"
    m.flush()
    assert replica.state.counters["plain_binds_refused"] == 1
    m.rest()
    m.finish()
    assert m.bound() == {"g-0": "n0"}


def test_a_bind_for_a_pod_that_nobody_has_shown_is_answered_in_the_end() -> None:
    m = Machine()
    replica = m.leader
    assert replica is not None
    replica.turn(e.BindAsked(1, "default", "ghost", "uid", "n0"))
    assert replica.checks.open
    m.rest()
    assert not replica.checks.open


def test_refusals_of_a_gang_do_not_change_while_its_situation_does_not() -> None:
    m = Machine()
    do.nodes(m, 2)
    do.gang(m, "g", 3)
    m.rest()
    said = do.of(m, "g").refusal
    notices = len(m.replicas[0].notices)
    for _ in range(5):
        m.advance(60)
        m.flush()
    assert do.of(m, "g").refusal == said
    assert said is not None
    assert said.code == Code.NEVER_FITS
    assert len(m.replicas[0].notices) == notices
