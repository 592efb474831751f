"""Who is told of a pod that is placed: those to whom it means something, however many shapes there are."""

from __future__ import annotations

import pytest

from extender.core.affinity import AffinityTracker
from extender.core.snapshot import Snapshot
from tests.builders import HOST, node
from tests.core.planning import cluster, shape
from tests.core.test_shape import apart


def test_pods_without_terms_mean_nothing_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Snapshot(cluster(*(node(name, gpus=8, labels={HOST: name}) for name in "ab")))
    plain = [shape(cpu=f"{at}m") for at in range(1, 20)]
    for each in plain:
        assert view.feasible(each).all()
    told: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(AffinityTracker, "add", lambda *args, **more: told.append(args))
        mark = view.checkpoint()
        for each in plain[:8]:
            view.place(each, 0)
        view.rollback(mark)
    assert told == []


def test_one_that_keeps_others_away_is_heeded_also_as_it_goes() -> None:
    view = Snapshot(cluster(*(node(name, gpus=8, labels={HOST: name}) for name in "ab")))
    plain = shape(labels={"app": "x"})
    assert view.feasible(plain).tolist() == [True, True]
    mark = view.checkpoint()
    away = apart(topologyKey=HOST, labelSelector={"matchLabels": {"app": "x"}})
    view.place(shape(spec=away), 0)
    assert view.feasible(plain).tolist() == [False, True]
    assert view.feasible(shape(cpu="2", labels={"app": "x"})).tolist() == [False, True]
    view.rollback(mark)
    assert view.feasible(plain).tolist() == [True, True]
