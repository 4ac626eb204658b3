"""The listener that metrics are scraped from: a few threads, none of which a client can hold for long.

A connection is cut ``LONGEST_S`` after it was accepted, whatever it sends and however slowly. While all threads are
busy, a new connection displaces the oldest one that has not sent its request yet; if all have, the oldest that has not
taken its answer in ``PATIENCE_S``. So neither silent clients nor such as never read keep a probe of ``/healthz`` away.
It waits for the displaced one's thread, which may still be making an answer: on a busy machine that takes a while.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconciler.config.settings import WatchSettings
from reconciler.core.errors import ConfigError
from reconciler.fileio import why

LONGEST_S = 10.0
PATIENCE_S = 1.0
"""Seconds in which a client takes its answer, if others wait for a thread."""
MOST_THREADS = 16
POLL_S = 0.1
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})")

log = logging.getLogger("reconciler.watch")


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


@dataclass(frozen=True, slots=True)
class Access:
    """TLS and the login that the listener asks for; replaced as a whole when the configuration is read again."""

    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None

    @classmethod
    def of(cls, settings: WatchSettings) -> Access:
        """Reads the certificate and its key. Raises ConfigError if they cannot be used.

        Empty texts are refused, too: they would leave the metrics open without a word.
        """
        login = _pair("username and password", settings.username, settings.password)
        files = _pair("tls_certificate and tls_key", settings.tls_certificate, settings.tls_key)
        if files is None:
            return cls(None, login)
        for path in files:
            _require_file(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(*files, password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"[watch] tls_certificate and tls_key cannot be used: {error}.",
                hint="Both are PEM files, the key belongs to the certificate and has no password.",
            ) from error
        return cls(context, login)

    def lets_in(self, authorization: str) -> bool:
        """Whether user name and password are right. The comparison takes the same time for every wrong login."""
        if self.login is None:
            return True
        scheme, _, coded = authorization.partition(" ")
        try:
            given = base64.b64decode(coded.strip(), validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            given = b""
        return hmac.compare_digest(given, ":".join(self.login).encode())


def _pair(names: str, one: str | None, other: str | None) -> tuple[str, str] | None:
    """Two settings that belong together; None if both are left out."""
    if one is None and other is None:
        return None
    if not one or not other:
        raise ConfigError(
            f"[watch] {names} belong together, and one is missing or empty.", hint="Give both, or neither."
        )
    return one, other


def _require_file(path: str) -> None:
    """Raise ConfigError for a path without a file, and for one in a folder that this user may not enter."""
    try:
        is_there = Path(path).is_file()
    except OSError as error:
        raise ConfigError(
            f"[watch] names the file {path}, which cannot be read: {why(error)}.",
            hint="Let this user read it, or correct its path.",
        ) from error
    if not is_there:
        raise ConfigError(f"[watch] names the file {path}, which is not there.", hint="Correct its path.")


def _no_password() -> str:
    raise ValueError("the key has a password")


# ---------------------------------------------------------------- answers


_TEXT = (("Content-Type", "text/plain; charset=utf-8"),)


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body and headers of a response."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = _TEXT


class Site:
    """``/metrics``, ``/healthz`` and an index. ``health`` returns why the checking is not healthy, None if it is."""

    def __init__(self, registry: CollectorRegistry, health: Callable[[], str | None], access: Access) -> None:
        self._metrics = make_wsgi_app(registry)
        self.health = health
        self.access = access

    def get(self, target: str, headers: Mapping[str, str]) -> Response:
        """The answer to ``GET target``. ``/healthz`` needs no login."""
        path, _, query = target.partition("?")
        if path == "/healthz":
            trouble = self.health()
            return Response(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())
        if not self.access.lets_in(headers.get("Authorization", "")):
            challenge = ("WWW-Authenticate", 'Basic realm="reconciler", charset="UTF-8"')
            return Response(401, b"Log in.\n", (*_TEXT, challenge))
        if path == "/metrics":
            return self._scrape(query, headers)
        if path == "/":
            return Response(200, _INDEX, (("Content-Type", "text/html; charset=utf-8"),))
        return Response(404, b"There are /metrics and /healthz.\n")

    def _scrape(self, query: str, headers: Mapping[str, str]) -> Response:
        """As prometheus_client's WSGI application answers: it knows the formats, gzip and ``name[]``.

        It (0.26) raises if a version in ``Accept`` is not a number. The header is ignored then, as RFC 9110 allows.
        """
        try:
            return self._scraped(query, headers.get("Accept", ""), headers.get("Accept-Encoding", ""))
        except (TypeError, ValueError):
            return self._scraped(query, "", "")

    def _scraped(self, query: str, accept: str, encoding: str) -> Response:
        started: list[tuple[str, list[tuple[str, str]]]] = []
        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": query,
            "HTTP_ACCEPT": accept,
            "HTTP_ACCEPT_ENCODING": encoding,
        }
        body = b"".join(self._metrics(environment, lambda *status_and_headers: started.append(status_and_headers)))
        ((status, fields),) = started
        return Response(int(status.partition(" ")[0]), body, tuple(fields))


_INDEX = b"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>reconciler watch</title></head>
<body><h1>reconciler watch</h1><p><a href="metrics">Metrics</a>, <a href="healthz">health</a></p></body></html>
"""


