"""``muster explain``: why a gang waits, or where it is, in the words of the running service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from extender.commands import service
from extender.commands.common import MISUSE, OK, answer, json_flag, no, say

HELP = "say why a gang waits, or where it is"
DEFAULT_URL = "http://127.0.0.1:8900"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gang",
        nargs="?",
        metavar="NS/NAME",
        help="its PodGroup, its job or one of its pods; without it, every gang",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="of the service (default: %(default)s)")
    service.arguments(parser)
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        type=Path,
        help="ask a file instead: of /debug/snapshot, or a log of `serve --record` (as at its end)",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    return _of_service(args) if args.snapshot is None else _of_snapshot(args)


def _of_snapshot(args: argparse.Namespace) -> int:
    from extender.commands.snapshots import view
    from extender.core.errors import ConfigError, LogError

    try:
        gangs = view(args.snapshot)["gangs"]
    except (ConfigError, LogError) as error:
        say("explain", error)
        return MISUSE
    if args.gang is None:
        answer({"gangs": gangs}) if args.json else _print_all(gangs)
        return OK
    name = args.gang if "/" in args.gang else f"default/{args.gang}"
    found = next((gang for gang in gangs if gang["group"] == name), None) or next(
        (gang for gang in gangs if name in _members(gang)), None
    )
    if found is None:
        return no(args, "explain", f"no gang {name} in {args.snapshot}")
    answer(found) if args.json else _print_one(found)
    return OK


def _members(gang: dict[str, Any]) -> list[str]:
    namespace, _, _ = gang["group"].partition("/")
    return [f"{namespace}/{pod['name']}" for pod in gang["pods"]]


def _of_service(args: argparse.Namespace) -> int:
    from extender.core.errors import ConfigError, NoAnswer

    try:
        path = _path(args)
        service.reach(args)
    except ConfigError as error:
        say("explain", error)
        return MISUSE
    try:
        state = service.page(args, "/debug/state")
        if not isinstance(state, dict) or not {"synced", "leading"} <= state.keys():
            return no(args, "explain", f"{args.url}: answers something else: is that Muster?")
        if not state["synced"]:
            return no(
                args,
                "explain",
                f"{args.url}: the service has not read the cluster yet; see its log",
            )
        if not state["leading"]:
            say("explain", _standing_by(state))
        nothing = f"no gang {args.gang}: no PodGroup or job of that name, and no pod that is in one"
        found = service.page(args, path, nothing if args.gang is not None else "")
    except NoAnswer as error:
        return no(args, "explain", error)
    if args.json:
        answer(found if args.gang is not None else {"gangs": found})
    elif args.gang is not None:
        _print_one(found)
    else:
        _print_all(found)
    return OK


def _path(args: argparse.Namespace) -> str:
    """The page that is asked for. Raises ConfigError for words that cannot be meant."""
    from urllib.parse import quote

    from extender.core.errors import ConfigError

    if args.gang is None:
        return "/debug/gangs"
    namespace, _, name = args.gang.rpartition("/")
    if not name or "/" in namespace:
        raise ConfigError(f"{args.gang!r} is not allowed: NAMESPACE/NAME")
    return f"/debug/gangs/{quote(namespace or 'default', safe='')}/{quote(name, safe='')}"


def _standing_by(state: dict[str, Any]) -> str:
    """What a replica knows that does not lead: the cluster, but not why the other decided."""
    holder = state.get("leaseHolder")
    if holder and holder == state.get("identity"):
        return "this replica has taken the Lease, and leads when its last holder has surely stopped"
    who = f"the Lease is held by {holder}" if holder else "nobody is known to hold the Lease"
    return f"this replica stands by ({who}); reasons are the leader's to say"


def _print_one(gang: dict[str, Any]) -> None:
    members = ", ".join(f"{count} {state}" for state, count in gang["members"].items())
    print(f"{gang['group']} ({gang['kind']}): {gang['phase']}")
    print(f"  members   {members or 'none'}; at least {gang['minMember']}")
    for number, reason in enumerate(gang["reasons"]):
        print(f"  {'waits for' if number == 0 else '         '} {reason['message']}")
    if gang["plan"]:
        print(f"  on        {', '.join(gang['plan']['nodes'])}")
    for pod in gang["pods"]:
        print(f"    {pod['name']:<40} {pod['state']:<9} {pod['node']}".rstrip())


def _print_all(gangs: list[dict[str, Any]]) -> None:
    if not gangs:
        print("no gangs")
    for gang in gangs:
        placed = sum(gang["members"].get(state, 0) for state in ("Bound", "Finished"))
        total = sum(gang["members"].values())
        state = f"{gang['phase']:<10} {placed}/{total}"
        print(f"{gang['group']:<40} {state:<16} {gang['message']}".rstrip())
