"""What the owner of a gang asks for in the network, and what that is here.

Volcano's tiers are those of HyperNodes, where a cluster has any. Else they count levels from the
nearest, 1, up; only levels that a node is known at count (the configuration names those of many
clouds), so a tier that a cluster does not have is known as a mistake only there. Below all tiers is
one node, above them the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from extender.core.reasons import Code, Refusal, refuse
from extender.core.selectors import Selector
from extender.core.topology.domains import HOST, Domains, Level


class Wish(Struct, frozen=True):
    """How near members should be to each other, as one object says it: by label, tier or name."""

    #: Nothing is placed elsewhere; else it is what is tried first.
    hard: bool
    #: Where it is said, for messages.
    field: str
    label: str = ""
    tier: int | None = None
    tier_name: str = ""
    #: Not all members together, but parts of so many, each in a domain of its own; 0: all.
    size: int = 0
    #: Of parts: whose they are (None: all who ask for it), and by which labels' values they are told
    #: apart (None: by their ranks, so many after so many).
    selector: Selector | None = None
    keys: tuple[str, ...] | None = None

    def for_all(self) -> Wish:
        """The same level, asked for once for all."""
        return replace(self, size=0, selector=None, keys=None)

    @property
    def value(self) -> str:
        """What it says, its beginning where it is long (an annotation may be)."""
        text = self.label or self.tier_name or str("''" if self.tier is None else self.tier)
        return text if len(text) <= 80 else f"{text[:77]}..."


class Limit(Struct, frozen=True):
    """How far apart a gang may be. Both are indices of Domains.levels, whose number stands for one
    node, and -1 for the whole cluster.
    """

    #: All of it is in one domain of this level.
    bound: int = -1
    #: Domains of this level, and nearer, are tried first.
    prefer: int = -1


def limit_of(
    wishes: Sequence[Wish], domains: Domains, told: Sequence[Level]
) -> Limit | Refusal | None:
    """The nearest of what is asked; None for nothing. A soft wish for what is not there is moot.

    ``told``: all levels, those that no node is known at included.
    """
    bound = prefer = -1
    for wish in wishes:
        if wish.size:
            continue  # extender/core/partition.py
        level = _level(wish, domains, told)
        if level is not None and wish.hard:
            bound = max(bound, level)
        elif level is not None:
            prefer = max(prefer, level)
        elif wish.hard:
            return _unknown(wish, domains, told)
    return Limit(bound, prefer) if bound >= 0 or prefer >= 0 else None


def _level(wish: Wish, domains: Domains, told: Sequence[Level]) -> int | None:
    count = len(domains.levels)
    tiers = [level.tier for level in told if level.tier is not None]
    if wish.tier is not None and tiers:
        if wish.tier > max(tiers):
            return -1
        near = [(x.tier, at) for at, x in enumerate(domains.levels) if _within(x, wish.tier)]
        return max(near)[1] if near else count if wish.tier < min(tiers) else None
    if wish.tier is not None:
        # The tier above all others is the whole cluster, where there are others.
        return count - wish.tier if 0 <= wish.tier <= count + bool(count) else None
    if wish.label == HOST:
        return count
    for at, level in enumerate(domains.levels):
        if _is(level, wish):
            return at
    return None


def _within(level: Level, tier: int) -> bool:
    return level.tier is not None and level.tier <= tier


def _is(level: Level, wish: Wish) -> bool:
    if wish.label:
        return level.label == wish.label
    return bool(wish.tier_name) and wish.tier_name in (level.name, level.label)


def _unknown(wish: Wish, domains: Domains, told: Sequence[Level]) -> Refusal:
    named = next((x for x in told if wish.tier is None and _is(x, wish)), None)
    tier = wish.tier if named is None else named.tier
    if tier is not None and any(level.tier is not None for level in told):
        return refuse(Code.NO_HYPER_NODE, tier=tier)
    if named is not None:
        return refuse(Code.NO_DOMAIN, level=named.label)
    levels = domains.levels
    if wish.tier is not None:
        allowed = f"0 (one node) to {len(levels) + bool(levels)}" if levels else "0 (one node)"
    elif not wish.tier_name:
        allowed = ", ".join([*(level.label for level in levels), HOST])
    else:
        allowed = ", ".join(level.name or level.label for level in levels) or "none"
    return refuse(Code.UNKNOWN_LEVEL, field=wish.field, value=wish.value, allowed=allowed)
