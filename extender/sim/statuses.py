"""The API server's error answers: one function for each, worded as kube-apiserver words them.

Source: apimachinery ``pkg/api/errors``, apiserver ``pkg/storage`` and ``pkg/registry/generic``
(1.37). Muster and its tests match on these words, so they are part of the stand-in's contract.
"""

from __future__ import annotations

import re

from extender.core.api import Resource
from extender.core.errors import ApiError, Gone
from extender.core.objects import Manifest

_QUOTED = re.compile(r'"([^"]+)"')
_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def qualified(resource: Resource) -> str:
    """``plural.group``, or the plural alone in the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(resource)} "{name}" not found')


def not_served() -> ApiError:
    """404 for a path that no kind is served under."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists')


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ApiError:
    """409 of a write whose precondition does not hold."""
    where = f"{qualified(resource)}/{subresource}" if subresource else qualified(resource)
    message = f'Operation cannot be fulfilled on {where} "{name}": {why}'
    return ApiError(409, "Conflict", message)


def modified(resource: Resource, name: str) -> ApiError:
    """409 of an update that carries an older resourceVersion."""
    return conflict(resource, name, _MODIFIED)


def precondition(resource: Resource, name: str, field: str, wanted: str, have: str) -> ApiError:
    """409 of an update or Binding whose ``UID`` or ``ResourceVersion`` is not the object's."""
    key = f"/registry/{resource.plural}/{name}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: {field} in precondition: {wanted}, {field} in"
        f" object meta: {have}"
    )
    return conflict(resource, name, why)


def delete_precondition(
    resource: Resource, name: str, field: str, wanted: str, have: str
) -> ApiError:
    """409 of a delete whose ``UID`` or ``ResourceVersion`` is not the object's."""
    fate = "deleted and then recreated" if field == "UID" else "modified"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = (
        f'Operation cannot be fulfilled on {kind} "{name}": the {field} in the precondition'
        f" ({wanted}) does not match the {field} in record ({have}). The object might have been"
        f" {fate}"
    )
    return ApiError(409, "Conflict", message)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{qualified(resource)} "{name}" is forbidden: {why}')


def invalid(resource: Resource, name: str, causes: list[str]) -> ApiError:
    """422; each cause reads ``field: what is wrong with it``."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}')


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def no_version(resource: Resource, name: str) -> ApiError:
    """422 of a PUT without a resourceVersion, of a kind that demands one."""
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    return ApiError(422, "Invalid", f'{qualified(resource)} "{name}" is invalid: {why}')


def not_allowed() -> ApiError:
    """405 of a verb that the resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def invalid_patch(why: str) -> ApiError:
    """422 of a JSON patch that cannot be applied; the real server does not say ``why``."""
    message = f"the server rejected our request due to an error in our request ({why})"
    return ApiError(422, "Invalid", message)


def unsupported_patch(content_type: str) -> ApiError:
    """415 of a patch in no known format."""
    message = f"415: Unsupported Media Type ({content_type})"
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    message = f"Request entity too large: limit is {limit}"
    return ApiError(413, "RequestEntityTooLarge", message)


def expired_watch(asked: int, oldest: int) -> Gone:
    """410 of a watch that starts before the kept history."""
    return Gone(410, "Expired", f"too old resource version: {asked} ({oldest})")


def expired_list() -> Gone:
    """410 of a continue token whose snapshot is no longer kept."""
    return Gone(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can"
        " start a new list without the continue parameter.",
    )


def too_new(asked: int, current: int) -> ApiError:
    """504 of a list at a resourceVersion that does not exist yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message)


def render(error: ApiError, resource: Resource | None = None, name: str = "") -> Manifest:
    """The metav1.Status of an error; ``details`` has no causes, the message says them."""
    status: Manifest = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    if not error.reason:
        del status["reason"]
    if resource is not None and error.reason not in ("BadRequest", ""):
        kind = resource.kind if error.code == 422 else resource.plural
        if not name and (quoted := _QUOTED.search(error.message)):
            name = quoted[1]
        details = {"name": name, "group": resource.group, "kind": kind}
        status["details"] = {key: text for key, text in details.items() if text}
    return status
