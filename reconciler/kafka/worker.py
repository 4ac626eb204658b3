"""The process that reads records, apart from the one that judges them: if it dies, only its reads are lost.

One request is a frame of JSON: the kind of reading, and the places to read. The answer is frames of chunks, then one
frame that says how the read ended. A request that names topics to expect has no answer. A frame is its length in 8
bytes, then its content.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Sequence
from functools import cached_property
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

from reconciler import waits
from reconciler.core import errors
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.sent import frames, pack
from reconciler.ports import ReadRequest, TopicPartition

if TYPE_CHECKING:
    from reconciler.kafka.bulk.reading import BulkReader

CHUNKS, DONE, FAILED = b"c", b"d", b"f"
LENGTH = 8
STACK_BYTES = 512 * 1024
"""The stack of each of the client's threads; they get 8 MiB otherwise, all of which counts as used."""
BESIDES = 32 * 1024 * 1024
"""Bytes for what is reserved and not used: above all the stacks of 64 threads."""
SHARE = 4
"""A read ends early once its records take this fraction (1/4) of the memory limit; the next read gets the rest."""
IN_BULK = 500
"""From this number of requests on, the bulk reader (``kafka.bulk``) answers what it can: it needs less processor
time per request, but 0.07 s to be imported."""
IN_BULK_ONCE_LOADED = 100
"""The same once it has been imported. Requests are fewer then: some searches read on while others only begin."""
MOST_OF = 0.9
"""A read that times out has taken at least this share of its time; an error that came sooner was an answer."""
BUSY = 0.1
"""A client that waits for records uses far less than this share of a processor."""

log = logging.getLogger(__name__)


def main(descriptor: int) -> None:
    """Close the parent's files, ignore its signals, and answer requests until the other end is closed."""
    gc.freeze()  # a socket of the parent's that is collected here would close a number that is another's by now
    gc.set_threshold(1_000_000, 50, 50)  # hundreds of thousands of messages are alive at a time, and none is in a cycle
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, min(os.sysconf("SC_OPEN_MAX"), 65_536))
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # where the client library aborts, it would write between the lines of the log
        os.dup2(nothing, standard)
    with socket.socket(fileno=descriptor) as connection, contextlib.suppress(EOFError, ConnectionError):
        orders = json.loads(bytes(receive(connection)))
        _limit_memory(orders["memory"])
        readers = _Readers(orders)
        while _answer(connection, json.loads(bytes(receive(connection))), orders, readers):
            pass


def _limit_memory(memory: int) -> None:
    """Let the client library, which aborts where it gets no memory, take so many bytes more than there are now."""
    import ctypes

    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out, the system ends this process and not its parent
    with contextlib.suppress(OSError, AttributeError):  # not every C library has them
        library, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(128)
        library.pthread_attr_init(attributes)
        library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
        library.pthread_setattr_default_np(attributes)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:
            least = int(file.read().split()[5]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (least + memory + BESIDES, hard))


class _Readers:
    """The readers of this process, each made at its first use."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._orders = orders
        self._most_bytes = orders["memory"] // SHARE
        self._made: dict[bool, KafkaLogReader] = {}

    def of(self, *, sparing: bool) -> KafkaLogReader:
        if sparing not in self._made:
            orders = self._orders
            self._made[sparing] = KafkaLogReader(
                orders["client"],
                timeout_s=orders["timeout_s"],
                who=orders["who"],
                sparing=sparing,
                most_bytes=self._most_bytes,
            )
        return self._made[sparing]

    @cached_property
    def in_bulk(self) -> BulkReader | None:
        """None where its client is not installed, as it may be on Spark's executors, or is of an unfit version."""
        try:
            from reconciler.kafka.bulk.reading import BulkReader  # asyncio and a client: 70 ms that few reads need
        except Exception as error:  # noqa: BLE001 - the other reader needs none of it
            log.debug("reads of many partitions are left to librdkafka: %r", error)
            return None
        orders = self._orders
        return BulkReader(orders["client"], timeout_s=orders["timeout_s"], most_bytes=self._most_bytes)


def _answer(connection: socket.socket, asked: dict[str, Any], orders: dict[str, Any], readers: _Readers) -> bool:
    """Answer one request. False if the process has to end: a read timed out while the client worked on an answer."""
    if "expect" in asked:
        if readers.in_bulk is not None:
            readers.in_bulk.expect(asked["expect"])
        return True
    requests = [ReadRequest(TopicPartition(topic, number), *of) for topic, number, *of in asked["places"]]
    sparing = asked["sparing"]
    left: Sequence[int] = range(len(requests))
    is_many = len(requests) >= (IN_BULK_ONCE_LOADED if "in_bulk" in vars(readers) else IN_BULK)
    if is_many and not sparing and readers.in_bulk is not None:
        left = _answer_in_bulk(connection, requests, readers.in_bulk)
    began, used_s = monotonic(), process_time()
    try:
        with waits.waiting("", waits.for_seconds(orders["timeout_s"])) as wait:
            wait.began -= asked["waited_s"]  # the parent repeats a read; an error names the whole time that it waited
            if left:
                _answer_singly(connection, requests, left, readers.of(sparing=sparing))
        send(connection, DONE)
    except ReconcilerError as error:
        busy_s, took_s = process_time() - used_s, monotonic() - began
        timed_out = isinstance(error, Unreachable) and error.retryable and took_s > MOST_OF * orders["timeout_s"]
        if timed_out and busy_s > BUSY * took_s:
            return False  # no answer was missing: the client has been decompressing one
        about = [type(error).__name__, error.message, error.hint, error.retryable]
        send(connection, FAILED, json.dumps(about).encode())
    return True


def _answer_singly(
    connection: socket.socket, requests: Sequence[ReadRequest], left: Sequence[int], reader: KafkaLogReader
) -> None:
    """Answer those of the requests whose indexes are ``left``."""
    for answers in reader.read_each([requests[index] for index in left]):
        for frame in frames([(left[place], chunk) for place, chunk in answers]):
            send(connection, CHUNKS, *pack(frame))


def _answer_in_bulk(connection: socket.socket, requests: Sequence[ReadRequest], reader: BulkReader) -> Sequence[int]:
    """Answer the requests that the bulk reader can; return the indexes of the others."""
    from reconciler.kafka.bulk.reading import columns_of

    left = set(range(len(requests)))
    for answers in reader.read(requests):
        for frame in frames(answers):
            send(connection, CHUNKS, *pack(frame, columns_of))
        left.difference_update(index for index, _ in answers)
    return sorted(left)


def error_of(text: bytes) -> ReconcilerError:
    """The error that a ``FAILED`` frame reports."""
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


def receive(connection: socket.socket) -> memoryview:
    """The next frame. Raises EOFError at the end."""
    return memoryview(_exactly(connection, int.from_bytes(_exactly(connection, LENGTH), "little")))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        if (count := connection.recv_into(view[got:])) == 0:
            raise EOFError
        got += count
    return content
