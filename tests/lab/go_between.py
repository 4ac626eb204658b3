"""A go-between in front of a store's server, which kills the server at a chosen request to write.

Clients connect to the go-between's port. It cuts what they send into requests, counts those that write, and when the
chosen one comes it kills the server: before the request reaches it; or when the server has answered, and the answer
is thrown away; or then, and the answer is delivered. Until ``open`` is called again nobody listens at its port.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, Self

from reconciler.lab.ports import HOST, free_ports

BEFORE, UNANSWERED, ANSWERED = "before it arrives", "done and not answered", "answered"
MOMENTS = (BEFORE, UNANSWERED, ANSWERED)


class Language(Protocol):
    """What one connection speaks: requests and answers are cut from all that was received and not yet passed on."""

    def request(self, received: bytes) -> int:
        """How long the first request is; 0 while it is not whole."""

    def answer(self, received: bytes) -> int: ...

    def writes(self, request: bytes) -> str | None:
        """What a request writes, in a word or two; None if it does not."""

    def belongs(self, answer: bytes, request: bytes) -> bool:
        """True if it answers that request."""


@dataclass
class Struck:
    """What came since ``arm``: the requests to write, the one that the server was killed at among them."""

    number: int | str
    moment: str
    seen: list[str] = field(default_factory=list)
    done: bool = False

    def is_due(self, name: str) -> bool:
        self.seen.append(name)
        return self.number in (len(self.seen), f"{name} {self.seen.count(name)}")


class GoBetween:
    """In front of the server at ``where()``, HOST:PORT; ``kill`` ends it. Used in a ``with`` block."""

    def __init__(self, language: Callable[[], Language], where: Callable[[], str], kill: Callable[[], object]) -> None:
        (self.port,) = free_ports(1)
        self._language = language
        self._where = where
        self._kill = kill
        self._listener: socket.socket | None = None
        self._struck: Struck | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def arm(self, number: int | str, moment: str) -> Struck:
        """Kill at the request to write of this number (the first is 1) or name and number (``"put 2"``)."""
        self._struck = Struck(number, moment)
        return self._struck

    def open(self) -> Self:
        """Listen (again)."""
        if self._listener is None:
            self._listener = socket.create_server((HOST, self.port))
            threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()
        return self

    def close(self) -> None:
        """As a dead server: connections end, and new ones are refused."""
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

    def due(self, name: str) -> Struck | None:
        """What is to happen at a request to write that has come just now, if anything is."""
        with self._lock:
            struck = self._struck
            return struck if struck is not None and not struck.done and struck.is_due(name) else None

    def strike(self, struck: Struck) -> None:
        with self._lock:
            self.close()
            self._kill()
            struck.done = True


class _Connection:
    """Of one client, and of the go-between with the server; two threads carry what comes."""

    def __init__(self, client: socket.socket, server: socket.socket, language: Language, between: GoBetween) -> None:
        self._client = client
        self._server = server
        self._language = language
        self._between = between
        self._awaited: tuple[bytes, Struck] | None = None

    def forth(self) -> None:
        with self._until_one_ends():
            for request in _pieces(self._client, self._language.request):
                name = self._language.writes(request)
                struck = self._between.due(name) if name is not None else None
                if struck is not None and struck.moment == BEFORE:
                    self._between.strike(struck)
                    return
                if struck is not None:
                    self._awaited = (request, struck)
                self._server.sendall(request)

    def back(self) -> None:
        with self._until_one_ends():
            for answer in _pieces(self._server, self._language.answer):
                request, struck = self._awaited or (b"", None)
                if struck is None or not self._language.belongs(answer, request):
                    self._client.sendall(answer)
                    continue
                self._between.strike(struck)
                if struck.moment == ANSWERED:
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
    """For good, also where another thread is reading from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


# ---------------------------------------------------------------- what servers speak


def _framed(received: bytes) -> int:
    """A length of four bytes in front."""
    size = 4 + int.from_bytes(received[:4], "big")
    return size if len(received) >= max(size, 5) else 0


_KAFKA_WRITES = {0: "produce", 24: "add partitions", 26: "end transaction"}
_THRIFT_WRITES = (b"mutateRow", b"checkAndPut", b"deleteAll")


class Kafka:
    """A request begins with its kind (``api_key``), version and number; the number comes back."""

    def request(self, received: bytes) -> int:
        return _framed(received)

    answer = request

    def writes(self, request: bytes) -> str | None:
        return _KAFKA_WRITES.get(int.from_bytes(request[4:6], "big"))

    def belongs(self, answer: bytes, request: bytes) -> bool:
        return answer[4:8] == request[8:12]


class ZooKeeper:
    """A request begins with its number (xid) and kind; the number comes back. The first of all has neither."""

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
    """HBase's clients await each answer before they ask again: what comes in one piece is one message."""

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

    A commit counts where its transaction has written. Addresses need ``sslmode=disable&gssencmode=disable``: the
    questions for those have no letter either.
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
    """How long the messages are up to the first that begins with one of these letters; 0 if it has not come."""
    at = 0
    for letter, body in _messages(received):
        at += 5 + len(body)
        if letter in last:
            return at
    return 0
