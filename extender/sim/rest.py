"""The API server's REST rules without a socket: a request value in, an answer value out.

Everything but watch, which needs a connection. Not there: discovery (beyond ``/version`` and
health), server-side apply, OpenAPI, authorization. A strategic merge patch is taken as a merge
patch, so lists are replaced, not merged by key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import orjson
from msgspec import Struct

from extender.core import api
from extender.core.api import Resource
from extender.core.errors import ApiError
from extender.core.objects import Manifest
from extender.sim import selectors, statuses
from extender.sim.kinds import Kind
from extender.sim.patches import json_patch, merge
from extender.sim.selectors import Selector
from extender.sim.store import Store

#: Largest body that kube-apiserver reads.
BODY_LIMIT = 3 * 1024 * 1024

_VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.2", "platform": "linux/amd64"}
_HEALTH = ("healthz", "livez", "readyz")
_MERGE = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_PARTIAL = "as=PartialObjectMetadata"


class Request(Struct, frozen=True):
    """One HTTP request. ``path`` is decoded; ``query`` has the last value of each key."""

    method: str
    path: str
    query: dict[str, str] = {}
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = ""


class Answer(Struct, frozen=True):
    """Status code and JSON body (text bodies for health)."""

    code: int
    body: bytes
    content_type: str = "application/json"


class Target(Struct, frozen=True):
    """What a path names: a kind, and maybe a namespace, an object and its subresource."""

    kind: Kind
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> Resource:
        return self.kind.resource


class Rest:
    """The verbs of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def handle(self, request: Request) -> Answer:
        """Answer any request but a watch; errors become Status objects."""
        parts = [part for part in request.path.split("/") if part]
        if parts and parts[0] in _HEALTH:
            return Answer(200, b"ok", "text/plain")
        if parts == ["version"]:
            return Answer(200, orjson.dumps(_VERSION))
        target = None
        try:
            target = self.target(request.path)
            if len(request.body) > BODY_LIMIT:
                raise statuses.too_large(BODY_LIMIT)
            code, answer = self._verb(request, target)
        except ApiError as error:
            code = error.code
            if target is None:
                answer = statuses.render(error)
            else:
                answer = statuses.render(error, target.resource, target.name)
        return Answer(code, orjson.dumps(answer))

    def target(self, path: str) -> Target:
        """Read a URL path; 404 when nothing is served there."""
        parts = [part for part in path.split("/") if part]
        if parts[:1] == ["api"] and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[:1] == ["apis"] and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise statuses.not_served()
        namespace = None
        # /namespaces/NAME/status is a subresource of the namespace, not a kind inside it.
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self.store.kind(group, version, rest[0])
        fits = namespace is not None or len(rest) == 1
        if len(rest) > 3 or not (fits if kind.resource.namespaced else namespace is None):
            raise statuses.not_served()
        name, subresource = (*rest[1:], "", "")[:2]
        return Target(kind, namespace, name, subresource)

    def selector(self, request: Request, target: Target) -> Selector:
        """Both selectors of a list or watch, and the name in a watched path."""
        fields = request.query.get("fieldSelector", "")
        if target.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={target.name}")))
        labels = request.query.get("labelSelector", "")
        return selectors.parse(labels, fields, target.kind.fields)

    def _verb(self, request: Request, target: Target) -> tuple[int, Manifest]:
        if request.method == "GET":
            return 200, self._get(request, target) if target.name else self._list(request, target)
        if request.method == "POST":
            return 201, self._create(request, target)
        if request.method in ("PUT", "PATCH") and target.name:
            return 200, self._update(request, target)
        if request.method == "DELETE":
            return 200, self._delete(request, target)
        raise statuses.not_allowed()

    def _get(self, request: Request, target: Target) -> Manifest:
        if target.subresource not in ("", "status"):
            raise statuses.not_served()
        obj = self.store.get(target.resource, target.namespace or "", target.name)
        return partial(obj) if _PARTIAL in request.accept else obj

    def _list(self, request: Request, target: Target) -> Manifest:
        version, start = self.store.version, 0
        if token := request.query.get("continue"):
            version, start = _read_token(token)
        elif (asked := _number(request.query, "resourceVersion")) > version:
            raise statuses.too_new(asked, version)
        selector = self.selector(request, target)
        found = self.store.list(target.resource, target.namespace, selector, version)
        limit = _number(request.query, "limit") or len(found)
        items = found[start : start + limit]
        metadata: Manifest = {"resourceVersion": str(version)}
        if len(found) > start + limit:
            metadata["continue"] = _make_token(version, start + limit)
            if not (selector.labels or selector.fields):
                metadata["remainingItemCount"] = len(found) - start - limit
        resource = target.resource
        if _PARTIAL in request.accept:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return {**head, "metadata": metadata, "items": [partial(obj) for obj in items]}
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        return {**head, "metadata": metadata, "items": items}

    def _create(self, request: Request, target: Target) -> Manifest:
        body, dry_run = _body(request), _dry_run(request)
        if target.name:
            return self._post_subresource(target, body, dry_run=dry_run)
        if target.resource.namespaced and target.namespace is None:
            raise statuses.not_allowed()
        _same_kind(target, body)
        return self.store.create(target.resource, target.namespace or "", body, dry_run=dry_run)

    def _post_subresource(self, target: Target, body: Manifest, *, dry_run: bool) -> Manifest:
        if target.resource != api.PODS or target.subresource not in ("binding", "eviction"):
            raise statuses.not_served()
        meta = body.get("metadata") or {}
        if meta.get("name", target.name) != target.name:
            raise statuses.bad_request("name in URL does not match name in Binding object")
        namespace = target.namespace or ""
        if target.subresource == "eviction":
            self._remove(target, body.get("deleteOptions") or {}, dry_run=dry_run)
        else:
            node = (body.get("target") or {}).get("name")
            if not node:
                raise ApiError(500, "", "target.name: Required value")
            self.store.bind(
                namespace,
                target.name,
                node,
                uid=meta.get("uid") or "",
                version=meta.get("resourceVersion") or "",
                annotations=meta.get("annotations"),
                dry_run=dry_run,
            )
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }  # fmt: skip

    def _update(self, request: Request, target: Target) -> Manifest:
        return self.store.replace(
            target.resource,
            target.namespace or "",
            target.name,
            _change(request, target),
            subresource=target.subresource,
            dry_run=_dry_run(request),
            put=request.method == "PUT",
        )

    def _delete(self, request: Request, target: Target) -> Manifest:
        options = _body(request) if request.body else {}
        for key in ("gracePeriodSeconds", "propagationPolicy"):
            if key in request.query:
                options.setdefault(key, request.query[key])
        dry_run = _dry_run(request) or bool(options.get("dryRun"))
        if target.subresource:
            raise statuses.not_served()
        if target.name:
            return self._remove(target, options, dry_run=dry_run)
        found = self.store.list(target.resource, target.namespace, self.selector(request, target))
        for obj in found:
            meta = obj["metadata"]
            one = Target(target.kind, meta.get("namespace"), meta["name"])
            self._remove(one, options, dry_run=dry_run)
        return self._list(request, target)

    def _remove(self, target: Target, options: Manifest, *, dry_run: bool) -> Manifest:
        preconditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds")
        last = self.store.delete(
            target.resource,
            target.namespace or "",
            target.name,
            uid=preconditions.get("uid") or "",
            version=preconditions.get("resourceVersion") or "",
            grace=None if grace is None else int(grace),
            orphan=options.get("propagationPolicy") == "Orphan",
            dry_run=dry_run,
        )
        resource = target.resource
        if resource in (api.PODS, api.NAMESPACES) or "deletionTimestamp" in last["metadata"]:
            return last
        details = {"name": target.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = last["metadata"]["uid"]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: text for key, text in details.items() if text},
        }


