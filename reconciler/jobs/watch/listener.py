"""The address that metrics are scraped from, served by ``prometheus_client``'s own server.

Each connection has a thread of its own, so no client can delay checks or other clients. A connection that says nothing
for ``SILENT_S`` is closed. The number of connections is not limited.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, start_http_server

from reconciler.config.settings import WatchSettings
from reconciler.core.errors import ConfigError
from reconciler.fileio import why

SILENT_S = 10.0
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})")

log = logging.getLogger("reconciler.jobs.watch")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. An empty host means every address of the machine; port 0 a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``. Raises ConfigError for anything else."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(
                f'The address to listen on, "{text}", is not HOST:PORT.',
                hint="For example 127.0.0.1:9464 or [::1]:9464.",
            )
        return cls(match["v6"] or match["host"] or "", int(match["port"]))

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_tls(settings: WatchSettings) -> None:
    """Raise ConfigError if the certificate, its key or the clients' authority cannot be used."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return
    for path in filter(None, (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)):
        _require_file(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = "tls_certificate and tls_key"
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=_no_password)
        names = "tls_client_ca"
        if settings.tls_client_ca is not None:
            context.load_verify_locations(settings.tls_client_ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"[watch] {names} cannot be used: {error}.",
            hint="All are PEM files, the key belongs to the certificate and has no password.",
        ) from error


def _require_file(path: str) -> None:
    """Raise ConfigError for a path without a file, and for one that this user may not read."""
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"[watch] names the file {path}, which cannot be read: {why(error)}.",
            hint="Let this user read it, or correct its path.",
        ) from error


def _no_password() -> str:
    raise ValueError("the key has a password")


class MetricsListener:
    """Serves a registry until it is closed. Raises ConfigError if it cannot listen, or cannot use the certificate."""

    def __init__(self, address: ListenAddress, settings: WatchSettings, registry: CollectorRegistry) -> None:
        check_tls(settings)
        self._settings = settings
        self._asked = address
        host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
        try:
            self._server, self._thread = start_http_server(
                address.port,
                host,
                registry,
                certfile=settings.tls_certificate,
                keyfile=settings.tls_key,
                client_cafile=settings.tls_client_ca,
                client_auth_required=settings.tls_client_ca is not None,
            )
        except (OSError, UnicodeError) as error:  # the latter of a name that cannot be a host's, like .example.com
            raise ConfigError(
                f"Nothing can listen on {address}: {getattr(error, 'strerror', None) or error}.",
                hint="Choose another address with --listen or [watch] listen; another watch may be running there.",
            ) from error
        self._server.RequestHandlerClass = _Visit
        self._server.handle_error = _debug  # type: ignore[method-assign,assignment]
        if isinstance(self._server.socket, ssl.SSLSocket):
            # Else the one thread that accepts connections would shake hands, and wait for a client that does not.
            self._server.socket.do_handshake_on_connect = False  # type: ignore[attr-defined]
        bound, port = self._server.server_address[:2]
        self.address = ListenAddress(str(bound), int(port))

    @property
    def url(self) -> str:
        return f"{'https' if self._settings.tls_certificate else 'http'}://{self.address}/metrics"

    def renew(self, address: ListenAddress, settings: WatchSettings) -> None:
        """Use the certificate that its files have now; warn of settings that need a restart."""
        served = (self._asked, bool(self._settings.tls_certificate), self._settings.tls_client_ca)
        if served != (address, bool(settings.tls_certificate), settings.tls_client_ca):
            log.warning(
                "[watch] listen or its TLS has changed, and watch still serves %s. Restart it to change that.", self.url
            )
        elif isinstance(self._server.socket, ssl.SSLSocket) and settings.tls_certificate is not None:
            self._server.socket.context.load_cert_chain(settings.tls_certificate, settings.tls_key)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Visit(WSGIRequestHandler):
    """One connection. What is wrong with it is the client's matter, and not a line of the log."""

    timeout = SILENT_S

    def log_message(self, *_: Any) -> None:
        pass

    def get_stderr(self) -> TextIO:
        return io.StringIO()


def _debug(_: object, client: object) -> None:
    log.debug("a client of the metrics: %s", client, exc_info=True)
