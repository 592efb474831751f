"""Gangs over nodes: the bandwidth that is reached, of the most that any placement could have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby, product

import numpy as np
import pytest

from extender.core.cluster import Cluster
from extender.core.planner import Placement, Role, plan
from extender.core.snapshot import Snapshot
from extender.core.topology.between import over_nodes
from extender.core.topology.domains import Level
from extender.core.topology.limits import Limit
from extender.core.topology.spread import ports
from tests.builders import HOST, node
from tests.core.planning import SESSION, role

BLOCK, RACK = "net/block", "net/rack"


def network(nodes, ratios) -> Cluster:
    """Nodes by name: block, rack ("" for no label) and free GPUs; oversubscription by level."""
    made = Cluster((Level(BLOCK, "block", ratios[0]), Level(RACK, "rack", ratios[1])))
    for name, (block, rack, gpus) in nodes.items():
        labels = {key: value for key, value in ((BLOCK, block), (RACK, rack)) if value}
        made.upsert_node(node(name, gpus=gpus, labels=labels))
    return made


def gbs(nodes, ratios, counts) -> float:
    """The prediction of :mod:`extender.core.topology.bandwidth`, one port of 1 GB/s for a GPU."""
    used = [at for at, count in enumerate(counts) if count]
    if len(used) == 1:
        return 1e9
    places = list(nodes.values())
    racks = [places[at][:2] for at in used]
    near = [sorted(set(racks)).index(each) for each in racks]
    far = [sorted({each[0] for each in racks}).index(block) for block, _ in racks]
    ports = [counts[at] for at in used]
    return over_nodes([0.0] * len(used), ports, [near, far], [ratios[1], ratios[0]])


def every(free, want: int) -> Iterator[tuple[int, ...]]:
    for head in product(*(range(size + 1) for size in free[:-1])):
        if 0 <= want - sum(head) <= free[-1]:
            yield (*head, want - sum(head))


def drawn(seed: int):
    rng = random.Random(seed)
    nodes = {
        f"n{at}": (f"b{at // 4}", f"r{at // 2}", rng.choice((0, 1, 2, 3, 4, 4, 4)))
        for at in range(rng.randint(4, 7))
    }
    ratios = (rng.choice((1.0, 2.0, 4.0)), rng.choice((1.0, 2.0, 3.0)))
    total = sum(gpus for _, _, gpus in nodes.values())
    return nodes, ratios, rng.randint(2, max(2, total))


def in_one_piece(of_ranks) -> bool:
    """Whether nothing comes again once something else has come."""
    return len([key for key, _ in groupby(of_ranks)]) == len(set(of_ranks))


def reached(seed: int) -> float | None:
    nodes, ratios, want = drawn(seed)
    free = [gpus for _, _, gpus in nodes.values()]
    if sum(free) < want:
        return None
    best = max(gbs(nodes, ratios, counts) for counts in every(free, want))
    view = Snapshot(network(nodes, ratios))
    found = plan(SESSION, view, [role(want)])
    assert isinstance(found, Placement)
    rows = found.rows[0].tolist()
    assert in_one_piece(
        [(f"b{row // 4}", f"r{row // 2}", row)[:n] for n in (1, 2, 3) for row in rows]
    )
    counts = np.bincount(rows, minlength=len(free)).tolist()
    assert all(count <= size for count, size in zip(counts, free, strict=True))
    return gbs(nodes, ratios, counts) / best


def shares(seeds: range) -> list[float]:
    found = map(reached, seeds)
    return [share for share in found if share is not None]


def test_the_bandwidth_reached_is_the_most_that_any_placement_has():
    got = shares(range(400))
    assert len(got) > 300
    assert min(got) == pytest.approx(1.0)


def deals(free, big: int, small: int) -> Iterator[tuple[int, ...]]:
    """Devices by node of all ways to place members of two devices and of one."""
    if len(free) == 1:
        if 2 * big + small <= free[0]:
            yield (2 * big + small,)
        return
    for two in range(min(big, free[0] // 2) + 1):
        for one in range(min(small, free[0] - 2 * two) + 1):
            for rest in deals(free[1:], big - two, small - one):
                yield (2 * two + one, *rest)


def reached_by_two_kinds(seed: int) -> float | None:
    nodes, ratios, _ = drawn(seed)
    rng = random.Random(seed)
    free = [gpus for _, _, gpus in nodes.values()][:6]
    nodes = dict(list(nodes.items())[:6])
    big = rng.randint(1, max(1, sum(free) // 4))
    small = rng.randint(1, max(1, sum(free) - 2 * big))
    best = max((gbs(nodes, ratios, counts) for counts in deals(free, big, small)), default=0.0)
    roles = [role(big, gpus=2, name="big"), role(small, name="small")]
    found = plan(SESSION, Snapshot(network(nodes, ratios)), roles)
    if not best:
        assert not isinstance(found, Placement)
        return None
    assert isinstance(found, Placement)
    big_rows, small_rows = (np.bincount(rows, minlength=len(free)) for rows in found.rows)
    counts = 2 * big_rows + small_rows
    return gbs(nodes, ratios, counts.tolist()) / best


def test_two_kinds_of_members_together_reach_the_most_too():
    got = [share for share in map(reached_by_two_kinds, range(120)) if share is not None]
    assert len(got) > 80
    assert sum(got) / len(got) >= 0.999
    assert min(got) >= 0.99


def test_ports_are_what_the_model_of_bandwidth_says():
    for seed in range(200):
        nodes, ratios, _ = drawn(seed)
        rng = random.Random(seed)
        counts = np.array([rng.randint(0, gpus) for _, _, gpus in nodes.values()])
        if np.count_nonzero(counts) > 1:
            domains = network(nodes, ratios).view().domains
            assert ports(domains, counts) == pytest.approx(gbs(nodes, ratios, counts.tolist()))


def racks(gpus: str, of: int = 2, ratios=(1.0, 1.0)) -> Cluster:
    """One block; nodes a, b, c … with these GPUs, ``of`` in a rack."""
    return network(
        {
            chr(ord("a") + at): ("b", f"r{at // of}", int(each))
            for at, each in enumerate(gpus.replace(" ", ""))
        },
        ratios,
    )


def lands(made: Cluster, *roles: Role, peers=(), limit: Limit | None = None) -> str:
    view = Snapshot(made)
    found = plan(
        SESSION, view, roles, peers=[made.nodes.row_of[each] for each in peers], limit=limit
    )
    if not isinstance(found, Placement):
        return found.render()
    return " ".join("".join(view.names[row] for row in rows) for rows in found.rows)


@pytest.mark.parametrize(
    ("gpus", "want", "nodes"),
    [
        ("44 44", 4, "aaaa"),
        ("44 44", 8, "aaaabbbb"),
        ("40 44 44", 8, "ccccdddd"),  # one rack, though not the first node
        ("444 440 444", 8, "ddddeeee"),  # the rack with the least left
        ("444 444", 16, "aaaabbbbccccdddd"),  # over two racks, the first one whole
        ("44 44 44", 16, "aaaabbbbccccdddd"),  # rank by rank, rack by rack
        ("44 24 44", 12, "aaaabbbbdddd"),  # not 4 + 4 + 2 + 2: the slowest node has four ports
    ],
)
def test_the_nearest_domain_that_takes_the_whole_gang(gpus, want, nodes):
    of = len(gpus.split()[0])
    assert lands(racks(gpus, of), role(want)) == nodes


def test_an_oversubscribed_rack_gets_its_share():
    even = racks("44 44", ratios=(1.0, 4.0))
    assert lands(even, role(12)) == "aaaabbccccdd"  # 6 + 6: 1.5 ports each, not 8 + 4: 1
    assert lands(racks("44 44"), role(12)) == "aaaabbbbcccc"


def test_ports_are_not_wasted_on_the_nearest():
    made = racks("1111 4400 4400", of=4)
    assert lands(made, role(4)) == "eeee"
    assert lands(made, role(8)) == "eeeeffff"


def test_where_nothing_is_labelled_rows_are_as_before():
    bare = network(dict.fromkeys("abc", ("", "", 4)), (1.0, 1.0))
    assert lands(bare, role(6)) == "aaaabb"


def test_a_node_of_unknown_rack_is_neither_near_nor_lost():
    made = network(
        {"a": ("", "", 4), "b": ("b", "r0", 4), "c": ("b", "r0", 4), "d": ("b", "r1", 4)},
        (1.0, 1.0),
    )
    assert lands(made, role(8)) == "bbbbcccc"
    assert lands(made, role(12)) == "bbbbccccdddd"
    assert lands(made, role(16)) == "bbbbccccddddaaaa"


def test_racks_of_two_blocks_that_are_called_the_same_are_two():
    made = network({"a": ("x", "r", 4), "b": ("y", "r", 4), "c": ("y", "r", 4)}, (1.0, 1.0))
    assert lands(made, role(8)) == "bbbbcccc"


def test_the_rest_goes_to_the_domain_of_its_peers():
    made = racks("44 44 44")
    assert lands(made, role(4), peers="d") == "dddd"
    assert lands(made, role(8), peers="d") == "ddddcccc"


def test_who_has_no_devices_leaves_nodes_with_devices_alone():
    made = racks("44 00")
    launcher = role(1, gpus=0, name="launcher", cpu="1")
    assert lands(made, launcher, role(8)) == "c aaaabbbb"
    assert lands(racks("44 44"), launcher, role(8)) == "a aaaabbbb"


def test_roles_are_placed_in_one_domain():
    made = racks("44 44 44", ratios=(1.0, 1.0))
    big = role(2, gpus=2, name="big")
    assert lands(made, big, role(4, name="small")) == "aa bbbb"


HARD_RACK, HARD_HOST, SOFT_RACK = Limit(1), Limit(2), Limit(prefer=1)


def test_a_hard_limit_is_never_exceeded():
    made = racks("44 40 30")
    assert lands(made, role(8), limit=HARD_RACK) == "aaaabbbb"
    assert lands(made, role(9), limit=HARD_RACK) == (
        "no net/rack has room for 9 pods together; b/r0 has room for 8; 2 nodes: room for 4"
    )
    assert lands(made, role(4), limit=HARD_HOST) == "cccc"  # of the fullest rack
    assert lands(made, role(5), limit=HARD_HOST).startswith(
        "no kubernetes.io/hostname has room for 5 pods together; a has room for 4"
    )
    assert lands(made, role(99), limit=HARD_RACK).startswith("15 of 99 pods would fit even if")


def test_a_hard_limit_holds_for_members_without_devices_too():
    made = racks("00 44 43")
    launcher = role(1, gpus=0, name="launcher", cpu="1")
    assert lands(made, launcher, role(4)) == "a eeee"
    assert lands(made, launcher, role(4), limit=HARD_RACK) == "c cccc"
    assert lands(made, launcher, role(8), limit=HARD_RACK) == "c ccccdddd"
    assert lands(made, role(1, optional=9), limit=HARD_RACK) == "ccccdddd"
    assert lands(made, role(0, optional=9), limit=HARD_RACK) == "ccccdddd"


def test_a_limit_that_came_after_the_peers_were_placed_pins_nobody_down():
    made = network({"a": ("", "", 4), "b": ("b", "r", 4)}, (1.0, 1.0))
    assert lands(made, role(2), peers="a", limit=HARD_RACK) == "bb"


def test_a_soft_limit_is_worth_more_than_ports():
    made = racks("2222 4000 4000", of=4)
    assert lands(made, role(8)) == "eeeeiiii"
    assert lands(made, role(8), limit=SOFT_RACK) == "aabbccdd"
    assert lands(made, role(9), limit=SOFT_RACK) != ""


def test_nobody_is_placed_on_an_unlabelled_node_under_a_hard_limit():
    made = network({"a": ("", "", 4), "b": ("b", "r", 2)}, (1.0, 1.0))
    assert lands(made, role(3), limit=HARD_RACK).startswith(
        "no net/rack has room for 3 pods together; b/r has room for 2"
    )


def test_the_rest_of_a_limited_gang_stays_with_its_peers():
    made = racks("44 44")
    assert lands(made, role(4), peers="c", limit=HARD_RACK) == "cccc"
    assert lands(made, role(9), peers="c", limit=HARD_RACK).startswith(
        "no net/rack has room for 9 pods together; b/r1 has room for 8"
    )


def apart() -> dict:
    """Members that may not share a node: planned one after the other."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "w"}}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": {"app": "w"}, "spec": {"affinity": {"podAntiAffinity": rule}}}


def test_nodes_that_take_one_member_each_do_not_hide_the_rack():
    """Of more nodes than areas are looked at, each would have room for all by its devices."""
    made = racks("4440" + "4444" * 5, of=4)
    assert sorted(lands(made, role(4, **apart()))) == ["e", "f", "g", "h"]


def test_members_that_restrict_each_other_get_one_domain_too():
    made = racks("444 440 444 444", of=3)
    assert sorted(lands(made, role(2, **apart()))) == ["d", "e"]
    assert sorted(lands(made, role(3, **apart()))) == ["a", "b", "c"]
    assert sorted(lands(made, role(3, **apart()), peers="g")) == ["g", "h", "i"]
    assert lands(made, role(4, **apart()), limit=HARD_RACK).startswith(
        "no net/rack has room for 4 pods together; b/r0 has room for 3; 3 nodes: room for 1"
    )
    assert len(set(lands(made, role(11, **apart())))) == 11
    assert lands(made, role(12, **apart())).startswith("11 of 12 pods would fit even if")
