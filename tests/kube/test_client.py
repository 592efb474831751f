"""HTTP as the API server speaks it, over a real connection to a scripted server."""

import asyncio
import datetime
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import trustme
import yaml
from aiohttp import web
from kubernetes.config import incluster_config

from extender.core.api import NODES, PODS, SECRETS
from extender.core.errors import ApiError, ConfigError, Gone, Unreachable
from extender.kube import credentials
from extender.kube.client import ApiClient
from extender.obs.metrics import Metrics


class Server:
    """Hands every request to ``answer`` and keeps what was asked."""

    def __init__(self):
        self.asked = []
        self.answer: Any = None
        self.http: Any = None
        self.url = ""

    async def handle(self, request):
        body = await request.read()
        self.asked.append((request.method, request.path_qs, dict(request.headers), body))
        answer = self.answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture
async def server(aiohttp_server):
    script = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    script.http = await aiohttp_server(app)
    script.url = str(script.http.make_url("")).rstrip("/")
    return script


@pytest.fixture
async def client(server):
    async with ApiClient(credentials.plain(server.url), Metrics(), timeout=5) as client:
        yield client


def status(code, reason, **headers):
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"{reason} it is"}
    return web.json_response(body, status=code, headers=headers)


async def test_methods_send_what_the_api_expects(server, client):
    server.answer = lambda _: web.json_response({"ok": True})
    await client.get(PODS, "ns", "p")
    await client.list_page(PODS, limit=7, after="t/+=")
    await client.post(PODS, "ns", {"a": 1}, query={"dryRun": "All"})
    await client.post(PODS, "ns", {}, name="p", subresource="binding")
    await client.patch(NODES, None, "n", {"x": None})
    await client.delete(PODS, "ns", "p", uid="u")
    lines = [(method, path) for method, path, _, _ in server.asked]
    pods = "/api/v1/namespaces/ns/pods"
    assert lines == [
        ("GET", f"{pods}/p"),
        ("GET", "/api/v1/pods?limit=7&continue=t/%2B%3D"),
        ("POST", f"{pods}?dryRun=All&fieldValidation=Ignore"),
        ("POST", f"{pods}/p/binding?fieldValidation=Ignore"),
        ("PATCH", "/api/v1/nodes/n?fieldValidation=Ignore"),
        ("DELETE", f"{pods}/p"),
    ]
    headers, body = server.asked[4][2:]
    assert (headers["Content-Type"], body) == ("application/merge-patch+json", b'{"x":null}')
    assert headers["User-Agent"].startswith("muster/")
    assert "Authorization" not in headers
    assert orjson.loads(server.asked[5][3])["preconditions"] == {"uid": "u"}


async def test_of_a_secret_metadata_alone_is_asked_for(server, client):
    server.answer = lambda _: web.json_response({"ok": True})
    # A namespace of that name has pods like any other.
    await client.get(PODS, "secrets", "p")
    await client.get(SECRETS, "secrets", "j-ssh")
    await client.post(SECRETS, "ns", {})
    accepts = [headers["Accept"] for _, _, headers, _ in server.asked]
    metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert accepts == ["application/json", metadata, metadata]


@pytest.mark.parametrize(("code", "kind"), [(404, ApiError), (409, ApiError), (410, Gone)])
async def test_refusals_carry_the_status(server, client, code, kind):
    server.answer = lambda _: status(code, "Because")
    with pytest.raises(kind) as caught:
        await client.get(PODS, "ns", "p")
    error = caught.value
    assert (error.code, error.reason, error.message) == (code, "Because", "Because it is")


async def test_retry_after_and_bodies_that_are_no_status(server, client):
    server.answer = lambda _: status(429, "TooManyRequests", **{"Retry-After": "3"})
    assert (await client.send("GET", "/x")).retry_after == 3.0
    server.answer = lambda _: web.Response(status=502, text="<html>bad gateway")
    reply = await client.send("GET", "/x")
    assert (reply.code, reply.message, reply.retry_after) == (502, "<html>bad gateway", None)


async def test_no_answer_is_unreachable(server, client):
    async def never(_):
        await asyncio.get_running_loop().create_future()

    server.answer = never
    assert (await client.send("GET", "/x", timeout=0.05)).code == 0

    def drop(request):
        request.transport.close()
        return web.Response()

    server.answer = drop
    with pytest.raises(Unreachable):
        await client.get(PODS, "ns", "p")
    await server.http.close()
    reply = await client.send("GET", "/x")
    assert (reply.code, reply.reason) == (0, "Unreachable")


def streaming(*chunks, hang=False):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if hang:
            await asyncio.get_running_loop().create_future()
        return response

    return answer


async def watched(client, **options):
    stream = client.watch_lines(NODES, "5", timeout_seconds=300, **options)
    return [line async for batch in stream for line in batch]


async def test_watch_joins_lines_that_were_cut_and_drops_the_last_half(server, client):
    long = b"x" * 3_000_000
    server.answer = streaming(b"on", b"e\ntwo\n", long[:7], long[7:], b"\nhal")
    assert await watched(client) == [b"one", b"two", long]
    assert server.asked[0][1] == (
        "/api/v1/nodes?watch=1&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=300"
    )


async def test_watch_refused_and_watch_gone_silent(server, client):
    server.answer = lambda _: status(410, "Expired")
    with pytest.raises(Gone):
        await watched(client)
    server.answer = streaming(b"one\n", hang=True)
    with pytest.raises(Unreachable):
        await watched(client, idle=0.05)


