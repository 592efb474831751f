from __future__ import annotations

from extender.core.framework import GroupFacts, Victim
from extender.core.reasons import Code
from extender.core.shape import PodShape
from plugins.conformance import Conformance
from plugins.gang import Gang
from plugins.priority import Priority


def group(min_member=2, tasks=None, members=None, placed=0, priority=0) -> GroupFacts:
    return GroupFacts(
        "default", "g", "default", priority, 0.0, min_member, tasks or {}, members or {}, placed
    )


def victim(*, priority=0, klass="", namespace="default", gang="", remaining=0, need=0) -> Victim:
    return Victim("u", namespace, "v", priority, klass, gang, remaining, need)


def test_a_gang_is_valid_once_enough_members_exist():
    gang = Gang({})
    assert gang.valid(group(2, members={"w": 2})) is None
    refusal = gang.valid(group(3, {"w": 2, "m": 1}, {"w": 1}))
    assert refusal is not None
    assert refusal.render() == (
        "1 of at least 3 pods exist; 0 of at least 1 pods of task m exist;"
        " 1 of at least 2 pods of task w exist"
    )
    assert refusal.code == Code.TOO_FEW_PODS


def test_minima_by_task_hold_whatever_min_member_is():
    assert Gang({}).valid(group(1, {"w": 2}, {"w": 1, "m": 4})) is not None
    assert not Gang({}).ready(group(1, {"w": 2, "m": 1}), 2)


def test_a_gang_is_ready_at_min_member():
    gang = Gang({})
    assert [gang.ready(group(2), n) for n in (1, 2, 3)] == [False, True, True]


def test_gangs_that_lack_members_go_before_those_that_grow():
    gang = Gang({})
    assert gang.order_key(group(2, placed=1)) < gang.order_key(group(2, placed=2))


def test_a_running_gang_is_not_broken():
    victims = [
        victim(),
        victim(gang="default/a", remaining=3, need=3),
        victim(gang="default/a", remaining=2, need=3),
    ]
    assert Gang({}).evictable(PodShape(), victims).tolist() == [True, True, False]


def test_higher_priority_first_and_only_lower_is_evicted():
    priority = Priority({})
    assert priority.order_key(group(priority=9)) < priority.order_key(group(priority=-1))
    victims = [victim(priority=p) for p in (4, 5, 6)]
    found = priority.evictable(PodShape(priority=5), victims)
    assert found.tolist() == [True, False, False]


def test_what_keeps_the_cluster_alive_is_not_evicted():
    victims = [
        victim(),
        victim(klass="system-node-critical"),
        victim(klass="system-cluster-critical"),
        victim(namespace="kube-system"),
    ]
    found = Conformance({}).evictable(PodShape(), victims)
    assert found.tolist() == [True, False, False, False]


def test_no_victims_is_an_empty_answer():
    for plugin in (Gang({}), Priority({}), Conformance({})):
        assert plugin.evictable(PodShape(), []).shape == (0,)
