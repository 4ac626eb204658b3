"""The two requests that reading needs, as bytes: Metadata version 4 and Fetch version 4, and their answers.

Both are fixed formats (https://kafka.apache.org/protocol): these are the lowest versions that Kafka 4 answers, and all
brokers since 0.11 know them. aiokafka's own classes would make an object for each field of 10,000 partitions.

Client settings of librdkafka are translated for the connections that carry them: all of them, or none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
"""Bytes for each aborted transaction, of which a broker tells only readers of committed records."""
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
    """A request with its body. Raises ``LookupError`` where a broker does not know this version."""

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


def parse_leaders(content: memoryview) -> Leaders:
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


def parse_fetch(content: memoryview) -> Iterator[Fetched]:
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
    """An absent array is empty: no array that may be absent is used."""
    size = max(SHORT.unpack_from(content, at)[0], 0)
    at += SHORT.size
    return str(content[at : at + size], "utf-8"), at + size


PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
TRANSLATED = frozenset(
    {
        *("bootstrap.servers", "client.id", "security.protocol"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    }
)
WITHOUT_EFFECT = frozenset({"log_level", "debug", "log.connection.close", "log.queue", "statistics.interval.ms"})
"""Of the answers, that is: they say what librdkafka reports of itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The first brokers to ask, and the options of a connection (``aiokafka.conn.create_conn``)."""

    servers: tuple[tuple[str, int], ...]
    options: Mapping[str, Any]


def translate_settings(client: Mapping[str, Any]) -> Settings | None:
    """None for settings that may not mean the same there.

    Raises OSError (of which the errors of TLS are) for files that cannot be used.
    """
    if not client.keys() <= TRANSLATED | WITHOUT_EFFECT:
        return None
    words = {name: str(value) for name, value in client.items()}
    servers = tuple(_servers(words.get("bootstrap.servers", "")))
    protocol = words.get("security.protocol", "PLAINTEXT").upper()
    if not servers or protocol not in PROTOCOLS:
        return None
    options: dict[str, Any] = {"client_id": words.get("client.id", "reconciler"), "security_protocol": protocol}
    if protocol.startswith("SASL"):
        named = [words[name] for name in ("sasl.mechanism", "sasl.mechanisms") if name in words]
        if len(named) != 1 or named[0] not in MECHANISMS or not {"sasl.username", "sasl.password"} <= words.keys():
            return None
        options["sasl_mechanism"] = named[0]
        options["sasl_plain_username"] = words["sasl.username"]
        options["sasl_plain_password"] = words["sasl.password"]
    if protocol.endswith("SSL"):
        context = _tls(words)
        if context is None:
            return None
        options["ssl_context"] = context
    return Settings(servers, options)


def _servers(text: str) -> list[tuple[str, int]]:
    """``HOST:PORT,…``; nothing if one of them is written in another way."""
    found = []
    for each in text.split(","):
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal() or set(host) & set("/[]: "):
            return []
        found.append((host, int(port)))
    return found


def _tls(words: Mapping[str, str]) -> Any:
    """The context for TLS. Without a file of authorities librdkafka takes the system's, which Python may not find."""
    import ssl

    named = words.get("ssl.endpoint.identification.algorithm", "https")
    pair = {"ssl.certificate.location", "ssl.key.location"} & words.keys()
    if "ssl.ca.location" not in words or named not in ("https", "none") or len(pair) == 1:
        return None
    if words.get("enable.ssl.certificate.verification", "true").lower() != "true":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = named == "https"
    context.load_verify_locations(cafile=words["ssl.ca.location"])
    if pair:
        # Without a password OpenSSL would ask at the terminal for that of an encrypted key.
        password = words.get("ssl.key.password", "")
        context.load_cert_chain(words["ssl.certificate.location"], words["ssl.key.location"], password)
    return context
