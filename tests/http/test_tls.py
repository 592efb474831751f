"""Who may call: holders of a certificate of the client CA, by the files as they are now."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import trustme

from extender.core.errors import ConfigError
from extender.http.app import make_admin_app, make_app, serve
from extender.http.tls import ServerTls, follow
from extender.http.verbs import Bindings
from extender.obs.metrics import Metrics
from tests.http.conftest import Queue, ScriptedView, open_gate


class Files:
    """A server's files, which a test may rewrite."""

    def __init__(self, directory):
        self.paths = [directory / name for name in ("tls.crt", "tls.key", "client-ca.crt")]
        self.server_ca = trustme.CA()
        self.client_ca = trustme.CA()
        self.write()

    def write(self):
        cert = self.server_ca.issue_cert("127.0.0.1")
        for path, text in zip(
            self.paths,
            (
                b"".join(blob.bytes() for blob in cert.cert_chain_pems),
                cert.private_key_pem.bytes(),
                self.client_ca.cert_pem.bytes(),
            ),
            strict=True,
        ):
            path.write_bytes(text)

    def client(self, ca=None):
        """A client's context, with a certificate of ``ca`` if one is given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.server_ca.configure_trust(context)
        if ca is not None:
            ca.issue_cert("scheduler@muster").configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def tls(files):
    return ServerTls(*files.paths)


@pytest.fixture
async def url(tls):
    inbox = Queue()
    app = make_app(
        ScriptedView(),
        inbox,
        Bindings(inbox),
        prefix="/",
        metrics=Metrics(),
        bind_deadline=1.0,
        tls=tls,
    )
    runner = await serve(app, "127.0.0.1", 0, tls.context)
    yield "https://{}:{}/healthz".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def status(url, context):
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=context) as response,
    ):
        return response.status


async def test_a_certificate_of_the_client_ca_passes(files, url):
    assert await status(url, files.client(files.client_ca)) == 200


async def test_no_certificate_is_refused(files, url):
    with pytest.raises(aiohttp.ClientError):
        await status(url, files.client())


async def test_a_certificate_of_another_ca_is_refused(files, url):
    with pytest.raises(aiohttp.ClientError):
        await status(url, files.client(files.server_ca))


async def test_an_expired_certificate_is_refused(files, url):
    context = files.client()
    ended = datetime.now(UTC) - timedelta(minutes=1)
    cert = files.client_ca.issue_cert("scheduler@muster", not_after=ended)
    cert.configure_cert(context)
    with pytest.raises(aiohttp.ClientError):
        await status(url, context)


async def test_a_connection_that_is_kept_ends_with_its_next_answer_after_a_rotation(
    files, tls, url
):
    """kube-scheduler keeps its connections; a CA that was taken back would count for ever."""

    async with aiohttp.ClientSession() as session:
        before = files.client(files.client_ca)
        for _ in range(2):
            async with session.get(url, ssl=before) as response:
                assert (response.status, response.headers.get("Connection")) == (200, None)
        files.client_ca = trustme.CA()
        files.write()
        assert tls.reload()
        async with session.get(url, ssl=before) as response:
            assert response.headers["Connection"] == "close"
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=before)


async def test_pages_are_served_to_who_has_no_certificate_and_follow_the_files_too(files):
    cert, key, _ = files.paths
    pages = ServerTls(cert, key, None)
    app = make_admin_app(ScriptedView(), Metrics(), gate=open_gate())
    runner = await serve(app, "127.0.0.1", 0, pages.context)
    url = "https://{}:{}/healthz".format(*runner.addresses[0][:2])
    assert await status(url, files.client()) == 200
    files.server_ca = trustme.CA()
    files.write()
    assert pages.reload()
    assert await status(url, files.client()) == 200
    await runner.cleanup()


@pytest.mark.parametrize("known", [True, False])
async def test_a_caller_that_does_not_answer_keeps_no_connection_when_the_service_stops(
    files, tls, known
):
    """One that hangs, or whose machine is gone: before its handshake was over, or when TLS waits for its goodbye."""
    inbox = Queue()
    app = make_app(
        ScriptedView(), inbox, Bindings(inbox), prefix="/", metrics=Metrics(), bind_deadline=1.0
    )
    runner = await serve(app, "127.0.0.1", 0, tls.context)
    reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    silent = files.client(files.client_ca).wrap_bio(incoming, outgoing, False, "127.0.0.1")

    async def through(step):
        """The step, with what it needs from the peer; what it leaves to be sent is not sent."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))

    await through(silent.do_handshake)
    silent.write(b"GET /healthz HTTP/1.1\r\nHost: muster\r\n\r\n")
    if known:
        assert (await through(lambda: silent.read(1 << 16))).startswith(b"HTTP/1.1 200 OK")
    await runner.cleanup()
    if not known:
        writer.write(outgoing.read())
    answer = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while more := await reader.read(1 << 16):
                answer += more
    if not known:
        incoming.write(answer)
        incoming.write_eof()
        with pytest.raises(ssl.SSLError):
            silent.read(1 << 16)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("secure", [True, False])
