"""The command line: ``muster COMMAND``.

Modules of commands are light; what they need to run is imported when they run, so that help and
mistakes answer at once.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from extender import __version__
from extender.commands import agent, check, demo, explain, replay, serve, simulate, topo
from extender.commands.options import Parser

COMMANDS = {
    "serve": serve,
    "demo": demo,
    "explain": explain,
    "check": check,
    "simulate": simulate,
    "replay": replay,
    "topo": topo,
    "agent": agent,
}


#: What a write that nothing is wrong with meets on a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0 ok, 1 the answer is no, 2 wrong use or bad input."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `muster explain | head` has read enough. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _FULL:
            raise
        print(f"muster: cannot write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    return code


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments."""
    top = Parser(
        prog="muster",
        description="Places a whole distributed-training job at once, or not at all.",
    )
    top.add_argument("--version", action="version", version=f"muster {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(command)
        command.set_defaults(run=module.run)
    return top


if __name__ == "__main__":
    sys.exit(main())
