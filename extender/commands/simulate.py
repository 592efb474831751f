"""``muster simulate``: the service on clusters that are not there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.commands import openb, philly
from extender.commands.common import MISUSE, NO, OK, answer, json_flag, say

if TYPE_CHECKING:
    from extender.chaos.run import Outcome

HELP = "run the service against a simulated cluster"
_WHAT_IF = "which gangs that wait would be placed, and where, in a snapshot of a cluster"
_CHAOS = "faults drawn from seeds, and the invariants after every step"


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    openb.arguments(kinds.add_parser("openb", help=openb.WHAT, description=openb.WHAT))
    philly.arguments(kinds.add_parser("philly", help=philly.WHAT, description=philly.WHAT))
    chaos = kinds.add_parser("chaos", help=_CHAOS, description=_CHAOS)
    snapshot = kinds.add_parser("snapshot", help=_WHAT_IF, description=_WHAT_IF)
    snapshot.add_argument(
        "file", metavar="FILE", type=Path, help="of /debug/snapshot, or a log of `serve --record`"
    )
    snapshot.add_argument(
        "--nodes", type=int, default=0, metavar="N", help="add nodes (%(default)s)"
    )
    snapshot.add_argument("--like", default="", metavar="NAME", help="each like this node")
    json_flag(snapshot)
    chaos.add_argument("--seeds", type=int, default=100, metavar="N", help="runs (%(default)s)")
    chaos.add_argument("--first", type=int, default=0, metavar="S", help="first seed (%(default)s)")
    chaos.add_argument(
        "--processes", type=int, default=1, metavar="P", help="at the same time (%(default)s)"
    )
    chaos.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="make each run that fails as short as it goes, and write it to DIR for `muster replay`",
    )
    chaos.add_argument(
        "--diary", action="store_true", help="tell on stderr what happened in the runs that fail"
    )
    json_flag(chaos)


def run(args: argparse.Namespace) -> int:
    if args.what == "openb":
        return openb.run(args)
    if args.what == "philly":
        return philly.run(args)
    return _what_if(args) if args.what == "snapshot" else _chaos(args)


def _what_if(args: argparse.Namespace) -> int:
    from extender.commands.snapshots import what_if
    from extender.core.errors import ConfigError, LogError

    if args.nodes < 0 or (args.nodes and not args.like):
        say("simulate", "--nodes must be at least 0, and --like name the node that they are like")
        return MISUSE
    try:
        gangs = what_if(args.file, args.nodes, args.like)
    except (ConfigError, LogError) as error:
        say("simulate", error)
        return MISUSE
    if args.json:
        answer({"gangs": gangs})
        return OK
    for gang in gangs:
        nodes = ", ".join(gang["plan"]["nodes"]) if gang["plan"] else gang["message"]
        print(f"{gang['group']:<40} {'placed on' if gang['plan'] else 'waits: '} {nodes}".rstrip())
    placed = sum(gang["plan"] is not None for gang in gangs)
    print(f"{placed} of {len(gangs)} gangs that wait would be placed")
    return OK


def _chaos(args: argparse.Namespace) -> int:
    from extender.chaos import run as chaos

    if args.seeds < 1 or args.first < 0 or args.processes < 1:
        say("simulate", "--seeds and --processes must be at least 1, and --first at least 0")
        return MISUSE
    if args.logs is not None:
        try:
            args.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            say("simulate", f"--logs {args.logs}: {error.strerror}")
            return MISUSE
    chaos.silence()
    steps = faults = 0
    violations: list[dict[str, Any]] = []
    for outcome in chaos.simulate(args.seeds, args.first, args.processes):
        steps, faults = steps + outcome.steps, faults + outcome.faults
        if not outcome.violations:
            continue
        violations += _violations(outcome)
        if args.logs is not None:
            outcome = _written(outcome, args.logs)
        if not args.json:
            for each in outcome.violations:
                print(f"seed {outcome.seed} step {each.step} {each.invariant}: {each.message}")
        if args.diary:
            for line in outcome.diary:
                say(f"simulate: seed {outcome.seed}", line)
    if args.json:
        answer({"seeds": args.seeds, "steps": steps, "faults": faults, "violations": violations})
    else:
        print(f"{args.seeds} seeds, {steps} steps, {faults} faults, {len(violations)} violations")
    return NO if violations else OK


def _violations(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            "seed": outcome.seed,
            "step": each.step,
            "invariant": each.invariant,
            "message": each.message,
        }
        for each in outcome.violations
    ]


def _written(outcome: Outcome, directory: Path) -> Outcome:
    """The shortest run that fails alike, as a file that can be played again."""
    from extender.chaos import log
    from extender.chaos.shrink import shrink

    acts, outcome = len(outcome.script.acts), shrink(outcome)
    path = directory / f"chaos-{outcome.seed}.jsonl"
    log.write(outcome, path)
    left = len(outcome.script.acts)
    say("simulate", f"seed {outcome.seed}: {left} of {acts} acts are left: muster replay {path}")
    return outcome
