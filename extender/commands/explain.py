"""``muster explain``: why a gang waits, or where it is, in the words of the running service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.commands.common import MISUSE, NO, OK, answer, json_flag, say

if TYPE_CHECKING:
    import ssl
    from urllib.error import HTTPError

HELP = "say why a gang waits, or where it is"
DEFAULT_URL = "http://127.0.0.1:8900"
#: Seconds that the service may take to answer.
TIMEOUT = 10.0
#: Of a refusal's text that is shown.
_SAID_BYTES = 500


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gang", nargs="?", metavar="NS/NAME", help="its PodGroup or job; without it, every gang"
    )
    parser.add_argument("--url", default=DEFAULT_URL, help="of the service (default: %(default)s)")
    parser.add_argument("--ca", metavar="FILE", help="https: who signs the service's certificate")
    parser.add_argument("--cert", metavar="FILE", help="https: the client's certificate and key")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="https, on the admin port: a token (kubectl create token) of who may get /debug/*",
    )
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
    found = next((gang for gang in gangs if gang["group"] == name), None)
    if found is None:
        say("explain", f"no gang {name} in {args.snapshot}")
        return NO
    answer(found) if args.json else _print_one(found)
    return OK


def _of_service(args: argparse.Namespace) -> int:
    from http.client import HTTPException
    from urllib.error import HTTPError

    from extender.core.errors import ConfigError

    try:
        path = _path(args)
    except ConfigError as error:
        say("explain", error)
        return MISUSE
    try:
        state = _get(args, "/debug/state")
        if not isinstance(state, dict) or not {"synced", "leading"} <= state.keys():
            say("explain", f"{args.url}: answers something else: is that Muster?")
            return NO
        if not state["synced"]:
            say("explain", f"{args.url}: the service has not read the cluster yet; see its log")
            return NO
        if not state["leading"]:
            say("explain", _standing_by(state))
        found = _get(args, path)
    except HTTPError as error:
        say("explain", _refused(args, error))
        return NO
    except (OSError, HTTPException, ValueError) as error:  # ValueError: no JSON, no host's name
        say("explain", f"{args.url}: no answer: {_silent(args, error)}")
        return NO
    if args.json:
        answer(found if args.gang is not None else {"gangs": found})
    elif args.gang is not None:
        _print_one(found)
    else:
        _print_all(found)
    return OK


def _path(args: argparse.Namespace) -> str:
    """The page that is asked for; ``url`` is completed, ``token`` and certificates are read.

    Raises ConfigError for words that cannot be meant.
    """
    from urllib.parse import quote

    from extender.core.errors import ConfigError

    path = "/debug/gangs"
    if args.gang is not None:
        namespace, _, name = args.gang.rpartition("/")
        if not name or "/" in namespace:
            raise ConfigError(f"{args.gang!r} is not allowed: NAMESPACE/NAME")
        path += f"/{quote(namespace or 'default', safe='')}/{quote(name, safe='')}"
    if "://" not in args.url:
        args.url = f"http://{args.url}"
    if not args.url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {args.url!r} is not allowed: http:// or https://")
    args.token, args.context = "", None
    if args.token_file:
        args.token = _token(args.token_file)
    if args.url.startswith("https://"):
        args.context = _context(args)
    return path


def _token(file: str) -> str:
    from extender.core.errors import ConfigError

    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file: {file}: cannot be read: {error}") from error
    if not token.isascii() or not token.isprintable() or " " in token:
        # What is in the file is nobody's business but its owner's.
        raise ConfigError(f"--token-file: {file}: holds no token: one word of ASCII is allowed")
    return token


def _context(args: argparse.Namespace) -> ssl.SSLContext:
    import ssl

    from extender.core.errors import ConfigError

    option, file = "--ca", args.ca
    try:
        context = ssl.create_default_context(cafile=args.ca)
        option, file = "--cert", args.cert
        if args.cert:
            context.load_cert_chain(args.cert)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{option}: {file}: cannot be used: {said}") from error
    return context


def _refused(args: argparse.Namespace, error: HTTPError) -> str:
    if error.code in (401, 403, 503):
        # Who may read is said in the page's own words.
        said = error.read(_SAID_BYTES).decode(errors="replace").strip()
        hint = " (--token-file)" if error.code == 401 and not args.token else ""
        return f"{args.url}: HTTP {error.code}: {said}{hint}"
    if error.code == 404 and args.gang is not None:
        return f"no gang {args.gang}: no PodGroup, job or pod of that name"
    return f"{args.url}: HTTP {error.code}: is that Muster?"


def _silent(args: argparse.Namespace, error: Exception) -> str:
    """Why there is no answer, with the option that is most likely missing."""
    from ssl import SSLCertVerificationError

    cause = getattr(error, "reason", None) or error
    hint = ""
    if isinstance(cause, SSLCertVerificationError):
        hint = " (--ca: who signed it?)"
    elif isinstance(cause, ConnectionRefusedError):
        hint = " (in a cluster: --url, docs/security.md)" if args.url == DEFAULT_URL else ""
    elif isinstance(cause, ConnectionError) and args.url.startswith("http:"):
        hint = " (is it https there?)"
    elif isinstance(cause, ConnectionError) and not args.cert:
        hint = " (does it ask for a certificate? --cert)"
    return f"{cause}{hint}"


def _standing_by(state: dict[str, Any]) -> str:
    """What a replica knows that does not lead: the cluster, but not why the other decided."""
    holder = state.get("leaseHolder")
    if holder and holder == state.get("identity"):
        return "this replica has taken the Lease, and leads when its last holder has surely stopped"
    who = f"the Lease is held by {holder}" if holder else "nobody is known to hold the Lease"
    return f"this replica stands by ({who}); reasons are the leader's to say"


def _get(args: argparse.Namespace, path: str) -> Any:
    import json
    from urllib.request import Request, urlopen

    asked = Request(args.url.rstrip("/") + path)  # noqa: S310 - http(s), see run()
    if args.token:
        asked.add_header("Authorization", f"Bearer {args.token}")
    with urlopen(asked, timeout=TIMEOUT, context=args.context) as reply:  # noqa: S310
        return json.load(reply)


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
