"""The whole gang at once on a snapshot, or the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from extender.core import bulk, stepwise
from extender.core.bulk import Attempt, Role
from extender.core.preference import Preference
from extender.core.reasons import Code, Reason, Refusal, refuse

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

__all__ = ["OF_ROOM", "Placement", "Role", "plan"]

#: Headlines that another node may end: cluster autoscalers should see such pods.
OF_ROOM = frozenset({Code.NO_ROOM, Code.NEVER_FITS, Code.NO_NODE_ADMITS})
#: Refusals by what is asked and what runs. Others are by what a node is: an empty one is no better.
_OF_USE = frozenset(
    {
        Code.FITS,
        Code.RESOURCE,
        Code.TOO_MANY_PODS,
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
    session: Session, snapshot: Snapshot, roles: Sequence[Role], *, peers: Iterable[int] = ()
) -> Placement | Refusal:
    """Place every required member of every role, or say why that is not possible now.

    ``peers`` are the rows of members that are bound already: the rest goes near them. A predicate
    of a third party is asked once per role before anything is placed, unless the snapshot says
    that the members interact. ``snapshot`` is left as it was found.

    Roles of one kind, and roles that do not interact within the budget of
    :mod:`extender.core.search`, are decided exactly: a refusal means there is no placement.
    """
    attempt = _attempt(session, snapshot, roles, peers)
    if attempt.missing(roles):
        return _refusal(session, snapshot, roles, attempt)
    return Placement([np.array(rows, dtype=np.int32) for rows in attempt.rows])


def _attempt(
    session: Session, view: Snapshot, roles: Sequence[Role], peers: Iterable[int]
) -> Attempt:
    for role in roles:
        view.request_vector(role.shape)  # a resource that is new to the view gets its column
    preference = Preference(view, peers)
    asked = [role.shape for role in roles if role.required + role.optional]
    if any(view.interacts(shape) for shape in asked) and not bulk.covers(asked):
        return stepwise.plan(session, view, roles, preference)
    return bulk.plan(session, view, roles, preference)


def _refusal(session: Session, view: Snapshot, roles: Sequence[Role], attempt: Attempt) -> Refusal:
    want = sum(role.required for role in roles)
    short = next(
        role for role, rows in zip(roles, attempt.rows, strict=True) if len(rows) < role.required
    )
    placed = want - attempt.missing(roles)
    if not view.alive.any():
        return refuse(Code.NO_ROOM, [Reason.of(Code.NO_NODES)], placed=placed, want=want)
    rest = [*_room(session, view, short), *session.explain(view, short.shape)]
    if rest and _OF_USE.isdisjoint(reason.code for reason in rest):
        return refuse(Code.NO_NODE_ADMITS, rest, placed=placed, want=want)
    at_best = _placed_if_empty(session, view, roles)
    if at_best is not None:
        return refuse(Code.NEVER_FITS, rest, placed=at_best, want=want)
    return refuse(Code.NO_ROOM, rest, placed=placed, want=want)


def _placed_if_empty(session: Session, view: Snapshot, roles: Sequence[Role]) -> int | None:
    """How many would fit if no pod ran, when that is too few for certain; else None."""
    if any(role.shape.affinity or role.shape.spread for role in roles):
        # These may depend on pods that run: emptying the nodes is no best case.
        return None
    musts = [Role(role.name, role.shape, role.required) for role in roles]
    attempt = _attempt(session, view.emptied(), musts, ())
    missing = attempt.missing(musts)
    return sum(role.required for role in roles) - missing if missing and attempt.exact else None


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
