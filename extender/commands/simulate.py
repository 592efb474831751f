"""``muster simulate``: the service on clusters that are not there."""

from __future__ import annotations

import argparse

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, say

HELP = "run the service against a simulated cluster"
_CHAOS = "faults drawn from seeds, and the invariants after every step"


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    chaos = kinds.add_parser("chaos", help=_CHAOS, description=_CHAOS)
    chaos.add_argument("--seeds", type=int, default=100, metavar="N", help="runs (%(default)s)")
    chaos.add_argument("--first", type=int, default=0, metavar="S", help="first seed (%(default)s)")
    chaos.add_argument(
        "--diary", action="store_true", help="tell on stderr what happened in the runs that fail"
    )
    json_flag(chaos)


def run(args: argparse.Namespace) -> int:
    from extender.chaos.run import simulate
    from extender.obs import log

    if args.seeds < 1 or args.first < 0:
        say("simulate", "--seeds must be at least 1 and --first at least 0")
        return MISUSE
    # What the service says of faults is expected here, thousands of times.
    log.configure("console", "critical")
    steps = 0
    violations = []
    for outcome in simulate(args.seeds, args.first):
        steps += outcome.steps
        for each in outcome.violations:
            violations.append(
                {
                    "seed": outcome.seed,
                    "step": each.step,
                    "invariant": each.invariant,
                    "message": each.message,
                }
            )
            if not args.json:
                print(f"seed {outcome.seed} step {each.step} {each.invariant}: {each.message}")
        if outcome.violations and args.diary:
            for line in outcome.diary:
                say(f"simulate: seed {outcome.seed}", line)
    if args.json:
        answer({"seeds": args.seeds, "steps": steps, "violations": violations})
    else:
        print(f"{args.seeds} seeds, {steps} steps, {len(violations)} violations")
    return NO if violations else OK
