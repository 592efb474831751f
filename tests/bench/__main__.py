"""``python -m tests.bench NAME --json``: benchmarks. Ratios within one run count, seconds do not."""

from __future__ import annotations

import argparse
import json
import sys

from tests.bench import choice, filtering, hold, lives, plan, prioritize, restart, throughput

BENCHES = {
    "plan": plan,
    "filter": filtering,
    "throughput": throughput,
    "hold": hold,
    "restart": restart,
    "choice": choice,
    "prioritize": prioritize,
    "lives": lives,
}


def main() -> None:
    top = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = top.add_subparsers(required=True, metavar="NAME", dest="name")
    for name, module in BENCHES.items():
        parser = names.add_parser(name, help=module.HELP, description=module.HELP)
        parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
        module.arguments(parser)
    args = top.parse_args()
    document = {"bench": args.name, **BENCHES[args.name].run(args)}
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        json.dump(document, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
