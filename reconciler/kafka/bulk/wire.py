"""The two requests that reading needs, as bytes: Metadata version 4 and Fetch version 4, and their answers.

Both are fixed formats (https://kafka.apache.org/protocol): these are the lowest versions that Kafka 4 answers, and all
brokers since 0.11 know them. aiokafka's own classes would make an object for each field of 10,000 partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar, NamedTuple

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Schema

Name = tuple[str, int]
"""A partition, as Kafka names it."""
SHORT, INT = struct.Struct(">h"), struct.Struct(">i")
REPLICAS = struct.Struct(">hiii")
ASKED = struct.Struct(">iqi")
FETCHED = struct.Struct(">ihqqi")
ABORTED = 16
"""Bytes for each aborted transaction, which only those who leave them out are told."""
CONSUMER, AT_ONCE, EVEN_IF_EMPTY, UNCOMMITTED = -1, 0, 0, 0


class Bytes(Response):  # type: ignore[misc]
    """An answer as it came."""

    API_KEY, API_VERSION, SCHEMA = -1, -1, Schema()

    content: memoryview

    @classmethod
    def decode(cls, data: Any) -> Bytes:
        found = cls()
        # getbuffer would copy it, since the answer has other users.
        found.content = memoryview(data.getvalue())[data.tell() :] if isinstance(data, BytesIO) else memoryview(data)
        return found


class Prepared(RequestStruct):  # type: ignore[misc]
    """A request whose body is there. Raises ``LookupError`` where a broker does not know this version."""

    API_KEY: ClassVar[int] = -1
    API_VERSION: ClassVar[int] = 4
    RESPONSE_TYPE = Bytes
    SCHEMA = Schema()

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def encode(self) -> bytes:
        return self.body

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Prepared:
        lowest, highest = versions[self.API_KEY]
        if not lowest <= self.API_VERSION <= highest:
            raise LookupError(f"versions {lowest} to {highest} of request {self.API_KEY}")
        return self


class Metadata(Prepared):
    """Who leads these topics' partitions. It creates none."""

    API_KEY: ClassVar[int] = 3

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(INT.pack(len(topics)) + b"".join(map(_text, topics)) + b"\0")


class Fetch(Prepared):
    """The batches of these partitions from these offsets on: so many bytes of each, and so many in all.

    The answer has at least one batch, however large, if there is any (KIP-74).
    """

    API_KEY: ClassVar[int] = 1

    def __init__(self, places: Iterable[tuple[Name, int]], each_bytes: int, all_bytes: int) -> None:
        topics: dict[str, list[bytes]] = {}
        for (topic, number), offset in places:
            topics.setdefault(topic, []).append(ASKED.pack(number, offset, each_bytes))
        parts = [struct.pack(">iiiibi", CONSUMER, AT_ONCE, EVEN_IF_EMPTY, all_bytes, UNCOMMITTED, len(topics))]
        for topic, asked in topics.items():
            parts += [_text(topic), INT.pack(len(asked)), *asked]
        super().__init__(b"".join(parts))


class Leaders(NamedTuple):
    """The brokers' addresses by their ids, and the id of each partition's leader."""

    brokers: dict[int, tuple[str, int]]
    of: dict[Name, int]


class Fetched(NamedTuple):
    """One partition's part of an answer: an error's code, the high watermark, and batches."""

    name: Name
    error: int
    high: int
    batches: memoryview


def leaders(content: memoryview) -> Leaders:
    """The leaders in an answer to ``Metadata``; partitions without a leader are left out."""
    at, brokers = INT.size, {}
    count, at = _int(content, at)
    for _ in range(count):
        node, at = _int(content, at)
        host, at = _string(content, at)
        port, at = _int(content, at)
        _, at = _string(content, at)  # the rack
        brokers[node] = (host, port)
    _, at = _string(content, at)  # the cluster's id
    _, at = _int(content, at)  # the controller
    count, at = _int(content, at)
    found: dict[Name, int] = {}
    for _ in range(count):
        topic, at = _string(content, at + SHORT.size)
        partitions, at = _int(content, at + 1)
        for _ in range(partitions):
            error, number, leader, replicas = REPLICAS.unpack_from(content, at)
            in_sync, at = _int(content, at + REPLICAS.size + INT.size * replicas)
            at += INT.size * in_sync
            if error == 0 and leader in brokers:
                found[topic, number] = leader
    return Leaders(brokers, found)


def fetched(content: memoryview) -> Iterator[Fetched]:
    """The partitions in an answer to ``Fetch``."""
    topics, at = _int(content, INT.size)
    for _ in range(topics):
        topic, at = _string(content, at)
        partitions, at = _int(content, at)
        for _ in range(partitions):
            number, error, high, _, aborted = FETCHED.unpack_from(content, at)
            size, at = _int(content, at + FETCHED.size + ABORTED * max(aborted, 0))
            batches = content[at : at + max(size, 0)]
            at += len(batches)
            yield Fetched((topic, number), error, high, batches)


def _text(word: str) -> bytes:
    content = word.encode()
    return SHORT.pack(len(content)) + content


def _int(content: memoryview, at: int) -> tuple[int, int]:
    return INT.unpack_from(content, at)[0], at + INT.size


def _string(content: memoryview, at: int) -> tuple[str, int]:
    """An absent one is empty here: none of those that may be absent is used."""
    size = max(SHORT.unpack_from(content, at)[0], 0)
    at += SHORT.size
    return str(content[at : at + size], "utf-8"), at + size
