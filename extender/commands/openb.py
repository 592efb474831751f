"""``muster simulate openb``: placing policies on Alibaba's trace, by the protocol of FGD (ATC '23)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.commands.common import MISUSE, OK, answer, json_flag, say

if TYPE_CHECKING:
    from extender.traces.replay import Outcome

WHAT = "how much of a cluster's GPUs a placing policy gives away, on a trace of Alibaba's"
#: Also in :data:`extender.traces.policies.POLICIES`, which costs a second to import.
POLICIES = ("random", "bestfit", "packing", "fgd", "muster")
ALL = "all"
#: More in one run is a mistake.
MOST_SEEDS = 1000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes", type=Path, required=True, metavar="FILE", help="openb_node_list_….csv"
    )
    parser.add_argument(
        "--pods", type=Path, required=True, metavar="FILE", help="openb_pod_list_….csv"
    )
    parser.add_argument(
        "--policy", choices=(*POLICIES, ALL), default="muster", help="(%(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=seeds,
        default=(42,),
        metavar="S",
        help="of the order in which pods arrive: 42, or several: 42-51, 1,5,7 (42)",
    )
    json_flag(parser)


def seeds(text: str) -> tuple[int, ...]:
    """``42``, ``42-51`` or ``1,5-7``; each once, in that order."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (_number(first) and (_number(last) or not dash)):
            raise argparse.ArgumentTypeError(f"{text!r}: seeds are written 42, 42-51 or 1,5,7")
        ends = int(first), int(last or first)
        if not 0 <= ends[1] - ends[0] < MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"{part!r}: 1 to {MOST_SEEDS} seeds, rising")
        found |= dict.fromkeys(range(ends[0], ends[1] + 1))
    return tuple(found)


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def run(args: argparse.Namespace) -> int:
    """Every policy with every seed; one run is answered as it is, several with their means."""
    from extender.core.errors import ConfigError
    from extender.traces import openb
    from extender.traces.replay import replay

    policies = POLICIES if args.policy == ALL else (args.policy,)
    try:
        nodes = openb.read_nodes(args.nodes)
        tasks = openb.read_tasks(args.pods, nodes)
        outcomes = [replay(policy, nodes, tasks, seed) for policy in policies for seed in args.seed]
    except ConfigError as error:
        say("simulate", error)
        return MISUSE
    if args.json:
        single = len(outcomes) == 1
        runs = [_run(outcome) for outcome in outcomes]
        answer(runs[0] if single else {"runs": runs, "means": _means(outcomes)})
        return OK
    print(f"{'policy':<10}{'seeds':>6}{'at 100 %':>10}{'at 130 %':>10}  of {args.pods.name}")
    for mean in _means(outcomes):
        at = (mean["allocated_percent_at_100"], mean["allocated_percent_at_130"])
        print(f"{mean['policy']:<10}{mean['seeds']:>6}{at[0]:>10.2f}{at[1]:>10.2f}")
    return OK


def _run(outcome: Outcome) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "seed": outcome.seed,
        "allocated_percent_at_100": round(outcome.allocated_percent_at_100, 3),
        "allocated_percent_at_130": round(outcome.allocated_percent_at_130, 3),
        "pods": outcome.pods,
        "refused": outcome.refused,
        "seconds": round(outcome.seconds, 3),
    }


def _means(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Mean and range of each policy over its seeds, in the order of the policies."""
    means = []
    for policy in dict.fromkeys(outcome.policy for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.policy == policy]
        full = [outcome.allocated_percent_at_100 for outcome in own]
        over = [outcome.allocated_percent_at_130 for outcome in own]
        means.append(
            {
                "policy": policy,
                "seeds": len(own),
                "allocated_percent_at_100": round(sum(full) / len(own), 3),
                "allocated_percent_at_130": round(sum(over) / len(own), 3),
                "lowest_at_130": round(min(over), 3),
                "highest_at_130": round(max(over), 3),
            }
        )
    return means
