"""A running service, asked for one of its pages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from urllib.error import HTTPError

#: Seconds that the service may take to answer.
TIMEOUT = 10.0
#: Of a refusal's text that is shown.
_SAID_BYTES = 500
#: A page that says why it is not there is read so far.
_WHY_BYTES = 65536


def arguments(parser: argparse.ArgumentParser) -> None:
    """Beside ``--url``: who the service is, and who asks."""
    parser.add_argument("--ca", metavar="FILE", help="https: who signs the service's certificate")
    parser.add_argument("--cert", metavar="FILE", help="https: the client's certificate and key")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="https, on the admin port: a token (kubectl create token) of who may get /debug/*",
    )


def reach(args: argparse.Namespace) -> None:
    """Complete ``url``, read the token and certificates. Raises ConfigError for what cannot be meant."""
    from extender.core.errors import ConfigError

    if "://" not in args.url:
        args.url = f"http://{args.url}"
    if not args.url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {args.url!r} is not allowed: http:// or https://")
    args.token = _token(args.token_file) if args.token_file else ""
    args.context = _context(args) if args.url.startswith("https://") else None


def page(args: argparse.Namespace, path: str, nothing: str = "") -> Any:
    """A page's JSON, after :func:`reach`. ``nothing``: what it means that it is not there.

    Raises NoAnswer: there is no service, or it refuses.
    """
    import json
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from extender.core.errors import NoAnswer

    try:
        asked = Request(args.url.rstrip("/") + path)  # noqa: S310 - http(s), see reach()
        if args.token:
            asked.add_header("Authorization", f"Bearer {args.token}")
        with urlopen(asked, timeout=TIMEOUT, context=args.context) as reply:  # noqa: S310
            return json.load(reply)
    except HTTPError as error:
        raise NoAnswer(_refused(args, error, nothing)) from error
    except (OSError, HTTPException, ValueError) as error:  # ValueError: no JSON, no host's name
        raise NoAnswer(f"{args.url}: no answer: {_silent(args, error)}") from error


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


def _refused(args: argparse.Namespace, error: HTTPError, nothing: str) -> str:
    if error.code in (401, 403, 503):
        # Who may read is said in the page's own words.
        said = error.read(_SAID_BYTES).decode(errors="replace").strip()
        hint = " (--token-file)" if error.code == 401 and not args.token else ""
        return f"{args.url}: HTTP {error.code}: {said}{hint}"
    if error.code == 404 and nothing:
        return _why(error) or nothing
    return f"{args.url}: HTTP {error.code}: is that Muster?"


def _why(error: HTTPError) -> str:
    """What the page says of why it is not there; empty if it says nothing."""
    import json

    try:
        said = json.loads(error.read(_WHY_BYTES))
        return f"{said['error']}: {said['why']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _silent(args: argparse.Namespace, error: Exception) -> str:
    """Why there is no answer, with the option that is most likely missing."""
    from ssl import SSLCertVerificationError

    cause = getattr(error, "reason", None) or error
    hint = ""
    if isinstance(cause, SSLCertVerificationError):
        hint = " (--ca: who signed it?)"
    elif isinstance(cause, ConnectionRefusedError):
        hint = " (in a cluster: --url, docs/security.md)" if "//127.0.0.1:" in args.url else ""
    elif isinstance(cause, ConnectionError) and args.url.startswith("http:"):
        hint = " (is it https there?)"
    elif isinstance(cause, ConnectionError) and not args.cert:
        hint = " (does it ask for a certificate? --cert)"
    return f"{cause}{hint}"
