"""How the answers of plugins are combined."""

from __future__ import annotations

import numpy as np
import pytest

from extender.core.cluster import Cluster
from extender.core.framework import GroupFacts, Victim
from extender.core.reasons import Code, Reason, refuse
from extender.core.session import Enabled, Session
from extender.core.shape import PodShape
from extender.core.snapshot import Snapshot
from tests.builders import node


def view(rows: int, gone: int | None = None) -> Snapshot:
    cluster = Cluster()
    for row in range(rows):
        cluster.upsert_node(node(f"n{row}"))
    if gone is not None:
        cluster.remove_node(f"n{gone}")
    return Snapshot(cluster)


def group(name="g", **changes) -> GroupFacts:
    facts = {
        "namespace": "default", "name": name, "queue": "default", "priority": 0, "created": 0.0,
        "min_member": 1, "min_task_member": {}, "members": {}, "placed": 0,
    }  # fmt: skip
    return GroupFacts(**{**facts, **changes})


def victim(**changes) -> Victim:
    facts = {
        "uid": "u", "namespace": "default", "name": "v", "priority": 0, "priority_class": "",
        "group": "", "remaining": 0, "min_member": 0,
    }  # fmt: skip
    return Victim(**{**facts, **changes})


def plugin(**functions):
    """A plugin with just these functions."""
    members = {key: staticmethod(value) for key, value in functions.items()}
    return type("P", (), {"name": "p", "arguments": {}, **members})()


def session(*tiers) -> Session:
    return Session([[p if isinstance(p, Enabled) else Enabled(p) for p in tier] for tier in tiers])


SHAPE = PodShape()
NO = Reason.of(Code.PLUGIN, nodes=1, plugin="p")
CORDON = Reason.of(Code.UNSCHEDULABLE, nodes=1)


def test_without_plugins_every_living_row_will_do():
    empty = session()
    three = view(3, gone=1)
    assert empty.feasible(three, SHAPE).tolist() == [True, False, True]
    assert empty.score(three, SHAPE).tolist() == [0, 0, 0]
    assert empty.explain(three, SHAPE) == []
    assert empty.valid(group()) is None
    assert empty.ready(group(), 0)
    assert empty.evictable(SHAPE, [victim()]).tolist() == [True]


def test_feasible_is_a_conjunction_and_leaves_plugins_arrays_alone():
    mine = np.array([True, True, False])
    p = plugin(feasible=lambda _v, _t: mine, explain=lambda _v, _t: [NO])
    q = plugin(
        feasible=lambda _v, _t: np.array([True, False, True]), explain=lambda _v, _t: [CORDON]
    )
    both = session([p], [q])
    assert both.feasible(view(3), SHAPE).tolist() == [True, False, False]
    assert mine.tolist() == [True, True, False]
    assert both.explain(view(3), SHAPE) == [NO, CORDON]


def test_scores_add_up_and_can_be_switched_off():
    p = plugin(score=lambda v, _t: np.arange(v.rows, dtype=float))
    three = view(3)
    assert session([p], [p]).score(three, SHAPE).tolist() == [0, 2, 4]
    off = session([p], [Enabled(p, frozenset({"NodeOrder"}))])
    assert off.score(three, SHAPE).tolist() == [0, 1, 2]


def test_order_is_lexicographic_then_creation_then_name():
    by_priority = plugin(order_key=lambda g: -g.priority)
    by_size = plugin(order_key=lambda g: g.min_member)
    groups = [
        group("small", min_member=1),
        group("late", priority=5, min_member=3, created=2.0),
        group("early", priority=5, min_member=3, created=1.0),
        group("b", priority=5, min_member=3, created=1.0),
        group("first", priority=5, min_member=2, created=9.0),
    ]
    key = session([by_priority], [by_size]).order_key
    assert [g.name for g in sorted(groups, key=key)] == ["first", "b", "early", "late", "small"]


def test_every_reason_why_a_gang_is_not_valid_is_kept():
    few = plugin(valid=lambda _g: refuse(Code.TOO_FEW_PODS, have=1, want=2))
    fine = plugin(valid=lambda _g: None)
    later = plugin(valid=lambda _g: refuse(Code.NO_GROUP, name="x"))
    refusal = session([fine, few], [later]).valid(group())
    assert refusal is not None
    assert [reason.code for reason in refusal.reasons] == [Code.TOO_FEW_PODS, Code.NO_GROUP]


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        (["11", "10"], [True, True]),  # the first tier decides
        (["10", "11"], [True, False]),
        (["00", "11"], [False, False]),  # nobody is an answer too
        (["", "01"], [False, True]),  # a tier without a say is passed over
    ],
)
def test_the_first_tier_with_a_say_decides_about_victims(tiers, expected):
    def voter(bits):
        return plugin(evictable=lambda _p, _v: np.array([bit == "1" for bit in bits]))

    found = session(*[[voter(bits)] if bits else [plugin()] for bits in tiers])
    assert found.evictable(SHAPE, [victim(), victim()]).tolist() == expected


def test_inside_a_tier_all_must_agree_about_victims():
    left = plugin(evictable=lambda _p, _v: np.array([True, False, True]))
    right = plugin(evictable=lambda _p, _v: np.array([False, True, True]))
    found = session([left, right]).evictable(SHAPE, [victim()] * 3)
    assert found.tolist() == [False, False, True]
