"""A KubeSchedulerConfiguration: what kube-scheduler would refuse, what breaks gangs, and whether
it says the same as muster.yaml.

Source: kubernetes pkg/scheduler/apis/config/validation (validateExtenders), pkg/scheduler/extender.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from extender.commands.checks import schema
from extender.commands.checks.problem import Document, Problem
from extender.commands.checks.schedulerfields import FIELDS
from extender.settings import Muster

KIND = "KubeSchedulerConfiguration"
#: kube-scheduler's own defaults, in seconds.
DEFAULT_TIMEOUT, DEFAULT_MAX_BACKOFF = 5.0, 10.0
#: What Muster answers, by the field that names it.
_VERBS = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "bindVerb": "bind",
    "preemptVerb": "preempt",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Entry:
    """An extender entry, and where it stands."""

    field: str
    body: dict[str, Any]

    def asks(self, verb: str) -> bool:
        """Whether it has, say, ``bindVerb``."""
        return bool(self.body.get(verb))

    def timeout(self) -> float | None:
        """Seconds; None for what is no duration."""
        return _seconds(self.body.get("httpTimeout"), DEFAULT_TIMEOUT)

    def managed(self) -> list[str]:
        """Names of its managedResources."""
        return [str(item["name"]) for item in _maps(self.body.get("managedResources"))]


def check(document: Document, muster: Muster, *, given: bool) -> Iterator[Problem]:
    """Problems of the configuration; ``given``: muster.yaml was, so that they are compared."""
    body = document.body
    for each in schema.strange(FIELDS, body):
        yield document.problem(each.field, each.message)
    whole = [
        Entry(f"extenders[{index}]", entry)
        for index, entry in enumerate(_maps(body.get("extenders")))
    ]
    yield from _valid(document, whole)
    ours = [entry for entry in whole if _is_muster(entry, muster)]
    if not ours:
        path = muster.listen.prefix
        yield document.problem(
            "extenders", f"no entry whose urlPrefix ends in {path}: not Muster's"
        )
        return
    for entry in ours:
        yield from _entry(document, entry)
    yield from _verbs(document, ours)
    share = body.get("percentageOfNodesToScore")
    if share != 100:
        yield document.problem(
            "percentageOfNodesToScore",
            f"{share!r} is not allowed: 100, or a sample of the nodes leaves the planned one out",
        )
    if given:
        yield from _compared(document, ours, muster)


def _valid(document: Document, entries: list[Entry]) -> Iterator[Problem]:
    """What kube-scheduler itself does not start with."""
    if sum(entry.asks("bindVerb") for entry in entries) > 1:
        yield document.problem("extenders", "only one entry may have bindVerb")
    seen: set[str] = set()
    for entry in entries:
        weight = entry.body.get("weight", 0)
        if entry.asks("prioritizeVerb") and not (isinstance(weight, int) and weight > 0):
            yield document.problem(
                f"{entry.field}.weight", f"{weight!r} is not allowed: more than 0"
            )
        if entry.timeout() is None:
            value = entry.body.get("httpTimeout")
            yield document.problem(
                f"{entry.field}.httpTimeout", f"{value!r} is not allowed: a duration like 2s"
            )
        for name in entry.managed():
            if name in seen:
                yield document.problem(
                    f"{entry.field}.managedResources", f"{name} is managed by two entries"
                )
            seen.add(name)


def _entry(document: Document, entry: Entry) -> Iterator[Problem]:
    """What every entry of Muster's must say."""
    if entry.body.get("nodeCacheCapable") is not True:
        yield document.problem(
            f"{entry.field}.nodeCacheCapable",
            "must be true: otherwise whole nodes are sent, and since 1.33 the in-tree scores are lost",
        )
    if entry.body.get("ignorable"):
        yield document.problem(
            f"{entry.field}.ignorable",
            "must be false: members would be scheduled, and since 1.30 bound, one by one",
        )
    for field, verb in _VERBS.items():
        if entry.asks(field) and entry.body[field] != verb:
            yield document.problem(
                f"{entry.field}.{field}", f"{entry.body[field]!r} is not allowed: {verb}"
            )
    url = str(entry.body.get("urlPrefix"))
    if entry.body.get("enableHTTPS"):
        if not url.startswith("https://"):
            yield document.problem(
                f"{entry.field}.urlPrefix", "enableHTTPS does not change the scheme: https://"
            )
        tls = entry.body.get("tlsConfig") or {}
        if not (tls.get("caFile") or tls.get("caData")):
            yield document.problem(
                f"{entry.field}.tlsConfig", "without a CA nothing is verified", "warning"
            )


