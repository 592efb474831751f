"""``muster demo``: the whole path on a cluster of its own, in seconds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, no, say

HELP = "watch a job wait whole and land whole, on a cluster made for it"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--real",
        action="store_true",
        help="with etcd, kube-apiserver and kube-scheduler in place of the stand-ins",
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write a picture of it")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    import asyncio

    from extender.core.errors import ConfigError
    from extender.demo.run import demo
    from extender.obs import log
    from extender.sim.binaries import BuildError
    from extender.sim.realplane import StartError

    if args.svg is not None and (wrong := _unwritable(args.svg)):
        say("demo", f"--svg: {wrong}")
        return MISUSE
    log.configure("console", "error")
    try:
        stream = sys.stderr if args.json else sys.stdout
        result = asyncio.run(demo(stream, real=args.real, picture=args.svg))
    except ConfigError as error:
        say("demo", error)
        return MISUSE
    except (BuildError, StartError, OSError) as error:
        return no(args, "demo", error)
    except asyncio.CancelledError:
        return no(args, "demo", "stopped by a fault of the service; see the log")
    if args.json:
        answer(result)
    return OK if result["ok"] else NO


def _unwritable(picture: Path) -> str:
    """Why a picture could not be written there; empty if it could. Known before the story begins."""
    if not picture.resolve().parent.is_dir():
        return f"{picture.parent} is no folder"
    try:
        with picture.open("ab"):
            return ""
    except OSError as error:
        return f"{picture}: {error.strerror}"
