"""Words in which the tests of the planner are written."""

from __future__ import annotations

from extender.core.cluster import Cluster
from extender.core.planner import Placement, Role, plan
from extender.core.reasons import Refusal
from extender.core.shape import PodShape, shape_of
from extender.core.snapshot import Snapshot
from extender.settings import Settings
from tests.builders import node, pod

SESSION = Settings().session()


def cluster(*nodes, pods=()) -> Cluster:
    made = Cluster()
    for each in nodes:
        made.upsert_node(each)
    for each in pods:
        made.upsert_pod(each)
    return made


def shape(gpus=1, **more) -> PodShape:
    return shape_of(pod("w", gpus=gpus, **more))


def role(required, gpus=1, optional=0, name="worker", **more) -> Role:
    return Role(name, shape(gpus, **more), required, optional)


def names(view: Snapshot, found: Placement | Refusal) -> list[list[str]]:
    assert isinstance(found, Placement), found.render()
    return [[view.names[row] for row in rows] for rows in found.rows]


def placed(made: Cluster, *roles: Role, peers=()) -> list[list[str]]:
    view = Snapshot(made)
    return names(view, plan(SESSION, view, roles, peers=peers))


def refused(made: Cluster, *roles: Role) -> str:
    found = plan(SESSION, Snapshot(made), roles)
    assert isinstance(found, Refusal)
    return found.render()


def gpu_nodes(**gpus: int):
    return [node(name, gpus=count) for name, count in gpus.items()]


def busy(on: str, gpus: int):
    return pod(f"busy-{on}", node=on, gpus=gpus)
