"""The whole gang at once on a snapshot, or the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import bulk, inside, nearest, stepwise
from extender.core.bulk import Attempt, Role, Way
from extender.core.framework import BoolArray
from extender.core.nearest import Found, ask_of, in_order
from extender.core.preference import Preference
from extender.core.reasons import Code, Reason, Refusal, refuse
from extender.core.stepwise import BUDGET
from extender.core.topology.domains import HOST
from extender.core.topology.limits import Limit

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

__all__ = ["OF_ROOM", "Placement", "Role", "plan"]

#: Headlines that another node may end: cluster autoscalers should see such pods.
OF_ROOM = frozenset({Code.NO_ROOM, Code.NEVER_FITS, Code.NO_NODE_ADMITS, Code.TOO_FAR})
#: Refusals by what is asked and what runs. Others are by what a node is: an empty one is no better.
_OF_USE = frozenset(
    {
        Code.FITS,
        Code.RESOURCE,
        Code.TOO_MANY_PODS,
        Code.DEVICES,
        Code.NUMA_NODE,
        Code.NUMA_NODES,
        Code.PART,
        Code.HOST_PORT,
        Code.POD_AFFINITY,
        Code.POD_ANTI_AFFINITY,
        Code.SPREAD,
    }
)


class Placement(Struct, frozen=True, eq=False):
    """Per role, in the order given, the row of each member: ``required`` of them at least.

    Neighbours in an array are neighbours in the cluster. For members that restrict each other the
    arrays are also in an order in which kube-scheduler's filters let them through.
    """

    rows: list[NDArray[np.int32]]


def plan(
    session: Session,
    snapshot: Snapshot,
    roles: Sequence[Role],
    *,
    peers: Iterable[int] = (),
    limit: Limit | None = None,
) -> Placement | Refusal:
    """Place every required member of every role, or say why that is not possible now.

    ``peers`` are the rows of members that are bound already: the rest goes near them. ``limit``:
    how far apart in the network all of them may be. A predicate
    of a third party is asked once per role before anything is placed, unless the snapshot says
    that the members interact. ``snapshot`` is left as it was found.

    Roles of one kind, and roles that do not interact within the budget of
    :mod:`extender.core.search`, are decided exactly: a refusal means there is no placement.
    """
    found = _fastest(session, snapshot, roles, list(peers), limit)
    attempt = found.attempt
    if attempt.missing(roles):
        if found.reach is not None and limit is not None:
            return _too_far(session, snapshot, roles, found, limit)
        return _refusal(session, snapshot, roles, attempt)
    return Placement([np.array(rows, dtype=np.int32) for rows in attempt.rows])


def _fastest(
    session: Session,
    view: Snapshot,
    roles: Sequence[Role],
    peers: Sequence[int],
    limit: Limit | None,
) -> Found:
    """What the network has best, or the same on fewer nodes that are faster inside."""
    found = _found(session, view, roles, peers, limit)
    if peers or found.attempt.missing(roles):
        return found
    return inside.faster(
        view,
        roles,
        found,
        lambda fewer: _found(session, fewer, roles, peers, limit),
    )


def _found(
    session: Session,
    view: Snapshot,
    roles: Sequence[Role],
    peers: Sequence[int],
    limit: Limit | None = None,
) -> Found:
    for role in roles:
        view.request_vector(role.shape)  # a resource that is new to the view gets its column
    preference = Preference(view, peers)
    asked = [role.shape for role in roles if role.required + role.optional]
    domains = view.view.domains
    if any(view.interacts(shape) for shape in asked) and not bulk.covers(asked):
        if not domains.levels and limit is None:
            return Found(stepwise.plan(session, view, roles, preference))

        def step(way: Way) -> Attempt:
            within = view.within(way.everywhere(view.rows))
            return stepwise.plan(session, within, roles, preference, 0 if way.quick else BUDGET)

        allowed = [view.feasible_static(role.shape) for role in roles]
        ask = ask_of(view, roles, allowed, preference.names, step)
        ask.manners = ask.manners[:1]
        return nearest.plan(ask, domains, peers, limit)
    case = bulk.case_of(session, view, roles, preference)
    if not domains.levels and limit is None:
        return Found(bulk.solve(case, Way()))
    allowed = [case.kind_of(role).allowed for role in range(len(roles))]
    ask = ask_of(view, roles, allowed, preference.names, lambda way: bulk.solve(case, way))
    found = nearest.plan(ask, domains, peers, limit)
    rows = [in_order(domains, each) for each in found.attempt.rows]
    return Found(Attempt(rows, found.attempt.exact), found.reach)


def _too_far(
    session: Session, view: Snapshot, roles: Sequence[Role], found: Found, limit: Limit
) -> Refusal:
    """What the best domain lacks; that of the whole cluster, where this would not do either."""
    anywhere = _found(session, view, roles, (), None).attempt
    if anywhere.missing(roles):
        return _refusal(session, view, roles, anywhere)
    assert found.reach is not None
    want = sum(role.required for role in roles)
    placed = want - found.attempt.missing(roles)
    level, best = _named(view, found.reach, limit.bound)
    if not best:
        return refuse(Code.NO_DOMAIN, level=level)
    within = view.within(found.reach)
    short = found.attempt.short(roles)
    rest = [*_room(session, within, short), *session.explain(within, short.shape)]
    return refuse(Code.TOO_FAR, rest, level=level, want=want, best=best, placed=placed)


def _named(view: Snapshot, reach: BoolArray, level: int) -> tuple[str, str]:
    """The label of a level, and the name of the domain that ``reach`` is; "" if it is empty."""
    domains, rows = view.view.domains, np.flatnonzero(reach)
    if level == len(domains.levels):
        return HOST, view.names[rows[0]] if len(rows) else ""
    label = domains.levels[level].label
    return label, domains.names[level][domains.ids[level][rows[0]]] if len(rows) else ""


def _refusal(session: Session, view: Snapshot, roles: Sequence[Role], attempt: Attempt) -> Refusal:
    want = sum(role.required for role in roles)
    short = attempt.short(roles)
    placed = want - attempt.missing(roles)
    if not view.alive.any():
        return refuse(Code.NO_ROOM, [Reason.of(Code.NO_NODES)], placed=placed, want=want)
    rest = [*_room(session, view, short), *session.explain(view, short.shape)]
    if rest and _OF_USE.isdisjoint(reason.code for reason in rest):
        return refuse(Code.NO_NODE_ADMITS, rest, placed=placed, want=want)
    return _never(session, view, roles) or refuse(Code.NO_ROOM, rest, placed=placed, want=want)


def _never(session: Session, view: Snapshot, roles: Sequence[Role]) -> Refusal | None:
    """What would be missing if no pod ran, where that is too few for certain; else None."""
    if any(role.shape.affinity or role.shape.spread for role in roles):
        # These may depend on pods that run: emptying the nodes is no best case.
        return None
    musts = [Role(role.name, role.shape, role.required) for role in roles]
    empty = view.emptied()
    attempt = _found(session, empty, musts, ()).attempt
    missing = attempt.missing(musts)
    if not missing or not attempt.exact:
        return None
    want = sum(role.required for role in roles)
    short = attempt.short(musts)
    rest = [*_room(session, empty, short), *map(_of_capacity, session.explain(empty, short.shape))]
    return refuse(Code.NEVER_FITS, rest, placed=want - missing, want=want)


def _of_capacity(reason: Reason) -> Reason:
    """A reason of an empty node: all that it has is free, which is not what is to be said."""
    if reason.code != Code.RESOURCE:
        return reason
    params = tuple(each for each in reason.params if each[0] != "free")
    return Reason(Code.TOO_SMALL, params, reason.nodes)


def _room(session: Session, view: Snapshot, role: Role) -> list[Reason]:
    """How many nodes take members of this role, and how many each of them takes alone."""
    feasible = session.feasible(view, role.shape)
    room = view.capacity(role.shape)[feasible]
    if not len(room):
        return []
    if view.interacts(role.shape):
        return [Reason.of(Code.FITS, nodes=len(room), room=1)]
    least, most = int(room.min()), int(room.max())
    size: int | str = most if least == most else f"{least} to {most}"
    return [Reason.of(Code.FITS, nodes=len(room), room=size)]