async def test_token_file_is_read_again_when_the_server_refuses_it(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    path = kubeconfig(tmp_path, server.url, user={"tokenFile": str(token)})
    metrics, now = Metrics(), [100.0]
    client = ApiClient(credentials.from_kubeconfig(str(path)), metrics, clock=lambda: now[0])
    server.answer = lambda request: (
        web.json_response({})
        if request.headers.get("Authorization") == "Bearer new"
        else status(401, "Unauthorized")
    )
    async with client:
        assert (await client.send("GET", "/x")).code == 401
        token.write_text("new\n")
        assert (await client.send("GET", "/x")).code == 401  # too soon after the last reload
        now[0] += 10
        assert (await client.send("GET", "/x")).code == 200
        assert (await client.send("GET", "/x")).code == 200
    tokens = [headers["Authorization"] for _, _, headers, _ in server.asked]
    assert tokens == ["Bearer old"] * 3 + ["Bearer new"] * 2


async def test_client_certificates_and_the_cluster_ca(aiohttp_server, tmp_path):
    ca = trustme.CA()
    server_cert, client_cert = ca.issue_cert("api.internal"), ca.issue_cert("muster@x")
    tls = web_tls(ca, server_cert)

    async def hello(request):
        return web.json_response({"you": bool(request.transport.get_extra_info("peercert"))})

    app = web.Application()
    app.router.add_get("/api/v1/nodes/n", hello)
    http = await aiohttp_server(app, ssl=tls)
    for name, blob in (
        ("ca.pem", ca.cert_pem),
        ("cert.pem", client_cert.cert_chain_pems[0]),
        ("key.pem", client_cert.private_key_pem),
    ):
        (tmp_path / name).write_bytes(blob.bytes())
    path = kubeconfig(
        tmp_path,
        f"https://127.0.0.1:{http.port}",
        cluster={"certificate-authority": "ca.pem", "tls-server-name": "api.internal"},
        user={"client-certificate": "cert.pem", "client-key": "key.pem"},
    )
    async with ApiClient(credentials.from_kubeconfig(str(path)), Metrics()) as client:
        assert orjson.loads(await client.get(NODES, None, "n")) == {"you": True}


def web_tls(ca, cert):
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    cert.configure_cert(context)
    return context


async def test_exec_plugin_gives_the_token(server, tmp_path):
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    (tmp_path / "answer.json").write_bytes(orjson.dumps(answer))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(tmp_path / "answer.json")],
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path, server.url, user={"exec": plugin})
    server.answer = lambda _: web.json_response({})
    async with ApiClient(credentials.from_kubeconfig(str(path)), Metrics()) as client:
        await client.get(NODES, None, "n")
    assert server.asked[0][2]["Authorization"] == "Bearer from-plugin"


@pytest.mark.parametrize("text", ["", "[]", "{}", "a: b: c", "current-context: gone\ncontexts: []"])
async def test_a_file_that_is_no_kubeconfig_is_a_config_error(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        await credentials.from_kubeconfig(str(path)).load()


@pytest.mark.parametrize("where", ["", "htt p://x", "https://127.0.0.1:99999", "x:1"])
async def test_an_address_that_cannot_be_is_no_server_that_does_not_answer(tmp_path, where):
    path = kubeconfig(tmp_path, where)
    with pytest.raises(ConfigError, match=r"kubeconfig .*: server: .* is not allowed"):
        await credentials.from_kubeconfig(str(path)).load()
    path = kubeconfig(tmp_path, "https://127.0.0.1", cluster={"proxy-url": where or "gopher://x"})
    with pytest.raises(ConfigError, match=r"kubeconfig .*: proxy-url: .* is not allowed"):
        await credentials.from_kubeconfig(str(path)).load()


async def test_a_token_that_no_header_can_hold_is_not_shown(tmp_path):
    path = kubeconfig(tmp_path, "http://here", user={"token": "hush\r\nX: hush"})
    with pytest.raises(ConfigError, match="its token is not allowed") as raised:
        await credentials.from_kubeconfig(str(path)).load()
    assert "hush" not in str(raised.value)


async def test_a_token_that_cannot_be_read_again_is_a_config_error(tmp_path, monkeypatch):
    """In the middle of a rotation, say: the client keeps the one before, as for any ConfigError."""
    token, cert = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("good")
    cert.write_bytes(trustme.CA().cert_pem.bytes())
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(cert))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = credentials.in_cluster()
    access = await source.load()
    later = SimpleNamespace(datetime=Later, timedelta=datetime.timedelta)
    monkeypatch.setattr(incluster_config, "datetime", later)
    for content in ("", "a\nb"):
        token.write_text(content)
        with pytest.raises(ConfigError, match="the pod's service account: "):
            await source.authorization(access)
    token.unlink()
    with pytest.raises(ConfigError, match="the pod's service account: "):
        await source.authorization(access)
    token.write_text("better")
    assert await source.authorization(access) == "bearer better"


class Later(datetime.datetime):
    """A clock that goes an hour further with each look: each token is due to be read again."""

    hours = 0

    @classmethod
    def now(cls, tz=None):
        cls.hours += 1
        return super().now(tz) + datetime.timedelta(hours=cls.hours)


async def test_find_looks_in_the_order_of_controller_runtime(tmp_path, monkeypatch):
    given = kubeconfig(tmp_path, "http://given")
    other = tmp_path / "other"
    other.mkdir()
    named = kubeconfig(other, "http://named")
    monkeypatch.setenv("KUBECONFIG", str(named))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert (await credentials.find(str(given)).load()).server == "http://given"
    assert (await credentials.find().load()).server == "http://named"
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(ConfigError, match="service account"):
        await credentials.find().load()


def kubeconfig(folder, server, *, cluster=None, user=None):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path
