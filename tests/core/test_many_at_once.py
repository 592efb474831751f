"""What is done to thousands of members at once equals what is done to each."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.core.cluster import Cluster
from extender.core.snapshot import Snapshot
from tests.builders import pod
from tests.core.planning import cluster, gpu_nodes, shape

ROWS = 4
places = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, ROWS - 1)), max_size=8)


def nodes() -> Cluster:
    return cluster(*gpu_nodes(**{f"n{i}": 4 for i in range(ROWS)}))


@given(places, places.map(lambda chosen: list(dict(chosen).items())))
def test_reserving_many_is_reserving_each(before, after):
    one, many = nodes(), nodes()
    for made in (one, many):
        for key, row in before:
            made.reserve(key, shape(2), row)
        made.upsert_pod(pod("a", node="n0", gpus=1, uid="a"))
    for key, row in after:
        one.reserve(key, shape(1), row)
    many.reserve_all(shape(1), after)
    assert np.array_equal(one.reserved, many.reserved)
    assert one.reservations.keys() == many.reservations.keys()
    assert one.occupancy.flat() == many.occupancy.flat()
    many.verify()


@settings(deadline=None)  # the first call compiles
@given(places, st.integers(0, 5), st.booleans())
def test_one_row_fits_as_all_rows_say(chosen, gpus, apart):
    made = nodes()
    for key, row in chosen:
        made.reserve(key, shape(2), row)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    more = {"affinity": {"podAntiAffinity": required}} if apart else {}
    made.upsert_pod(pod("x", node="n1", gpus=1, labels={"app": "x"}))
    view, asked = Snapshot(made), shape(gpus, spec=more)
    view.ban(asked, 2)
    assert [view.fits(asked, row) for row in range(ROWS)] == view.feasible(asked).tolist()
