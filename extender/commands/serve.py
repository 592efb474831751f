"""``muster serve``: the service itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from extender.commands.common import MISUSE, OK, answer, json_flag, no, say

HELP = "run the scheduler extender and the controller"

#: Allocations between two collections until the first lists are read. Nearly all that is made by
#: then stays, so that a third of a large cluster's start would be spent on looking at it.
GC_STARTING = 200_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", required=True, help="muster.yaml")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        help="write what the core is told and what it answers, for `muster replay`: without secrets,"
        " in files of 48 MiB or what the cluster's objects need, the last five of them",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    import asyncio
    import gc

    gc.set_threshold(GC_STARTING)

    from extender import runtime, settings
    from extender.core.errors import ConfigError
    from extender.obs import log

    # Modules stay, too.
    gc.freeze()
    try:
        given = settings.load(args.config)
        log.configure(args.log_format, args.log_level)
        asyncio.run(runtime.serve_forever(given, args.record))
    except ConfigError as error:
        say("serve", error)
        return MISUSE
    except OSError as error:
        # The port is taken, a certificate cannot be read.
        return no(
            args, "serve", error.strerror if error.filename is None and error.strerror else error
        )
    except asyncio.CancelledError:
        # A task of the service failed and took it down; the log says which and why.
        return no(args, "serve", "stopped by a fault; see the log")
    if args.json:
        answer({"stopped": True})
    return OK