def _verbs(document: Document, ours: list[Entry]) -> Iterator[Problem]:
    for verb, severity in (
        ("filterVerb", "error"),
        ("bindVerb", "error"),
        ("preemptVerb", "warning"),
    ):
        if not any(entry.asks(verb) for entry in ours):
            what = "a running gang could be broken by preemption" if severity == "warning" else ""
            message = f"no entry of Muster's has {verb}" + (f": {what}" if what else "")
            yield Problem(
                document.file, document.title, "extenders",
                "warning" if severity == "warning" else "error", message,
            )  # fmt: skip
    managed = {tuple(sorted(entry.managed())) for entry in ours}
    if len(managed) > 1:
        yield document.problem(
            "extenders", "Muster's entries differ in managedResources: what one plans another binds"
        )
    for entry in ours:
        both = entry.asks("filterVerb") and entry.asks("bindVerb")
        if both and not entry.managed():
            yield document.problem(
                entry.field,
                "filter and bind share one httpTimeout: use two entries on one urlPrefix,"
                " a short one for filter and a long one for bind",
                "warning",
            )


def _compared(document: Document, ours: list[Entry], muster: Muster) -> Iterator[Problem]:
    """Against muster.yaml."""
    for entry in ours:
        yield from _address(document, entry, muster)
        timeout = entry.timeout()
        if not entry.asks("bindVerb") or timeout is None:
            continue
        want = muster.bind_timeout_seconds
        if timeout < want:
            yield document.problem(
                f"{entry.field}.httpTimeout",
                f"{timeout:g} s is less than muster.yaml's bindTimeoutSeconds ({want:g}):"
                " kube-scheduler would give up while Muster still holds the bind",
            )
        elif timeout > want:
            yield document.problem(
                f"{entry.field}.httpTimeout",
                f"{timeout:g} s is more than muster.yaml's bindTimeoutSeconds ({want:g}):"
                " the rest is not used",
                "warning",
            )
    yield from _backoff(document, muster)
    yield from _profiles(document, muster)
    managed = sorted({name for entry in ours for name in entry.managed()})
    if managed != sorted(muster.managed_resources):
        yield document.problem(
            "extenders",
            f"managedResources ({', '.join(managed) or 'none'}) differ from muster.yaml's"
            f" ({', '.join(muster.managed_resources) or 'none'})",
        )


def _address(document: Document, entry: Entry, muster: Muster) -> Iterator[Problem]:
    """Where Muster is asked, and where it listens. A Service may lie between: warnings."""
    url, listen = urlsplit(str(entry.body.get("urlPrefix"))), muster.listen
    field = f"{entry.field}.urlPrefix"
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        yield document.problem(field, f"{entry.body['urlPrefix']!r} is not allowed: no such port")
        return
    if port != listen.port:
        message = f"port {port} is not muster.yaml's listen.port ({listen.port})"
        yield document.problem(field, message, "warning")
    if listen.host in _LOOPBACK and url.hostname not in _LOOPBACK:
        message = f"{url.hostname} cannot reach muster.yaml's listen.host ({listen.host})"
        yield document.problem(field, message, "warning")
    scheme = "https" if muster.tls else "http"
    if url.scheme != scheme and not entry.body.get("enableHTTPS"):
        message = f"{url.scheme}:// but muster.yaml's Muster speaks {scheme} (muster.tls)"
        yield document.problem(field, message, "warning")
    client = entry.body.get("tlsConfig") or {}
    if (
        muster.tls
        and url.scheme == "https"
        and not (client.get("certFile") or client.get("certData"))
    ):
        message = "no certFile: muster.yaml's Muster serves only clients with a certificate"
        yield document.problem(f"{entry.field}.tlsConfig", message)


def _backoff(document: Document, muster: Muster) -> Iterator[Problem]:
    value = document.body.get("podMaxBackoffSeconds", DEFAULT_MAX_BACKOFF)
    want = muster.pod_max_backoff_seconds
    if not isinstance(value, int | float) or isinstance(value, bool):
        yield document.problem("podMaxBackoffSeconds", f"{value!r} is not allowed: seconds")
    elif value > want:
        yield document.problem(
            "podMaxBackoffSeconds",
            f"{value:g} is more than muster.yaml's ({want:g}): a member that failed once would"
            " come after the barrier gave up",
        )
    elif value < want:
        yield document.problem(
            "podMaxBackoffSeconds",
            f"{value:g} is less than muster.yaml's ({want:g}): barriers wait longer than they need",
            "warning",
        )


def _profiles(document: Document, muster: Muster) -> Iterator[Problem]:
    """Extenders apply to every profile, and Muster must know them all."""
    names = [
        str(profile.get("schedulerName") or "default-scheduler")
        for profile in _maps(document.body.get("profiles"))
    ] or ["default-scheduler"]
    known = ", ".join(muster.scheduler_names)
    for index, name in enumerate(names):
        if name not in muster.scheduler_names:
            yield document.problem(
                f"profiles[{index}].schedulerName",
                f"{name!r} is not among muster.yaml's schedulerNames ({known}): Muster would take"
                " gangs of this profile for another scheduler's",
            )


def _is_muster(entry: Entry, muster: Muster) -> bool:
    path = urlsplit(str(entry.body.get("urlPrefix"))).path.rstrip("/")
    return path == muster.listen.prefix.rstrip("/")


def _maps(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _seconds(value: Any, default: float) -> float | None:
    """A Go duration; absent and zero are the default."""
    if value in (None, 0, "0", "0s"):
        return default
    if not isinstance(value, str) or not re.fullmatch(rf"({_DURATION.pattern})+", value):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(value))