async def test_a_caller_that_connects_as_the_service_stops_keeps_no_connection(tls, secure):
    inbox = Queue()
    app = make_app(
        ScriptedView(), inbox, Bindings(inbox), prefix="/", metrics=Metrics(), bind_deadline=1.0
    )
    runner = await serve(app, "127.0.0.1", 0, tls.context if secure else None)
    with socket.create_connection(runner.addresses[0][:2]) as caller:
        # The listener accepts in the first turn, and has a task for the connection in the second.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await runner.cleanup()
        if not secure:
            caller.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.to_thread(caller.recv, 1) == b""
    # What was left open warns when it is collected.
    gc.collect()


async def test_tls_before_1_2_is_refused(files, url):
    context = files.client(files.client_ca)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(aiohttp.ClientConnectorError):
        await status(url, context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_reload_takes_new_files_and_forgets_the_old_client_ca(files, tls, url, version):
    assert not tls.reload()
    old_client = files.client(files.client_ca)
    old_client.minimum_version = old_client.maximum_version = version
    assert await status(url, old_client) == 200
    files.server_ca, files.client_ca = trustme.CA(), trustme.CA()
    files.write()
    files.server_ca.configure_trust(old_client)
    assert tls.reload()
    assert not tls.reload()
    assert await status(url, files.client(files.client_ca)) == 200
    with pytest.raises(aiohttp.ClientError):
        await status(url, old_client)


async def test_a_session_from_before_the_reload_is_not_resumed(files, tls, url):
    """TLS 1.2 resumes a session without asking for the certificate again."""
    client = files.client(files.client_ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    port = int(url.rsplit(":", 1)[1].split("/")[0])

    def call(session=None):
        plain = socket.create_connection(("127.0.0.1", port))
        with client.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while connection.recv(4096):
                pass  # to the server's close_notify, without which no session is kept
            return connection.session, connection.session_reused

    session, resumed = await asyncio.to_thread(call)
    assert not resumed
    session, resumed = await asyncio.to_thread(call, session)
    assert resumed
    files.client_ca = trustme.CA()
    files.write()
    assert tls.reload()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(call, session)


async def test_files_that_cannot_be_used_change_nothing(files, tls, url):
    key, good = files.paths[1], files.paths[1].read_bytes()
    key.write_text("no key")
    with pytest.raises(ConfigError, match=key.name):
        tls.reload()
    assert await status(url, files.client(files.client_ca)) == 200
    key.write_bytes(good)
    assert not tls.reload()


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_is_named(files, missing):
    files.paths[missing].unlink()
    with pytest.raises(ConfigError, match=files.paths[missing].name):
        ServerTls(*files.paths)


def test_a_client_ca_without_a_certificate_is_named(files):
    files.paths[2].write_text("")
    with pytest.raises(ConfigError, match=files.paths[2].name):
        ServerTls(*files.paths)


async def test_half_of_a_rotation_is_survived(files, tls, url):
    metrics = Metrics()
    following = asyncio.create_task(follow(tls, metrics, 0.0))

    async def counted(result):
        async with asyncio.timeout(30):
            while metrics.tls_reloads.labels(result)._value.get() < 1:  # noqa: ASYNC110 - a count
                await asyncio.sleep(0)

    files.paths[0].write_bytes(b"half of it")
    await counted("failed")
    files.client_ca = trustme.CA()
    files.write()
    await counted("ok")
    assert await status(url, files.client(files.client_ca)) == 200
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
