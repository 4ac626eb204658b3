"""A proxy in front of a store's server, which kills the server at a chosen write request.

Clients connect to the proxy's port. It splits their bytes into requests, counts the write requests, and kills the
server at the chosen one: before the request reaches the server; or after the server's answer, which the proxy then
drops or delivers. The port is closed until ``open`` is called again.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, Self

from reconciler.lab.kafka import HOST, free_ports

BEFORE, UNANSWERED, ANSWERED = "before it arrives", "done and not answered", "answered"
MOMENTS = (BEFORE, UNANSWERED, ANSWERED)


class Language(Protocol):
    """The protocol of one connection; ``received`` are the bytes received and not yet passed on."""

    def request(self, received: bytes) -> int:
        """The length of the first request; 0 while it is incomplete."""

    def answer(self, received: bytes) -> int: ...

    def writes(self, request: bytes) -> str | None:
        """A short name of what a request writes; None for other requests."""

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """True if ``answer`` is that of ``request``."""


@dataclass
class PlannedKill:
    """The write requests since ``arm``, and whether the server was killed at the chosen one (``number``)."""

    number: int | str
    moment: str
    seen: list[str] = field(default_factory=list)
    done: bool = False

    def is_due(self, name: str) -> bool:
        self.seen.append(name)
        return self.number in (len(self.seen), f"{name} {self.seen.count(name)}")


class GoBetween:
    """The proxy for the server at ``where()``, HOST:PORT; ``kill`` kills that server. Used in a ``with`` block."""

    def __init__(self, language: Callable[[], Language], where: Callable[[], str], kill: Callable[[], object]) -> None:
        (self.port,) = free_ports(1)
        self._language = language
        self._where = where
        self._kill = kill
        self._listener: socket.socket | None = None
        self._planned: PlannedKill | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def arm(self, number: int | str, moment: str) -> PlannedKill:
        """Kill at the write request of this number (the first is 1) or name and number (``"put 2"``)."""
        self._planned = PlannedKill(number, moment)
        return self._planned

    def open(self) -> Self:
        """Listen (again)."""
        if self._listener is None:
            self._listener = socket.create_server((HOST, self.port))
            threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()
        return self

    def close(self) -> None:
        """Behave as a dead server: connections end, and new ones are refused."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()
        for each in list(self._open):
            _end(each)

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            host, _, port = self._where().rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), timeout=60)
            except OSError:
                _end(client)
                continue
            server.settimeout(None)
            self._open |= {client, server}
            connection = _Connection(client, server, self._language(), self)
            for direction in (connection.forth, connection.back):
                threading.Thread(target=direction, daemon=True).start()

    # ------------------------------------------------------------ for connections

    def due(self, name: str) -> PlannedKill | None:
        """The kill that is due at a write request that has just come, if there is one."""
        with self._lock:
            planned = self._planned
            return planned if planned is not None and not planned.done and planned.is_due(name) else None

    def carry_out(self, planned: PlannedKill) -> None:
        with self._lock:
            self.close()
            self._kill()
            planned.done = True


class _Connection:
    """The connections of one client and of the proxy with the server; two threads pass bytes on."""

    def __init__(self, client: socket.socket, server: socket.socket, language: Language, between: GoBetween) -> None:
        self._client = client
        self._server = server
        self._language = language
        self._between = between
        self._awaited: tuple[bytes, PlannedKill] | None = None

    def forth(self) -> None:
        with self._until_one_ends():
            for request in _pieces(self._client, self._language.request):
                name = self._language.writes(request)
                planned = self._between.due(name) if name is not None else None
                if planned is not None and planned.moment == BEFORE:
                    self._between.carry_out(planned)
                    return
                if planned is not None:
                    self._awaited = (request, planned)
                self._server.sendall(request)

    def back(self) -> None:
        with self._until_one_ends():
            for answer in _pieces(self._server, self._language.answer):
                request, planned = self._awaited or (b"", None)
                if planned is None or not self._language.belongs(answer, request):
                    self._client.sendall(answer)
                    continue
                self._between.carry_out(planned)
                if planned.moment == ANSWERED:
                    self._client.sendall(answer)
                return

    @contextmanager
    def _until_one_ends(self) -> Iterator[None]:
        with suppress(OSError):
            yield
        for each in (self._client, self._server):
            _end(each)


