"""Probes, metrics, and the published state as JSON.

These pages only read the view, so a standby serves them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from extender.core.errors import ApiError
from extender.core.verdict import Copied, View
from extender.obs.metrics import CONTENT_TYPE, Metrics

#: The published state.
VIEW = web.AppKey("view", View)
#: What the shell knows and the core does not: version, holder of the Lease.
FACTS: web.AppKey[Callable[[], dict[str, Any]]] = web.AppKey("facts")
#: The metrics of the process.
METRICS = web.AppKey("metrics", Metrics)


def routes() -> list[web.RouteDef]:
    """The routes of an application that has :data:`VIEW` and :data:`METRICS`."""
    return [
        web.get("/healthz", healthz),
        web.get("/readyz", readyz),
        web.get("/metrics", metrics),
        web.get("/debug", index),
        web.get("/debug/", index),
        web.get("/debug/state", state),
        web.get("/debug/gangs", gangs),
        web.get("/debug/gangs/{namespace}/{name}", gang),
        web.get("/debug/nodes", nodes),
        web.get("/debug/plan", plan),
        web.get("/debug/snapshot", snapshot),
    ]


async def healthz(_: web.Request) -> web.Response:
    """200 while the process serves requests."""
    return web.Response(text="ok\n")


async def readyz(request: web.Request) -> web.Response:
    """200 when caches are synced and kernels warm, on every replica; else 503."""
    if request.app[VIEW].ready():
        return web.Response(text="ok\n")
    lines = ["caches are not synced yet", *request.app[FACTS]().get("notListed", ())]
    return web.Response(status=503, text="".join(f"{line}\n" for line in lines))


async def metrics(request: web.Request) -> web.Response:
    """Prometheus text format."""
    told = request.app[METRICS]
    view = request.app[VIEW]
    for phase, count in view.phases().items():
        told.gangs.labels(phase).set(count)
    reasons, since = view.waiting()
    # Reasons that no gang has any more are gone, not the last that was said of them.
    told.gangs_waiting.clear()
    for reason, count in reasons.items():
        told.gangs_waiting.labels(reason).set(count)
    told.waiting_since.set(since)
    told.nodes_avoided.set(view.avoided())
    told.ready.set(view.ready())
    body = told.render()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


#: What :func:`index` answers.
PATHS = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/debug/state",
    "/debug/gangs",
    "/debug/gangs/{namespace}/{name}",
    "/debug/nodes",
    "/debug/plan",
    "/debug/snapshot",
)


async def index(_: web.Request) -> web.Response:
    """What there is to look at."""
    return _json({"paths": PATHS})


async def state(request: web.Request) -> web.Response:
    """Leader, epoch, counts, generation, queue lengths."""
    return _json({**request.app[VIEW].state(), **request.app[FACTS]()})


async def gangs(request: web.Request) -> web.Response:
    """Every gang, in short."""
    return _json(request.app[VIEW].gangs())


async def gang(request: web.Request) -> web.Response:
    """One gang: group, phase, reasons, plan. 404 for one that does not exist."""
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    found = request.app[VIEW].gang(namespace, name)
    if found is None:
        why = request.app[VIEW].gangless(namespace, name)
        error = {"error": f"no gang {namespace}/{name}"} | ({"why": why} if why else {})
        return _json(error, status=404)
    return _json(found)


async def nodes(request: web.Request) -> web.Response:
    """Every node: what it has, what is used and reserved."""
    return _json(request.app[VIEW].nodes())


async def plan(request: web.Request) -> web.Response:
    """Every plan that holds capacity."""
    return _json(request.app[VIEW].plans())


async def snapshot(request: web.Request) -> web.StreamResponse:
    """A file for `muster explain --snapshot` and `muster simulate snapshot`.

    It is complete when it ends with a ``view``: what breaks off has none. 503 without an API server.
    """
    view = request.app[VIEW]
    if not isinstance(view, Copied) or view.objects is None:
        return _json({"error": "there is no cluster to be copied"}, status=404)
    lines = view.objects()
    try:
        some = [await anext(lines), await anext(lines)]
    except ApiError as error:
        return _json({"error": str(error)}, status=503)
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    await response.write(b"".join(some))
    async for more in lines:
        await response.write(more)
    await response.write_eof()
    return response


def _json(value: Any, status: int = 200) -> web.Response:
    # Columns are numpy, so a view may hand out its scalars.
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    return web.Response(status=status, body=body, content_type="application/json")
