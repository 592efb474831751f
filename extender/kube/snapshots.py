"""A copy of the cluster as the API server has it, in the format of a log that ends with its beginning."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from extender.core import codec
from extender.core.api import OPTIONAL, Resource
from extender.core.errors import ApiError
from extender.core.events import Event, KindServed, LeaderGained, Listed, Synced
from extender.core.objects import Manifest
from extender.core.redact import Redactor
from extender.kube.decode import ObjectDecoder
from extender.kube.reflector import PAGE
from extender.kube.replies import Lists
from extender.obs.logfile import OBJECTS, Header
from extender.obs.metrics import Metrics


async def snapshot(
    client: Lists,
    resources: Sequence[Resource],
    metrics: Metrics,
    header: Header,
    view: Callable[[], Manifest],
) -> AsyncIterator[bytes]:
    """Lines, some at a time: every object, without secrets, and last what ``view`` then says.

    Objects are listed anew, page by page, since the service keeps none. Raises ApiError, Unreachable.
    """
    redactor = Redactor(secrets.token_bytes())
    yield msgspec.json.encode(msgspec.structs.replace(header, begins=OBJECTS)) + b"\n"
    for resource in resources:
        async for events in _pages(client, resource, metrics):
            yield b"".join(_line(redactor.event(each)) for each in events)
    yield _line(Synced()) + _line(LeaderGained(1))
    yield msgspec.json.encode({"view": view()}) + b"\n"


async def _pages(
    client: Lists, resource: Resource, metrics: Metrics
) -> AsyncIterator[Sequence[Event]]:
    decoder, after = ObjectDecoder(resource, metrics), ""
    while True:
        try:
            body = await client.list_page(resource, limit=PAGE, after=after)
        except ApiError as error:
            if error.code != 404 or resource not in OPTIONAL:
                raise
            yield [KindServed(resource, served=False)]
            return
        page = decoder.page(body)
        yield [decoder.item(raw).event for raw in page.items or ()]
        after = page.metadata.next
        if not after:
            yield [Listed(resource, page.metadata.resource_version)]
            return


def _line(event: Event) -> bytes:
    return b'{"told":' + codec.encode(event) + b"}\n"