def partial(obj: Manifest) -> Manifest:
    """meta.k8s.io/v1 PartialObjectMetadata."""
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**head, "metadata": obj["metadata"]}


def wants_partial(request: Request) -> bool:
    return _PARTIAL in request.accept


def _change(request: Request, target: Target) -> Callable[[Manifest], Manifest]:
    """What a PUT or PATCH makes of the old object."""
    if request.content_type == "application/json-patch+json" and request.method == "PATCH":
        operations = _json(request.body)
        return lambda old: json_patch(old, operations)
    body = _body(request)
    if request.method == "PATCH":
        if request.content_type not in _MERGE:
            raise statuses.unsupported_patch(request.content_type)
        return lambda old: merge(old, body)
    _same_kind(target, body)
    named = (body.get("metadata") or {}).get("name")
    if named != target.name:
        raise statuses.bad_request(
            f"the name of the object ({named}) does not match the name on the URL ({target.name})"
        )
    return lambda _: body


def _same_kind(target: Target, body: Manifest) -> None:
    resource = target.resource
    kind = body.get("kind", resource.kind)
    version = body.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        raise statuses.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}'
        )


def _json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise statuses.bad_request(
            f"couldn't get version/kind; json parse error: {error}"
        ) from error


def _body(request: Request) -> Manifest:
    body = _json(request.body)
    if not isinstance(body, dict):
        raise statuses.bad_request("couldn't get version/kind; json parse error: not an object")
    return body


def _dry_run(request: Request) -> bool:
    asked = request.query.get("dryRun", "")
    if asked not in ("", "All"):
        raise ApiError(
            422, "Invalid", f'dryRun: Unsupported value: ["{asked}"]: supported values: "All"'
        )
    return asked == "All"


def _number(query: dict[str, str], key: str) -> int:
    """A number of the query; 0 when it is absent or empty."""
    text = query.get(key) or "0"
    if not text.isdigit():
        raise statuses.bad_request(f"{key}: Invalid value: {text!r}")
    return int(text)


def _make_token(version: int, start: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": version, "start": start})).decode()


def _read_token(token: str) -> tuple[int, int]:
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(token))
        return int(fields["rv"]), int(fields["start"])
    except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise statuses.bad_request(
            f"invalid continue token: continue key is not valid: {error}"
        ) from error
