"""kube-scheduler's side of the extender protocol, byte for byte as 1.37 sends and reads it.

A failure is a value, the text that kube-scheduler would show. Source: kubernetes
``pkg/scheduler/extender.go``, kube-scheduler ``extender/v1/types.go``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import orjson
from msgspec import Struct

from extender.core.objects import Manifest

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


#: (URL, body, seconds to wait) to status and body, or why there is no answer, in Go's words.
Post = Callable[[str, bytes, float], Awaitable[tuple[int, bytes] | str]]

TIMED_OUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


class Extender(Struct, frozen=True):
    """One entry of KubeSchedulerConfiguration's ``extenders``; ``http_timeout`` in seconds."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    http_timeout: float = 5.0
    node_cache_capable: bool = True
    managed_resources: tuple[str, ...] = ()
    ignorable: bool = False

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Extender:
        """Read an entry as it stands in the YAML file."""
        timeout = str(entry.get("httpTimeout") or "5s")
        return cls(
            url_prefix=entry["urlPrefix"],
            filter_verb=entry.get("filterVerb") or "",
            prioritize_verb=entry.get("prioritizeVerb") or "",
            preempt_verb=entry.get("preemptVerb") or "",
            bind_verb=entry.get("bindVerb") or "",
            weight=entry.get("weight") or 1,
            http_timeout=sum(float(n) * _SECONDS[u] for n, u in _DURATION.findall(timeout)),
            node_cache_capable=bool(entry.get("nodeCacheCapable")),
            managed_resources=tuple(item["name"] for item in entry.get("managedResources") or ()),
            ignorable=bool(entry.get("ignorable")),
        )

    def interested(self, pod: Manifest) -> bool:
        """Whether this pod is sent: it asks for a managed resource, or there is none."""
        if not self.managed_resources:
            return True
        spec = pod["spec"]
        return any(
            name in (container.get("resources") or {}).get(kind, {})
            for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
            for kind in ("requests", "limits")
            for name in self.managed_resources
        )


class Filtered(Struct, frozen=True):
    """The answer to filter: names that pass, and both maps of refusals; or an error."""

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""


async def filter_nodes(
    post: Post, extender: Extender, pod: Manifest, nodes: Sequence[Manifest]
) -> Filtered:
    """Ask which of ``nodes`` (Node objects) may take the pod."""
    answer = await _send(post, extender, extender.filter_verb, _args(extender, pod, nodes))
    if isinstance(answer, str):
        return Filtered(error=answer)
    fields = _fields(answer)
    if error := fields.get("error"):
        return Filtered(error=str(error))
    passed: list[str] = []
    if extender.node_cache_capable and fields.get("nodenames") is not None:
        passed = list(fields["nodenames"])
        asked = {node["metadata"]["name"] for node in nodes}
        for name in passed:
            if name not in asked:
                return Filtered(
                    error=f'extender "{extender.url_prefix}" claims a filtered node "{name}" which is'
                    " not found in the input node list"
                )
    elif fields.get("nodes") is not None:
        passed = [node["metadata"]["name"] for node in fields["nodes"].get("items") or ()]
    return Filtered(
        tuple(passed),
        fields.get("failednodes") or {},
        fields.get("failedandunresolvablenodes") or {},
    )


async def prioritize(
    post: Post, extender: Extender, pod: Manifest, nodes: Sequence[Manifest]
) -> dict[str, int]:
    """Scores 0..10 by node, unweighted; empty when the extender fails, which is not an error."""
    answer = await _send(post, extender, extender.prioritize_verb, _args(extender, pod, nodes))
    if not isinstance(answer, list):
        return {}
    scores: dict[str, int] = {}
    for item in answer:
        fields = _fields(item)
        score = fields.get("score", 0)
        if type(score) is not int:
            return {}  # Go refuses the whole list for one score that is no int64
        scores[str(fields.get("host", ""))] = score
    return scores


async def preempt(
    post: Post, extender: Extender, pod: Manifest, victims: Mapping[str, Sequence[Manifest]]
) -> dict[str, list[Manifest]] | str:
    """Which of the victims (by node) may go; or the error as text."""
    whole = meta = None
    if extender.node_cache_capable:
        meta = {
            node: {
                "Pods": [{"UID": victim["metadata"]["uid"]} for victim in pods],
                "NumPDBViolations": 0,
            }
            for node, pods in victims.items()
        }
    else:
        whole = {
            node: {"Pods": [_untyped(victim) for victim in pods], "NumPDBViolations": 0}
            for node, pods in victims.items()
        }
    args = {
        "Pod": _untyped(pod),
        "NodeNameToVictims": whole,
        "NodeNameToMetaVictims": meta,
    }
    answer = await _send(post, extender, extender.preempt_verb, args)
    if isinstance(answer, str):
        return answer
    allowed: dict[str, list[Manifest]] = {}
    for node, entry in (_fields(answer).get("nodenametometavictims") or {}).items():
        uids = {_fields(item)["uid"] for item in _fields(entry).get("pods") or ()}
        chosen = [each for each in victims.get(node, ()) if each["metadata"]["uid"] in uids]
        if not chosen:
            return f'expected at least one victim pod on node "{node}"'
        allowed[node] = chosen
    return allowed


async def bind(post: Post, extender: Extender, pod: Manifest, node: str) -> str:
    """Ask the extender to bind; "" when it says that it did, else the error."""
    meta = pod["metadata"]
    args = {
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": node,
    }
    answer = await _send(post, extender, extender.bind_verb, args)
    if isinstance(answer, str):
        return answer
    return str(_fields(answer).get("error") or "")


def _args(extender: Extender, pod: Manifest, nodes: Sequence[Manifest]) -> Manifest:
    names = items = None
    if extender.node_cache_capable:
        names = [node["metadata"]["name"] for node in nodes]
    else:
        items = {"metadata": {}, "items": [_untyped(node) for node in nodes]}
    return {"Pod": _untyped(pod), "Nodes": items, "NodeNames": names}


def _untyped(obj: Manifest) -> Manifest:
    """Objects from an informer carry neither kind nor apiVersion."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _fields(answer: Any) -> dict[str, Any]:
    """Go reads member names without regard to case."""
    if not isinstance(answer, dict):
        return {}
    return {key.lower(): value for key, value in answer.items()}


async def _send(post: Post, extender: Extender, verb: str, args: Manifest) -> Any:
    """The decoded answer, or the error as text; only 200 is success, other bodies are not read."""
    url = f"{extender.url_prefix.rstrip('/')}/{verb}"
    reply = await post(url, orjson.dumps(args), extender.http_timeout)
    if isinstance(reply, str):
        return f'Post "{url}": {reply}'
    code, body = reply
    if code != 200:
        return f"failed {verb} with extender at URL {url}, code {code}"
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return f"invalid answer: {error}"


def over_http(session: aiohttp.ClientSession) -> Post:
    """The way that kube-scheduler takes."""

    async def post(url: str, body: bytes, seconds: float) -> tuple[int, bytes] | str:
        try:
            async with session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                return answer.status, await answer.read() if answer.status == 200 else b""
        except TimeoutError:
            return TIMED_OUT
        except aiohttp.ClientConnectorError as error:
            return f"dial tcp {error.host}:{error.port}: connect: connection refused"
        except (aiohttp.ClientError, ConnectionError):
            return "EOF"

    return post
