"""``python -m tests.soak --kills 200 --seed 1 --json``; or ``--judge FILE`` for a history that is there."""

from __future__ import annotations

import argparse
import asyncio
import json
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
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    if args.judge is not None:
        with args.judge.open() as lines:
            report = {"violations": judge(lines)}
    elif args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(soak(args.kills, args.seed, args.keep))
    else:
        with tempfile.TemporaryDirectory(prefix="muster-soak-") as folder:
            report = asyncio.run(soak(args.kills, args.seed, Path(folder)))
    print(json.dumps(report, indent=None if args.json else 1))
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
