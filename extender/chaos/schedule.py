"""What happens in a run, drawn from its seed before it begins: a list that can be cut and kept."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

#: Virtual seconds in which things go wrong, and of rest at most after them.
FAULT_SECONDS: Final = (20.0, 150.0)
REST_SECONDS: Final = 900.0
#: Mean seconds between two acts are drawn from here.
PACE: Final = (0.7, 8.0)
#: A run has each group of acts, and of a group each act, with these chances, so that what each does
#: alone is seen too: where programs die all the time, little else happens.
GROUP_SHARE: Final = 0.7
SHARE: Final = 0.7

#: Acts by the name of their method in :class:`extender.chaos.faults.Faults`, with their weights.
GROUPS: Final[tuple[Mapping[str, int], ...]] = (
    {
        "submit": 3,
        "withdraw": 1,
        "resubmit": 1,
        "delete_pod": 2,
        "replace_pod": 1,
        "recreate_record": 1,
        "edit_minimum": 1,
        "suspend_job": 1,
        "scale_job": 1,
        "bind_foreign": 1,
        "delete_foreign": 1,
        "bind_member": 1,
        "press": 1,
    },
    {
        "add_node": 1,
        "remove_node": 1,
        "cordon": 1,
        "taint": 1,
        "announce_end": 1,
        "resize": 1,
        "kubelet_restarts": 1,
        "kubelet_is_lost": 1,
    },
    {
        "kill": 1,
        "kill_in_write": 2,
        "kill_between_awaits": 2,
        "stop_softly": 1,
        "pause": 2,
        "set_clock": 1,
        "restart_scheduler": 1,
    },
    {
        "cut": 2,
        "cut_service": 1,
        "change_weather": 2,
    },
)
WEIGHTS: Final[Mapping[str, int]] = {
    name: weight for group in GROUPS for name, weight in group.items()
}
#: What stands in place of some acts in some runs: jobs with a launcher, and GPUs that are shared.
VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "submit": ("submit_launched", "submit_shared"),
    "add_node": ("add_shared_node",),
    "bind_foreign": ("bind_foreign_share",),
    "delete_pod": ("delete_belonging",),
}
#: A run has variants with this chance, and then of each act in this share.
VARIED: Final = 0.3
VARIANT_SHARE: Final = 0.6
ACTS: Final = frozenset(WEIGHTS) | {name for names in VARIANTS.values() for name in names}


class Act(Struct, frozen=True):
    """One thing that happens ``at`` virtual seconds; ``draw`` seeds all that it chooses itself."""

    at: float
    name: str
    draw: int


class Script(Struct, frozen=True):
    """A whole run: nothing else decides what happens in it."""

    seed: int
    #: Seconds after which faults stop.
    seconds: float
    acts: tuple[Act, ...]
    replicas: int = 2
    #: Seconds after that within which all must be well.
    rest: float = REST_SECONDS
    #: Violations after which the run is over: what follows one tells little.
    enough: int = 3


def draw(seed: int) -> Script:
    """The script of a seed: a cluster with work to do, and then one act after the other."""
    rng = random.Random(f"{seed}:schedule")
    seconds, pace = rng.uniform(*FAULT_SECONDS), rng.uniform(*PACE)
    groups = [group for group in GROUPS if rng.random() < GROUP_SHARE] or list(GROUPS)
    # Whatever else happens, there is something to place.
    names = ["submit", *(name for group in groups for name in group if rng.random() < SHARE)]
    weights = [WEIGHTS[name] for name in names]
    first = ["add_node"] * rng.randint(2, 4) + ["submit"] * rng.randint(1, 4) + ["change_weather"]
    acts = [Act(0.0, name, index) for index, name in enumerate(first)]
    at = rng.expovariate(1 / pace)
    while at < seconds:
        acts.append(Act(at, rng.choices(names, weights)[0], len(acts)))
        at += rng.expovariate(1 / pace)
    return Script(seed, seconds, tuple(_varied(random.Random(f"{seed}:variants"), acts)))


def _varied(rng: random.Random, acts: list[Act]) -> list[Act]:
    """Acts of a stream of its own, so that those of other runs stay what they were."""
    if rng.random() >= VARIED:
        return acts
    return [
        structs.replace(act, name=rng.choice(VARIANTS[act.name]))
        if act.name in VARIANTS and rng.random() < VARIANT_SHARE
        else act
        for act in acts
    ]
