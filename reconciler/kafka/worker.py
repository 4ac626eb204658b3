"""The process that reads records, apart from the one that judges them: if it dies, only its reads are lost.

One request is a line of JSON: the kind of reading, and places to read. The answer is frames of chunks, then one
that says how it ended. Frames are a length of 8 bytes and so many bytes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import socket
from collections.abc import Callable
from time import monotonic, process_time
from typing import Any

from reconciler.core import errors
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.kafka.reader import KafkaLogReader, Manner
from reconciler.kafka.sent import frames, pack
from reconciler.ports import ReadRequest, TopicPartition

NEWS, CHUNKS, DONE, FAILED = b"n", b"c", b"d", b"f"
NEWS_EVERY_S = 0.5
LENGTH = 8
BESIDES = 1024 * 1024 * 1024
"""Bytes for what is reserved and not used, above all the stacks of the client's threads: 8 MiB for each broker."""
SHARE = 4
"""A read stops at this part of the limit with what it has; the rest comes with the next one."""
MOST_OF = 0.9
"""A read that timed out took about all of its time; an error that came sooner was an answer."""
BUSY = 0.1
"""The share of a processor that a client uses which waits for records is far below this."""


def serve(connection: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    gc.set_threshold(1_000_000, 50, 50)  # hundreds of thousands of messages are alive at a time, and none is in a cycle
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, the system ends this process and not its parent
    with contextlib.suppress(EOFError, ConnectionError):
        orders = json.loads(bytes(receive(connection)))
        with contextlib.suppress(
            OSError, ValueError, IndexError
        ):  # for what the client does while the parent does not look
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with open("/proc/self/statm") as file:
                least = int(file.read().split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_DATA, (least + 2 * orders["memory"] + BESIDES, hard))
        readers: dict[bool, KafkaLogReader] = {}
        while _answer(connection, json.loads(bytes(receive(connection))), orders, readers):
            pass


def _answer(
    connection: socket.socket, asked: dict[str, Any], orders: dict[str, Any], readers: dict[bool, KafkaLogReader]
) -> bool:
    """Whether to go on."""
    sparing, began, used_s = asked["sparing"], monotonic(), process_time()
    try:
        if sparing not in readers:
            manner = Manner(sparing, orders["memory"] // SHARE, _Pulse(connection))
            readers[sparing] = KafkaLogReader(
                orders["client"], timeout_s=orders["timeout_s"], who=orders["who"], manner=manner
            )
        requests = [ReadRequest(TopicPartition(topic, number), *of) for topic, number, *of in asked["places"]]
        for answers in readers[sparing].read_each(requests):
            for frame in frames(answers):
                send(connection, CHUNKS, *pack(frame))
        send(connection, DONE)
    except ReconcilerError as error:
        busy_s, took_s = process_time() - used_s, monotonic() - began
        timed_out = isinstance(error, Unreachable) and error.retryable and took_s > MOST_OF * orders["timeout_s"]
        if timed_out and busy_s > BUSY * took_s:
            return False  # no answer was missing: the client has been decompressing one
        about = [type(error).__name__, error.message, error.hint, error.retryable]
        send(connection, FAILED, json.dumps(about).encode())
    return True


class _Pulse:
    """Tells the other end, now and then, that records are coming."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._last = monotonic()

    def __call__(self) -> None:
        if monotonic() - self._last > NEWS_EVERY_S:
            self._last = monotonic()
            send(self._connection, NEWS)


def error_of(text: bytes) -> ReconcilerError:
    """The error that a frame ``FAILED`` tells."""
    name, message, hint, retryable = json.loads(text)
    kind = getattr(errors, name, ReconcilerError)
    error: ReconcilerError = kind(message, hint=hint)
    error.retryable = retryable
    return error


# ---------------------------------------------------------------- frames


def send(connection: socket.socket, *parts: bytes) -> None:
    """Send one frame. Its parts may be large, and are not copied together."""
    small = b"".join((sum(map(len, parts)).to_bytes(LENGTH, "little"), *parts[:-1]))
    connection.sendall(small)
    connection.sendall(parts[-1])


def receive(connection: socket.socket, waiting: Callable[[], None] | None = None) -> memoryview:
    """The next frame; ``waiting`` is called whenever the connection's timeout passes. Raises EOFError at the end."""
    size = int.from_bytes(_exactly(connection, LENGTH, waiting), "little")
    return memoryview(_exactly(connection, size, waiting))


def _exactly(connection: socket.socket, size: int, waiting: Callable[[], None] | None) -> bytearray:
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        try:
            count = connection.recv_into(view[got:])
        except TimeoutError:
            if waiting is not None:
                waiting()
            continue
        if count == 0:
            raise EOFError
        got += count
    return content
