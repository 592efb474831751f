"""A failing script made small: what is left of its acts still breaks the same invariant.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002):
halves, quarters and so on are left out for as long as the rest still fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from msgspec import structs

from extender.chaos.run import Outcome, play
from extender.chaos.schedule import Act, Script

#: Runs that may be spent on one script.
TRIES = 150


def shrink(failed: Outcome, run: Callable[[Script], Outcome] | None = None) -> Outcome:
    """The outcome of the smallest script found that breaks what ``failed`` broke first."""
    return _Search(failed, run or play).smallest()


class _Search:
    def __init__(self, failed: Outcome, run: Callable[[Script], Outcome]) -> None:
        self._best, self._run = failed, run
        self._invariant = failed.violations[0].invariant
        self._left = TRIES

    def smallest(self) -> Outcome:
        """Without what came after the violation, then without whatever else can go."""
        first = self._best.violations[0]
        self._try([act for act in self._best.script.acts if act.at <= first.at])
        parts = 2
        while self._left > 0 and (acts := self._best.script.acts):
            parts = min(parts, len(acts))
            if self._leave_out_one_of(parts):
                parts = max(parts - 1, 2)
            elif parts == len(acts):
                break
            else:
                parts *= 2
        return self._best

    def _leave_out_one_of(self, parts: int) -> bool:
        """Whether the acts still fail without one of their ``parts``."""
        acts = self._best.script.acts
        bounds = [len(acts) * number // parts for number in range(parts + 1)]
        return any(
            self._try([*acts[:low], *acts[high:]]) for low, high in itertools.pairwise(bounds)
        )

    def _try(self, acts: Sequence[Act]) -> bool:
        if self._left <= 0 or len(acts) == len(self._best.script.acts):
            return False
        self._left -= 1
        outcome = self._run(structs.replace(self._best.script, acts=tuple(acts), enough=1))
        if all(each.invariant != self._invariant for each in outcome.violations):
            return False
        self._best = outcome
        return True
