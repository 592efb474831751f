"""Plans gangs whose members restrict each other: host ports, pod (anti-)affinity, spread.

Every member is placed on the overlay before the next one is looked at. Greedy first: in a few
orders, and for members that must be together in one domain after the other. Then, where another
way may exist, a depth-first search over (role, row) within a budget. The order of the rows is an
order in which kube-scheduler's filters let the members through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from extender.core.bulk import Attempt, Role
from extender.core.framework import BoolArray, FloatArray
from extender.core.preference import Preference
from extender.core.taken import scores

if TYPE_CHECKING:
    from extender.core.session import Session
    from extender.core.snapshot import Snapshot

#: Row verdicts that the exact search may ask for before it gives up (about 0.2 s), and members
#: that it may place.
BUDGET = 1_000_000
MAX_STATES = 2_000

Step = tuple[int, int]


def plan(
    session: Session,
    view: Snapshot,
    roles: Sequence[Role],
    preference: Preference,
    budget: int = BUDGET,
) -> Attempt:
    """As :func:`extender.core.bulk.plan`; ``view`` is left as it was found."""
    mark = view.checkpoint()
    try:
        walk = _Walk(session, view, roles, preference)
        steps, exact = walk.required(budget)
        rows: list[list[int]] = [[] for _ in roles]
        for index, row in steps:
            rows[index].append(row)
        if len(steps) == sum(role.required for role in roles):
            for index in walk.order:
                rows[index] += [row for _, row in walk.greedy([index], walk.optional)]
        return Attempt(rows, exact)
    finally:
        view.rollback(mark)


class _Walk:
    def __init__(
        self, session: Session, view: Snapshot, roles: Sequence[Role], preference: Preference
    ) -> None:
        self.session = session
        self.view = view
        self.roles = roles
        self.preference = preference.again(preference.near)
        self.requests = [view.request_vector(role.shape) for role in roles]
        self.scores: list[FloatArray] = [
            scores(session, view, role.shape, role.required + role.optional) for role in roles
        ]
        self.need = [role.required for role in roles]
        self.optional = [role.optional for role in roles]
        self.order = sorted(
            range(len(roles)), key=lambda i: (-preference.share(self.requests[i]), i)
        )

    def required(self, budget: int) -> tuple[list[Step], bool]:
        """Place the required members; they stay on the overlay if all of them found room."""
        orders = [self.order, self.order[::-1]][: len(self.roles)]
        best: list[Step] = []
        for order in orders:
            for domain in (None, *self._domains()):
                mark, near = self.view.checkpoint(), self.preference.near.copy()
                steps = self.greedy(order, self.need, domain)
                if len(steps) == sum(self.need):
                    return steps, True
                best = max(best, steps, key=len)
                self.view.rollback(mark)
                self.preference.near = near
        if self._greedy_is_exact() or self._too_few_rows():
            return best, True
        found, exact = self._search(min(MAX_STATES, budget // max(self.view.rows, 1)))
        return (best, exact) if found is None else (found, True)

    def _domains(self) -> Iterator[BoolArray]:
        """Rows of each domain that could hold a role which must be together, largest first.

        Evaluated for the first role that has required affinity; no domains if there is none.
        """
        for index, role in enumerate(self.roles):
            if not (role.shape.affinity and role.required):
                continue
            codes = self.view.view.column(role.shape.affinity[0].topology_key).codes
            capacity = self._ceiling(index)
            held = codes >= 0
            room = np.bincount(codes[held], weights=capacity[held])
            for code in np.argsort(-room, kind="stable"):
                if room[code] >= role.required:
                    yield codes == code
            return

    def _ceiling(self, index: int) -> NDArray[np.int64]:
        """Members of a role that each row could take if no member restricted another. (rows,)."""
        shape = self.roles[index].shape
        capacity = np.minimum(self.view.capacity(shape), self.need[index])
        return np.where(self.view.feasible_static(shape), capacity, 0)

    def _too_few_rows(self) -> bool:
        return any(
            int(self._ceiling(index).sum()) < need for index, need in enumerate(self.need) if need
        )

    def _greedy_is_exact(self) -> bool:
        """Whether greedy places as many as possible.

        So it is for one role without affinity whose copies restrict each other inside domains of
        one key only: it leaves off when every domain is full, or held up by one that is.
        """
        asked = [role.shape for role in self.roles if role.required]
        if len(asked) != 1 or asked[0].affinity or len(asked[0].spread) > 1:
            return False
        keys = {term.topology_key for term in asked[0].anti_affinity}
        return len(keys | {each.topology_key for each in asked[0].spread}) <= 1

    def greedy(
        self, order: Sequence[int], want: Sequence[int], domain: BoolArray | None = None
    ) -> list[Step]:
        """Place members role by role, each where it is best (in ``domain``), until none fits."""
        steps: list[Step] = []
        for index in order:
            for left in range(want[index], 0, -1):
                rows = self._rows(index, left, domain)
                if not len(rows):
                    break
                steps.append((index, int(rows[0])))
                self._place(*steps[-1])
        return steps

    def _rows(self, index: int, left: int, domain: BoolArray | None = None) -> NDArray[np.intp]:
        shape = self.roles[index].shape
        feasible = self.session.feasible(self.view, shape)
        rows = np.flatnonzero(feasible if domain is None else feasible & domain)
        capacity = self.view.capacity(shape)
        return self.preference.best(
            rows, left, self.view.free, self.requests[index], capacity, self.scores[index]
        )

    def _place(self, index: int, row: int) -> None:
        self.view.place(self.roles[index].shape, row)
        self.preference.near[row] = True

    def _search(self, states: int) -> tuple[list[Step] | None, bool]:
        """All sequences of steps, but no two that lead to the same members on the same rows.

        Returns the steps, or None and whether there is none.
        """
        left = Counter({i: need for i, need in enumerate(self.need) if need})
        seen: set[frozenset[tuple[Step, int]]] = set()
        placed: Counter[Step] = Counter()
        steps: list[Step] = []
        marks: list[int] = []
        path = [self._choices(left)]
        while path:
            step = next(path[-1], None)
            if step is None:
                path.pop()
                if steps:
                    undone = steps.pop()
                    left[undone[0]] += 1
                    placed[undone] -= 1
                    self.view.rollback(marks.pop())
                continue
            placed[step] += 1
            state = frozenset((+placed).items())
            if state in seen:
                placed[step] -= 1
                continue
            seen.add(state)
            if len(seen) > states:
                return None, False
            marks.append(self.view.checkpoint())
            steps.append(step)
            left[step[0]] -= 1
            self.view.place(self.roles[step[0]].shape, step[1])
            if not left.total():
                self.preference.near[[row for _, row in steps]] = True
                return steps, True
            path.append(self._choices(left))
        return None, True

    def _choices(self, left: Counter[int]) -> Iterator[Step]:
        """Next steps by role, evaluated now: the overlay moves on before they are taken."""
        steps = [
            (index, int(row))
            for index in self.order
            if left[index]
            for row in self._rows(index, left[index])
        ]
        return iter(steps)
