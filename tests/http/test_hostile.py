"""Callers that send too much, or too slowly: memory stays bounded, and the next one is served."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import pytest

LIMIT = 1 << 20
#: Bytes that may be held for one caller: the body up to its limit, twice while it is put together,
#: and what is read ahead.
MOST = 4 * LIMIT
HUNDRED_MB = 100 << 20
CHUNK = b" " * (256 << 10)


@pytest.fixture
async def held():
    """Bytes that were held at most since the test began."""
    tracemalloc.start(1)
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


async def connect(service):
    host, port = service.runner.addresses[0][:2]
    return await asyncio.open_connection(host, port)


async def answer(reader):
    """Status line and body of what is answered before the connection ends."""
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body


async def pour(writer, size, *, chunked):
    """Send a body of this size, for as long as the server takes it."""
    frame = b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK) if chunked else CHUNK
    try:
        for _ in range(size // len(CHUNK)):
            writer.write(frame)
            await writer.drain()
    except ConnectionError:
        return  # it has said what it thinks of it


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("verb", ["filter", "bind"])
async def test_a_hundred_megabytes_are_not_kept(start, held, verb, chunked):
    service = await start(body_limit=LIMIT)
    reader, writer = await connect(service)
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % HUNDRED_MB
    writer.write(b"POST /muster/%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (verb.encode(), size))
    pouring = asyncio.create_task(pour(writer, HUNDRED_MB, chunked=chunked))
    status = await reader.readline()
    assert status.startswith(b"HTTP/1.1 200 ")
    assert held() < MOST
    pouring.cancel()
    await asyncio.wait([pouring])
    writer.transport.abort()
    assert await service.post("prioritize", {"Pod": {}}) == (200, [])


async def test_a_small_body_that_unpacks_to_a_hundred_megabytes_is_not_kept(start, held):
    service = await start(body_limit=LIMIT)
    packed = gzip.compress(bytes(HUNDRED_MB), compresslevel=9)
    tracemalloc.reset_peak()
    headers = {"Content-Encoding": "gzip"}
    async with service.session.post("/muster/filter", data=packed, headers=headers) as response:
        assert response.status == 200
        assert f"at most {LIMIT} bytes" in (await response.json())["Error"]
    assert held() < 4 * MOST  # what one piece of it unpacks to is there before it is counted


async def test_a_head_that_never_ends_is_given_up(start, monkeypatch):
    monkeypatch.setattr("extender.http.app.KEEPALIVE_SECONDS", 0.05)
    service = await start()
    reader, writer = await connect(service)
    writer.write(b"POST /muster/filter HTTP/1.1\r\nX-Slow: ")
    assert await reader.read() == b""  # closed: nothing was asked
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /muster/filter HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"POST /" + b"a" * 1_000_000,
        b"POST /muster/filter HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /muster/filter HTTP/1.1\r\nContent-Length: " + b"9" * 4000 + b"\r\n\r\n",
        b"POST /muster/filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
        b"\r\n" * 10_000 + b"GET",
    ],
    ids=["headers", "path", "negative", "length", "chunk", "tls", "newlines"],
)
async def test_a_head_that_is_none_is_refused(start, monkeypatch, head):
    monkeypatch.setattr("extender.http.app.KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr("extender.http.verbs.BODY_SECONDS", 0.05)
    service = await start()
    reader, writer = await connect(service)
    try:
        writer.write(head)
        await writer.drain()
        status, _ = await answer(reader)
        assert status == b"" or status.split()[1].startswith(b"4")
    except ConnectionError:
        pass  # closed while it was sent
    writer.transport.abort()
    assert await service.post("prioritize", {"Pod": {}}) == (200, [])
