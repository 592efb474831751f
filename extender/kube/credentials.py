"""Where the API server is and how to prove who we are, from a kubeconfig or from inside a pod.

The `kubernetes` package reads the configuration (contexts, certificates, tokens, exec plugins,
OIDC); nothing else of it is used. It is slow to import and reads files, so all of it happens in a
thread.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from extender.core.errors import ConfigError

#: Seconds between two looks at whether a token was rotated or expires (client-go: 60 s).
REFRESH_SECONDS = 60.0


class Access(Struct, frozen=True):
    """What a request needs. ``tls`` is None for a plain-HTTP server."""

    server: str
    tls: ssl.SSLContext | None = None
    #: Value of the Authorization header, "" when the certificate says who we are.
    authorization: str = ""
    #: Name to verify the server's certificate against, when it is not the URL's.
    server_name: str | None = None
    proxy: str | None = None


class Credentials:
    """A source of :class:`Access` that can be asked again."""

    def __init__(self, load: Callable[[], tuple[Access, Callable[[], str] | None]]) -> None:
        """``load`` blocks; it gives access and, if the token can expire, a way to renew it."""
        self._load = load
        self._renew: Callable[[], str] | None = None

    async def load(self) -> Access:
        """Read everything again.

        Raises ConfigError: the configuration is missing or wrong.
        """
        access, self._renew = await asyncio.to_thread(self._load)
        return access

    async def authorization(self, access: Access) -> str:
        """The current Authorization value; cheap when the token is not about to expire."""
        if self._renew is None:
            return access.authorization
        return await asyncio.to_thread(self._renew)


def plain(server: str) -> Credentials:
    """A server without TLS and authentication (the in-memory API server)."""
    access = Access(server.rstrip("/"))
    return Credentials(lambda: (access, None))


def from_kubeconfig(path: str | None = None, context: str | None = None) -> Credentials:
    """A kubeconfig file (several, joined by ``:``), and its context or the current one."""
    return Credentials(lambda: _kubeconfig(path, context))


def in_cluster() -> Credentials:
    """The service account that Kubernetes mounts into a pod."""
    return Credentials(_in_cluster)


def find(path: str | None = None, context: str | None = None) -> Credentials:
    """As controller-runtime looks: the given file, $KUBECONFIG, the pod's account, the home file."""
    if path or os.environ.get("KUBECONFIG"):
        return from_kubeconfig(path or os.environ["KUBECONFIG"], context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return from_kubeconfig(None, context)


def _kubeconfig(path: str | None, context: str | None) -> tuple[Access, Callable[[], str] | None]:
    from kubernetes.config import load_kube_config

    where = f"kubeconfig {path or 'in its default place'}"
    configuration = _configuration()
    with _reading(where):
        load_kube_config(
            config_file=path,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    return _access(where, configuration)


def _in_cluster() -> tuple[Access, Callable[[], str] | None]:
    from kubernetes.config import load_incluster_config

    where = "the pod's service account"
    configuration = _configuration()
    with _reading(where):
        load_incluster_config(client_configuration=configuration)
    return _access(where, configuration)


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """What the package raises, as ConfigError: for files, and for who is asked for a token."""
    import yaml
    from kubernetes.client import OpenApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (
        *(ConfigException, OSError, yaml.YAMLError, RecursionError, OpenApiException, HTTPError),
        *(TypeError, AttributeError, ValueError, KeyError),  # for a file that is no kubeconfig
    ) as error:
        raise ConfigError(f"{where}: {error}") from error


def _configuration() -> Any:
    from kubernetes.client import Configuration

    return Configuration()


def _access(where: str, configuration: Any) -> tuple[Access, Callable[[], str] | None]:
    server = _url(f"{where}: server", str(configuration.host).rstrip("/"))
    access = Access(
        server,
        _tls(configuration) if server.startswith("https") else None,
        _token(where, configuration),
        configuration.tls_server_name or None,
        _proxy(where, configuration, server),
    )
    hook = configuration.refresh_api_key_hook
    if hook is None:
        return access, None

    def renew() -> str:
        with _reading(where):
            hook(configuration)
        return _token(where, configuration)

    return access, renew


def _proxy(where: str, configuration: Any, server: str) -> str | None:
    from kubernetes.client.rest import should_bypass_proxies

    if not configuration.proxy or should_bypass_proxies(server, configuration.no_proxy or ""):
        return None
    return _url(f"{where}: proxy-url", str(configuration.proxy))


def _url(field: str, url: str) -> str:
    """The URL, if requests can be sent there: a wrong one is no server that does not answer."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is none, or a bracket is open
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise ConfigError(f"{field}: {url!r} is not allowed: http(s)://HOST[:PORT]")
    return url


def _token(where: str, configuration: Any) -> str:
    # A token file ends with a newline, which no header may hold.
    token = str(configuration.api_key.get("BearerToken", "")).strip()
    if not token.isprintable():
        # What is in it is nobody's business.
        raise ConfigError(f"{where}: its token is not allowed: one line of text")
    return token


def _tls(configuration: Any) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files of the kubeconfig: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def namespace(default: str = "default") -> str:
    """The namespace of the pod we run in, or ``default`` outside of one."""
    mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    try:
        return mounted.read_text().strip() or default
    except FileNotFoundError:
        return default
