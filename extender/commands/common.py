"""What commands share: exit codes, and where words go."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

#: The command did what was asked.
OK = 0
#: The answer is no: a problem was found, a gang does not exist, a service does not answer. That a
#: gang waits is an answer of `muster explain`, and no "no".
NO = 1
#: Wrong use or bad input.
MISUSE = 2


def json_flag(parser: argparse.ArgumentParser) -> None:
    """``--json``, which every command takes."""
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def say(command: str, message: object) -> None:
    """A sentence for people, on stderr."""
    print(f"muster {command}: {message}", file=sys.stderr)


def no(args: argparse.Namespace, command: str, message: object) -> int:
    """The answer is no, as the sentence says; with ``--json`` a script gets it in a document, too."""
    say(command, message)
    if args.json:
        answer({"error": str(message)})
    return NO


def answer(document: Any) -> None:
    """The one JSON document on stdout."""
    print(json.dumps(document, indent=2, ensure_ascii=False))
