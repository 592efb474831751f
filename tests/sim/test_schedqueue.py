from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.sim.schedqueue import EXTENDER, Place, Queue
from extender.sim.wakes import Wake

HELD = frozenset({EXTENDER})
FULL = frozenset({"NodeResourcesFit"})
ERROR: frozenset[str] = frozenset()


def waiting(uid, priority=0, gates=(), **meta):
    spec = {"priority": priority, "schedulingGates": [{"name": gate} for gate in gates]}
    return {"metadata": {"uid": uid, **meta}, "spec": spec}


def queue_with(*pods, now=0.0):
    queue = Queue()
    for pod in pods:
        queue.see(pod, now)
    return queue


def popped(queue, now):
    entry = queue.pop(now)
    return entry.uid if entry else None


def test_priority_then_age():
    queue = Queue()
    for now, pod in enumerate([waiting("a"), waiting("b", 5), waiting("c"), waiting("d", 5)]):
        queue.see(pod, float(now))
    assert [popped(queue, 10.0) for _ in range(5)] == ["b", "d", "a", "c", None]


def test_a_gated_pod_waits_for_its_last_gate():
    queue = queue_with(waiting("a", gates="xy"))
    assert popped(queue, 1.0) is None
    queue.see(waiting("a", gates="y"), 2.0)
    queue.move(Wake.NODE_ADD, 2.0)
    assert popped(queue, 2.0) is None
    queue.see(waiting("a"), 3.0)
    assert popped(queue, 3.0) == "a"


@pytest.mark.parametrize(
    ("rejectors", "wake", "woken"),
    [
        *[(HELD, wake, True) for wake in Wake],
        (FULL, Wake.NODE_ADD, True),
        (FULL, Wake.NODE_ALLOCATABLE, True),
        (FULL, Wake.POD_DELETE, True),
        (FULL, Wake.POD_ADD, False),
        (FULL, Wake.NODE_LABELS, False),
        (FULL, Wake.NODE_OTHER, False),
        (frozenset({"NodeAffinity"}), Wake.NODE_LABELS, True),
        (frozenset({"TaintToleration"}), Wake.NODE_TAINTS, True),
        (FULL | HELD, Wake.POD_ADD, True),
    ],
)
@pytest.mark.parametrize("during", [False, True])
def test_what_wakes_whom(rejectors, wake, woken, during):
    """Also when it happens during the cycle that refuses the pod."""
    queue = queue_with(waiting("a"))
    entry = queue.pop(0.0)
    if during:
        queue.move(wake, 0.0)
    queue.failed(entry, rejectors, 0.0)
    if not during:
        queue.move(wake, 0.0)
    assert (entry.place is not Place.UNSCHEDULABLE) == woken


def test_any_update_of_a_pod_that_an_extender_refused_wakes_it():
    queue = queue_with(waiting("a"), waiting("b"))
    for rejectors in (HELD, FULL):
        queue.failed(queue.pop(0.0), rejectors, 0.0)
    for uid in "ab":
        queue.see(waiting(uid, annotations={"kick": "1"}), 0.0)
    assert [popped(queue, 0.0) for _ in range(2)] == ["a", None]
    queue.see(waiting("b", annotations={"kick": "1"}, labels={"new": "1"}), 0.0)
    assert popped(queue, 0.0) is None, "labels do not make room"


def test_an_idle_scheduler_does_not_wait_for_the_back_off_of_a_refusal():
    queue = queue_with(waiting("a"))
    queue.failed(queue.pop(0.0), HELD, 0.0)
    queue.move(Wake.POD_ADD, 0.0)
    assert queue.counts()["backoff"] == 1
    queue.see(waiting("b"), 0.5)
    assert [popped(queue, 0.5) for _ in range(2)] == ["b", "a"]


def test_errors_back_off_twice_as_long_each_time_up_to_the_limit():
    queue = queue_with(waiting("a"))
    now, waits = 0.0, []
    for _ in range(6):
        queue.failed(queue.pop(now), ERROR, now)
        assert popped(queue, now) is None, "an error's back-off is never cut short"
        due = queue.next_time()
        waits.append(due - now)
        now = due
    # Each is up to a second longer, as back-offs end together at the next whole second.
    assert waits == [2, 3, 5, 9, 11, 11]
    queue.failed(queue.pop(now), HELD, now)
    queue.move(Wake.NODE_ADD, now)
    queue.failed(queue.pop(now), ERROR, now)
    assert queue.next_time() - now == 2, "a refusal ends the row of errors"


def test_an_unschedulable_pod_is_tried_again_after_five_minutes():
    queue = queue_with(waiting("a"))
    queue.failed(queue.pop(0.0), FULL, 0.0)
    assert popped(queue, 299.0) is None
    assert queue.next_time() <= 330.0
    assert popped(queue, 331.0) == "a"


def test_a_pod_that_is_gone_is_never_popped():
    queue = queue_with(waiting("a"), waiting("b"))
    queue.remove("a")
    entry = queue.pop(0.0)
    queue.remove("b")
    queue.failed(entry, ERROR, 0.0)
    assert popped(queue, 100.0) is None
    assert sum(queue.counts().values()) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["see", "remove", "held", "full", "error", "wake", "pass"]),
            st.sampled_from("abc"),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_a_pod_is_in_one_place_and_never_forgotten(steps):
    """Whatever happens, every pod that is known and not gone comes up again."""
    queue, now, alive = Queue(), 0.0, set()
    endings = {"held": HELD, "full": FULL, "error": ERROR}
    for step, uid, number in steps:
        now += number
        if step == "see":
            queue.see(waiting(uid, annotations={"n": str(now)}), now)
            alive.add(uid)
        elif step == "remove":
            queue.remove(uid)
            alive.discard(uid)
        elif step == "wake":
            queue.move(list(Wake)[number], now)
        elif step in endings and (entry := queue.pop(now)) is not None:
            assert entry.uid in alive
            queue.failed(entry, endings[step], now)
    assert set(queue.entries) == alive
    later = now + 1000.0
    came = {popped(queue, later) for _ in range(len(alive))}
    assert came == alive or not alive
    assert popped(queue, later) is None