def _pieces(sender: socket.socket, length: Callable[[bytes], int]) -> Iterator[bytes]:
    received = b""
    while more := sender.recv(65_536):
        received += more
        while received and (size := length(received)):
            yield received[:size]
            received = received[size:]
    if received:
        yield received


def _end(connection: socket.socket) -> None:
    """Close it, also while another thread reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


# ---------------------------------------------------------------- protocols


def _framed(received: bytes) -> int:
    """Messages that begin with their length in four bytes."""
    size = 4 + int.from_bytes(received[:4], "big")
    return size if len(received) >= max(size, 5) else 0


_THRIFT_WRITES = (b"mutateRow", b"checkAndPut", b"deleteAll")


class ZooKeeper:
    """A request begins with its number (xid) and kind; its answer repeats the number. The first one has neither."""

    _MULTI = 14

    def request(self, received: bytes) -> int:
        return _framed(received)

    answer = request

    def writes(self, request: bytes) -> str | None:
        kind = int.from_bytes(request[8:12], "big")
        return "transaction" if kind == self._MULTI and b"permission-probe" not in request else None

    def belongs(self, answer: bytes, request: bytes) -> bool:
        return answer[4:8] == request[4:8]


class Thrift:
    """HBase's clients wait for each answer before the next request, so one piece of bytes is one message."""

    def request(self, received: bytes) -> int:
        return len(received)

    answer = request

    def writes(self, request: bytes) -> str | None:
        if request[:4] != b"\x80\x01\0\x01":
            return None
        (length,) = struct.unpack(">i", request[4:8])
        name = request[8 : 8 + length]
        return name.decode() if name.startswith(_THRIFT_WRITES) else None

    def belongs(self, answer: bytes, request: bytes) -> bool:
        return answer != b"" and request != b""


class PostgreSQL:
    """Messages of a letter and a length; the first has no letter. A request ends with a query, a password, or Sync.

    A commit counts where its transaction has written. Addresses need ``sslmode=disable&gssencmode=disable``, since
    the requests for those have no letter either.
    """

    def __init__(self) -> None:
        self._begun = False
        self._written = False

    def request(self, received: bytes) -> int:
        if not self._begun:
            size = int.from_bytes(received[:4], "big")
            self._begun = len(received) >= max(size, 4)
            return size if self._begun else 0
        return _through(received, b"QSpX")

    def answer(self, received: bytes) -> int:
        return _through(received, b"ZR")

    def writes(self, request: bytes) -> str | None:
        found = None
        for letter, body in _messages(request):
            statement = body if letter == b"Q" else body.partition(b"\0")[2] if letter == b"P" else b""
            word = statement.partition(b" ")[0].rstrip(b"\0").decode(errors="replace").lower()
            if word in ("insert", "update", "delete"):
                found, self._written = word, True
            elif word in ("commit", "rollback"):
                found, self._written = (word if self._written and word == "commit" else None), False
        return found

    def belongs(self, answer: bytes, request: bytes) -> bool:
        return answer != b"" and request != b""


def _messages(received: bytes) -> Iterator[tuple[bytes, bytes]]:
    while len(received) >= 5:
        end = 1 + int.from_bytes(received[1:5], "big")
        if len(received) < end:
            return
        yield received[:1], received[5:end]
        received = received[end:]


def _through(received: bytes, last: bytes) -> int:
    """The length of the messages up to the first with one of these letters; 0 if that one has not come."""
    at = 0
    for letter, body in _messages(received):
        at += 5 + len(body)
        if letter in last:
            return at
    return 0
