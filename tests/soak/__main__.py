"""``python -m tests.soak --kills 200 --seed 1 --json``; or ``--judge FILE`` for a history that is there."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
from pathlib import Path

from tests.soak.run import judge, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    parser.add_argument("--keep", type=Path, help="a folder for logs and history.jsonl")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge a history.jsonl again")
    parser.add_argument("--slack", type=float, default=1.0, help="the machine is so much slower")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    if args.judge is not None:
        with args.judge.open() as lines:
            report = {"violations": judge(lines, args.slack)}
    else:
        with contextlib.ExitStack() as stack:
            folder = args.keep
            if folder is None:
                made = tempfile.TemporaryDirectory(prefix="muster-soak-")
                folder = Path(stack.enter_context(made))
            folder.mkdir(parents=True, exist_ok=True)
            limits = {"slack": args.slack, "minutes": args.minutes}
            report = asyncio.run(soak(args.kills, args.seed, folder, **limits))
    print(json.dumps(report, indent=None if args.json else 1))
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
