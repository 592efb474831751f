"""TLS: for the verbs, only who holds a certificate of the client CA is served.

kube-scheduler can prove itself to an extender by a client certificate and by nothing else. The pages
are served with the same certificate to clients that need none (they bring a token, or probe).
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from extender.core.errors import ConfigError
from extender.obs.log import logger
from extender.obs.metrics import Metrics

_log = logger("tls")


class ServerTls:
    """A server context whose certificate, key and client CA follow their files.

    Without a client CA nobody is asked for a certificate. Raises :class:`ConfigError` when the
    files cannot be used.
    """

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None) -> None:
        self._files = (cert_file, key_file, client_ca_file)
        self._texts = self._read()
        self._current = self._load()
        self._reloaded = False
        #: For the listener. It stays the same: each handshake is handed the newest one, because
        #: a CA cannot be taken back from a context.
        self.context = self._load()
        self.context.sni_callback = self._switch

    def reload(self) -> bool:
        """Use the files for new connections if they have changed; whether they had.

        Raises :class:`ConfigError` when they cannot be used (a rotation half done, say): what was
        loaded before stays in use, and the next call tries again.
        """
        texts = self._read()
        if texts == self._texts:
            return False
        self._current = self._load()
        self._texts = texts
        self._reloaded = True
        return True

    def outdated(self, connection: ssl.SSLObject) -> bool:
        """Whether it was made with files that have been replaced since."""
        return connection.context is not self._current

    def _switch(
        self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> int | None:
        if connection.session_reused and self._reloaded:
            # TLS 1.2 resumes without asking for the certificate, which an older CA may have
            # signed. The alert also drops the session, so the next try is a whole handshake.
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE)
        connection.context = self._current
        return None

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in self._files if file is not None)
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror}") from error

    def _load(self) -> ssl.SSLContext:
        cert, key, client_ca = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A ticket would resume a session without a look at the client's certificate.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{cert}, {key}: not a certificate and its key: {error}") from error
        if client_ca is None:
            return context
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{client_ca}: not a CA certificate: {error}") from error
        return context


async def follow(tls: ServerTls, metrics: Metrics, seconds: float) -> None:
    """Look for new files every so many seconds, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        try:
            if tls.reload():
                metrics.tls_reloads.labels("ok").inc()
        except ConfigError as error:
            # Half of a rotation: the files as they were serve until the next look.
            metrics.tls_reloads.labels("failed").inc()
            _log.warning("certificates not reloaded", error=str(error))
