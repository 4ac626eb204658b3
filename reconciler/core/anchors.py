"""Anchors: the identity of a record a job processed, and stored offsets paired with them.

The fingerprint's layout is fixed by the product's contract: BLAKE2b (RFC 7693) with a 16-byte digest over
key then value, each as one byte 0 for null, or one byte 1, its length as 8 bytes big-endian, and its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import NamedTuple, Protocol

from reconciler.core.errors import Refused

NULL = b"\x00"
PRESENT = b"\x01"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

NO_TOPIC_ID = "A" * 22
"""The topic id that means "none": brokers before 2.8 (KIP-516) keep no ids, and clients report 16 zero bytes."""

_FINGERPRINT = re.compile(r"[0-9a-fA-F]{32}")


def fingerprint(key: bytes | None, value: bytes | None) -> str:
    """32 hex digits naming a record's key and value; headers, offset and timestamp are left out."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        if part is None:
            digest.update(NULL)
        else:
            digest.update(PRESENT + len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


FRAME_BYTES = 5
"""A magic byte 0 and a schema's id (4 bytes), in front of what Confluent's serializers write."""


def unframed(part: bytes | None) -> bytes | None:
    """A key or a value without its schema registry's frame, if it has one."""
    return part[FRAME_BYTES:] if part is not None and is_framed(part) else part


def is_framed(part: bytes | None) -> bool:
    return part is not None and len(part) >= FRAME_BYTES and part[0] == 0


KEY_SCHEMA, VALUE_SCHEMA = "__key_schema_id", "__value_schema_id"
"""Headers in which newer serializers name the schema; key or value then have no frame."""


def last_header(record: Record, name: str) -> bytes | None:
    """The last header of that name, as Kafka's ``lastHeader`` does."""
    for key, value in reversed(record.headers):
        if key == name:
            return value
    return None


def unframed_key(record: Record) -> bytes | None:
    return unframed(record.key) if last_header(record, KEY_SCHEMA) is None else record.key


def unframed_value(record: Record) -> bytes | None:
    return unframed(record.value) if last_header(record, VALUE_SCHEMA) is None else record.value


def has_fingerprint(record: Record, wanted: str) -> bool:
    """True if ``wanted`` is the record's, with its frames or without them."""
    if wanted == fingerprint(record.key, record.value):
        return True
    if not (is_framed(record.key) or is_framed(record.value)):
        return False
    return wanted == fingerprint(unframed(record.key), unframed(record.value))


class TopicPartition(NamedTuple):
    """A partition's full name on one cluster. As text: ``topic-partition``.

    A tuple, since every search and every row is found by it: its hash and its order cost a tenth of a dataclass's.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(Protocol):
    """One record as a log reader returns it.

    ``timestamp_ms`` is the record's own Kafka timestamp in ms, or None where the broker keeps none.
    ``append_time`` is True when the broker stamped it on arrival (LogAppendTime, KIP-32).
    """

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int | None: ...
    @property
    def append_time(self) -> bool: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class Names(Enum):
    """Which record an anchor names, relative to the stored offset."""

    LAST = "last"
    """The last processed record: the one before the stored offset. This is the default."""
    NEXT = "next"
    """The record at the stored offset, not processed yet (the flowlet layout)."""
    MAX_TIME = "max-time"
    """No record: the largest event time processed so far (the log saver's ``maxEventTime``)."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The identity of one record, as far as known.

    ``offset`` is in the numbering of the cluster ``cluster_id``. An anchor without timestamp, id and fingerprint
    says only which cluster numbers the stored offset: this product writes it at the start of an empty log.
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    id: bytes | None = None
    fingerprint: str | None = None
    cluster_id: str | None = None
    topic_id: str | None = None
    names: Names = Names.LAST

    def __post_init__(self) -> None:
        _whole("the anchor's offset", self.offset, 0)
        _whole("the anchor's timestamp", self.timestamp_ms)
        if self.id is not None and not isinstance(self.id, bytes):
            raise ValueError(f"the anchor's id is {shown(self.id)}, not bytes")
        if self.fingerprint is not None and not (
            isinstance(self.fingerprint, str) and _FINGERPRINT.fullmatch(self.fingerprint)
        ):
            raise ValueError(f"a fingerprint is 32 hex digits, not {shown(self.fingerprint)}")
        _name("cluster's id", self.cluster_id)
        _name("topic's id", self.topic_id)
        if not isinstance(self.names, Names):
            raise ValueError(f"an anchor does not name {shown(self.names)}")
        if self.names is Names.MAX_TIME and self.timestamp_ms is None:
            raise ValueError("a maximum event time needs a timestamp")

    @property
    def names_a_record(self) -> bool:
        """True if an id or a fingerprint can tell this record from all others."""
        return self.names is not Names.MAX_TIME and (self.id is not None or self.fingerprint is not None)

    @property
    def is_bare(self) -> bool:
        """True if only the numbering is known."""
        return self.timestamp_ms is None and self.id is None and self.fingerprint is None

    def numbered_by(self, cluster_id: str | None, topic_id: str | None) -> bool:
        """True if ``offset`` is in the numbering of this very topic of this cluster.

        A missing topic id matches any; two that differ mean that the topic was recreated.
        """
        if self.cluster_id is None or self.cluster_id != cluster_id:
            return False
        own, other = real_topic_id(self.topic_id), real_topic_id(topic_id)
        return own is None or other is None or own == other


def real_topic_id(topic_id: str | None) -> str | None:
    """The topic id; None for ``NO_TOPIC_ID``."""
    return None if topic_id == NO_TOPIC_ID else topic_id


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """The next offset to read as a job saved it, with its anchor.

    ``offset`` below 0 is a sentinel: nothing was processed yet. ``written_at_ms`` is the time of writing (epoch ms),
    where the store keeps it. ``covers_until_ms``: records before ``offset`` may be as new as this, where the store
    knows that the other time is too early for it.
    """

    offset: int
    anchor: Anchor | None = None
    written_at_ms: int | None = None
    covers_until_ms: int | None = None

    def __post_init__(self) -> None:
        if self.offset is None:
            raise ValueError("the stored offset is missing")
        _whole("the stored offset", self.offset)
        _whole("the time of writing", self.written_at_ms)

    @property
    def is_sentinel(self) -> bool:
        return self.offset < 0

    @property
    def is_unread(self) -> bool:
        """True if nothing of the partition was processed: a sentinel, or offset 0 of a log with no record to name.

        For the latter, ``track`` and ``apply`` keep the numbering alone.
        """
        return self.is_sentinel or (self.offset == 0 and self.anchor is not None and self.anchor.is_bare)

    @property
    def is_bare_zero(self) -> bool:
        """True for offset 0 without an anchor: nothing is in front of it, in any numbering."""
        return self.offset == 0 and self.anchor is None

    @property
    def cluster_id(self) -> str | None:
        """The cluster in whose numbering the offset is, by its anchor."""
        return None if self.anchor is None else self.anchor.cluster_id


UNKNOWN_PARTITION = -1
"""The partition of a malformed row whose partition cannot be read."""


class Malformed(StoredOffset):
    """A stored offset that cannot be read: the reason and the next step, each a sentence.

    Using its offset or anchor raises ``Refused`` with both. A caller that judges rows one by one checks
    ``Row.malformed`` first, so that one bad row does not hide the others.
    """

    __slots__ = ("hint", "message")

    message: str
    hint: str

    def __init__(self, message: str, hint: str) -> None:
        object.__setattr__(self, "message", message)
        object.__setattr__(self, "hint", hint)

    @property
    def refused(self) -> Refused:
        return Refused(self.message, hint=self.hint)

    @property
    def offset(self) -> int:
        raise self.refused

    @property
    def anchor(self) -> Anchor | None:
        raise self.refused

    @property
    def written_at_ms(self) -> int | None:
        raise self.refused

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Malformed) and (self.message, self.hint) == (other.message, other.hint)

    def __hash__(self) -> int:
        return hash((self.message, self.hint))

    def __repr__(self) -> str:
        return f"Malformed({self.message!r}, {self.hint!r})"


def _whole(what: str, value: object, low: int = INT64_MIN) -> None:
    """Raise ValueError unless ``value`` is None or a whole number of 64 bits, at least ``low``."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} is {shown(value)}, not a whole number")
    if not low <= value <= INT64_MAX:
        raise ValueError(f"{what} is {shown(value)}, which Kafka cannot have")


def _name(what: str, value: object) -> None:
    """Raise ValueError unless ``value`` is None or text that can be encoded."""
    if value is not None and not (isinstance(value, str) and encodable(value)):
        raise ValueError(f"the {what} is {shown(value)}, which no cluster gives")


def encodable(text: str) -> bool:
    """False for text with lone surrogates, which no store can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """A short text of any value. Bytes are counted, not shown: an id may be a person's name."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


class IdOrder(Enum):
    """Whether ids grow along a source partition. ``INCREASING`` is strict: no two records share one."""

    OPAQUE = "opaque"
    INCREASING = "increasing"


@dataclass(frozen=True, slots=True)
class Identity:
    """How to read a record's identity. The callables return None for "not there", and raise only a ReconcilerError: for
    a schema that cannot be had.

    ``timestamp_of`` gives epoch ms, ``id_of`` the id's bytes. ``record_time`` is True when ``timestamp_of`` is the
    record's own Kafka timestamp, which is what a broker's time lookup knows. ``unique_ids``: no two records of a source
    partition share an id, which also holds where ids increase. ``id_name`` and ``time_name`` are for
    sentences: ``the header "message-id"``.
    """

    timestamp_of: Callable[[Record], int | None]
    id_of: Callable[[Record], bytes | None] | None = None
    id_order: IdOrder = IdOrder.OPAQUE
    record_time: bool = True
    unique_ids: bool = False
    id_name: str = "an id"
    time_name: str = "a time"
    source_value_of: Callable[[Record], object] | None = None
    """The source's offset that a mirrored record carries, as the mirror wrote it: bytes, text or a number."""
    source_value_name: str = "the source's offset"
    source_offset_of: Callable[[Record], int | None] | None = None
    """The same as a number. Set by a search, which tells from several records how the mirror wrote it."""
    framed: bool = False
    """A schema registry's frame, in front of a key or a value, is not content: another registry has other ids."""

    @property
    def has_unique_ids(self) -> bool:
        return self.unique_ids or self.id_order is IdOrder.INCREASING

    def trusted_time_of(self, record: Record) -> int | None:
        """The record's time as the job defines it; None if it has none or a broker overwrote it."""
        return None if self.record_time and record.append_time else self.timestamp_of(record)

    def anchor_of(self, record: Record, *, cluster_id: str | None, topic_id: str | None) -> Anchor:
        """The anchor that names ``record``, numbered by the given cluster and topic."""
        return Anchor(
            offset=record.offset,
            timestamp_ms=self.timestamp_of(record),
            id=self.id_of(record) if self.id_of else None,
            fingerprint=self.fingerprint_of(record),
            cluster_id=cluster_id,
            topic_id=topic_id,
        )

    def fingerprint_of(self, record: Record) -> str:
        if self.framed:
            return fingerprint(unframed_key(record), unframed_value(record))
        return fingerprint(record.key, record.value)


def record_timestamp(record: Record) -> int | None:
    """The record's own Kafka timestamp, epoch ms."""
    return record.timestamp_ms


RECORD_TIME_ONLY = Identity(timestamp_of=record_timestamp)
"""The identity of a job that identifies records by timestamp and fingerprint alone."""


_NUMBER = re.compile(rb"-?\d{1,40}(\.\d{1,40})?")


def order_key(id_bytes: bytes) -> tuple[int, Decimal, bytes]:
    """The sort key of an increasing id: a number if it is decimal text, else its bytes; numbers come first."""
    if _NUMBER.fullmatch(id_bytes):
        return (0, Decimal(id_bytes.decode()), b"")
    return (1, Decimal(0), id_bytes)
