"""``muster simulate philly``: where gangs of the Philly trace land, by Muster and by others' rules."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from extender.commands.common import MISUSE, OK, answer, json_flag, say

WHAT = "bandwidth, leaves and waiting of the gangs of a Philly trace, under several rules"
#: Also in :func:`extender.traces.rules.rule`, which costs a second to import.
RULES = ("muster", "bestfit", "spread", "kai", "tas")
#: More is a mistake.
MOST_NODES = 10_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=Path, required=True, metavar="FILE", help="muri_trace….csv")
    parser.add_argument(
        "--topo",
        type=Path,
        required=True,
        action="append",
        metavar="FILE",
        help="of nvidia-smi topo -m: a node of the first leaf; again: of the next one",
    )
    parser.add_argument("--nodes", type=int, default=16, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--per-leaf", type=int, default=4, metavar="N", help="nodes of a leaf (%(default)s)"
    )
    parser.add_argument(
        "--oversubscription",
        type=float,
        default=2.0,
        metavar="X",
        help="what the nodes of a leaf can send, over what its uplinks carry (%(default)s)",
    )
    parser.add_argument(
        "--worker", type=int, default=1, metavar="K", help="GPUs of a worker at most (%(default)s)"
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Every rule on the same jobs."""
    from extender.core.errors import ConfigError
    from extender.traces import gangs, philly
    from extender.traces.rules import rule

    wrong = next(
        (
            name
            for name in ("nodes", "per_leaf", "worker")
            if not 1 <= getattr(args, name) <= MOST_NODES
        ),
        "" if 1 <= args.oversubscription <= 1000 else "oversubscription",
    )
    if wrong:
        most = 1000 if wrong == "oversubscription" else MOST_NODES
        given = getattr(args, wrong)
        say("simulate", f"--{wrong.replace('_', '-')}: {given} is not allowed: 1 to {most}")
        return MISUSE
    try:
        jobs = philly.read_jobs(args.jobs)
        made = philly.plant(args.topo, args.nodes, args.per_leaf, args.oversubscription)
    except ConfigError as error:
        say("simulate", error)
        return MISUSE
    outcomes = [gangs.replay(name, rule(name, made), made, jobs, args.worker) for name in RULES]
    if args.json:
        answer({"rules": [asdict(outcome) for outcome in outcomes]})
        return OK
    heads = ("GB/s", "nodes", "leaves", "spread", "waits h", "span h")
    print(f"{'rule':<10}" + "".join(f"{head:>9}" for head in heads))
    for each in outcomes:
        print(
            f"{each.rule:<10}{each.bandwidth_gbs:>9.1f}{each.nodes:>9.3f}{each.leaves:>9.3f}"
            f"{each.spread:>9}{each.waiting_hours:>9.2f}{each.makespan_hours:>9.1f}"
        )
    return OK