# ---------------------------------------------------------------- connections


class MetricsListener:
    """Serves ``site`` at ``address`` from its own threads until it is closed. Raises ConfigError if it cannot bind.

    ``longest_s``: seconds after which a connection is cut.
    """

    def __init__(
        self, address: ListenAddress, site: Site, *, longest_s: float = LONGEST_S, patience_s: float = PATIENCE_S
    ) -> None:
        try:
            self._server = _MetricsServer(address, site, longest_s, patience_s)
        except (OSError, UnicodeError) as error:  # the latter of a name that cannot be a host's, like .example.com
            raise ConfigError(
                f"Nothing can listen on {address}: {getattr(error, 'strerror', None) or error}.",
                hint="Choose another address with --listen or [watch] listen; another watch may be running there.",
            ) from error
        host, port = self._server.server_address[:2]
        self.address = ListenAddress(str(host), int(port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass(slots=True)
class _Visit:
    """One connection: when it was accepted, whether its request has arrived, and whether it was ended since."""

    began: float
    connection: socket.socket
    has_asked: bool = False
    is_cut: bool = False

    def cut(self) -> None:
        """End it: the thread that waits for it reads an end of file."""
        self.is_cut = True
        try:
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # below TLS, if there is TLS
        except OSError:
            log.debug("a connection was gone already")


class _MetricsServer(TCPServer):
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: ListenAddress, site: Site, longest_s: float, patience_s: float) -> None:
        self.site = site
        self._longest_s = longest_s
        self._patience_s = patience_s
        self._visits: dict[int, _Visit] = {}
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_THREADS)
        self.closing = threading.Event()
        family, place = _resolved(address)
        self.address_family = family
        super().__init__(place, BaseHTTPRequestHandler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # [::] is every address of the machine
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve it in a thread; while none is free, cut the slowest visitors, one after the other."""
        until = time.monotonic() + self._longest_s
        while not self._free.acquire(blocking=False):
            if self.closing.is_set() or time.monotonic() > until:
                self.shutdown_request(request)
                return
            self._make_room()
            if self._free.acquire(timeout=POLL_S):
                break
        visit = _Visit(time.monotonic(), request)
        with self._lock:
            self._visits[id(visit)] = visit
        threading.Thread(target=self._serve, args=(visit, client_address), name="visitor", daemon=True).start()

    def _serve(self, visit: _Visit, client_address: Any) -> None:
        connection = visit.connection
        try:
            connection.settimeout(self._longest_s)
            tls = self.site.access.tls
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                visit.connection = connection
                connection.do_handshake()
            _Handler(connection, client_address, self, visit)
        except (OSError, ValueError) as error:  # the visitor left, was cut, or speaks another protocol
            log.debug("visitor %s: %s", client_address, error)
        finally:
            with self._lock:
                del self._visits[id(visit)]
            self.shutdown_request(connection)
            self._free.release()

    def service_actions(self) -> None:
        """Called several times a second: cut the connections whose time is over."""
        now = time.monotonic()
        with self._lock:
            for visit in self._visits.values():
                if now - visit.began > self._longest_s:
                    visit.cut()

    def _make_room(self) -> None:
        with self._lock:
            there = [visit for visit in self._visits.values() if not visit.is_cut]
            latest = time.monotonic() - self._patience_s
            slow = [visit for visit in there if not visit.has_asked] or [each for each in there if each.began < latest]
            if slow:
                min(slow, key=lambda visit: visit.began).cut()


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection, which then ends (HTTP/1.0)."""

    server_version = "reconciler"
    sys_version = ""

    def __init__(self, connection: Any, client_address: Any, server: _MetricsServer, visit: _Visit) -> None:
        self._site = server.site
        self._visit = visit
        super().__init__(connection, client_address, server)

    def do_GET(self) -> None:
        self._visit.has_asked = True
        answer = self._site.get(self.path, self.headers)  # type: ignore[arg-type]
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """A scrape is not logged."""


def _resolved(address: ListenAddress) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The first address that the host's name resolves to."""
    host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    family, _, _, _, place = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, (str(place[0]), int(place[1]))
