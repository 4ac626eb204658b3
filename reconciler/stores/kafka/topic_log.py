"""Reading a compacted topic of one partition to its end: the latest record of every key of one group.

Theory of operation. A topic of rows may hold a million records of history, and may be written while it is read.

- *End of a read.* At the offset after the last record that existed when it began (the high watermark), committed or
  not. A read waits for the outcome of a transaction that is open there, so it sees everything committed before it
  began. The brokers abort the transactions of dead writers, at most 15 s later.
- *Memory.* One record for each live key of the group; other groups' records are not kept.
- *Next read.* It continues where the last one ended. A recreated topic is read from its start again, and so are rows
  older than ``KEPT_S``: after ``delete.retention.ms`` (a day) a tombstone may have been written and removed unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.core.errors import NotNow, Refused, Unreachable
from reconciler.kafka.connection import READS_ONLY, Connection
from reconciler.kafka.errors import Needs
from reconciler.kafka.records import KafkaRecord
from reconciler.stores.kafka import topic_rows
from reconciler.stores.kafka.topic_requests import Look, TopicRequests
from reconciler.waits import heard

UNFINISHED_S = 45.0
"""Seconds to wait for the end of another writer's transaction."""
KEPT_S = 3600.0
PROGRESS_S = 2.0
POLL_S = 0.02
BATCH = 10_000
TOKEN = "reconciler-write"
"""The header that names the write a record belongs to."""

_READING = {
    **READS_ONLY,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16 * 1024,
}

# Not a name below reconciler.stores: the command line silences those, because client libraries log there.
notes = logging.getLogger("reconciler.notes.kafka_topic")


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The latest record of a key that has a value."""

    offset: int
    value: bytes


@dataclass(slots=True)
class _Seen:
    """One group's records in a topic, as far as it has been read."""

    topic_id: str
    position: int = 0
    read_at: float = 0.0
    rows: dict[bytes, LatestRecord] = field(default_factory=dict)
    watched: bytes | None = None
    """The token of a write to look for, and whether one of its records was read."""
    watched_seen: bool = False
    foreign: int = 0
    first_foreign: int = 0

    def take(self, message: Any, begins: bytes) -> None:
        key, offset = message.key(), message.offset()
        if key is not None and key.startswith(begins):
            value = message.value()
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = LatestRecord(offset, value)
            if self.watched is not None and (TOKEN, self.watched) in KafkaRecord(message).headers:
                self.watched_seen = True
        elif not topic_rows.is_ours(key):
            self.first_foreign = self.first_foreign if self.foreign else offset
            self.foreign += 1


class TopicLog:
    """One group's rows in one topic."""

    def __init__(self, connection: Connection, requests: TopicRequests, group: str) -> None:
        self._connection = connection
        self._requests = requests
        self._begins = topic_rows.group_begins(group)
        self._seen: _Seen | None = None
        self._consumer: Any = None
        self._warned: set[int] = set()

    def holds(self, topic: Look, token: bytes) -> bool:
        """True if the write with this token, begun after the last ``read``, was committed. Waits for its outcome."""
        return self._read(topic, waiting=True, watched=token).watched_seen

    def read(self, topic: Look, *, waiting: bool = True) -> Mapping[bytes, LatestRecord]:
        """The latest record of every key of the group, without deleted rows.

        If not ``waiting``, the read ends where an open transaction begins, and may miss records committed behind it.
        Raises Unreachable if brokers do not answer, or a transaction does not end, in time; Refused for a topic of
        several partitions, and if this user may not read it.
        """
        return self._read(topic, waiting=waiting).rows

    def _read(self, topic: Look, *, waiting: bool, watched: bytes | None = None) -> _Seen:
        if topic.partitions != 1:
            raise Refused(
                f"Topic {topic.name!r} has {topic.partitions} partitions; rows are kept in topics of one.",
                hint="Correct the store's address, or delete the topic if it holds nothing yet: 'reconciler anchors"
                " import' creates it again.",
            )
        start, end = self._requests.edges(topic.name)
        now, seen = monotonic(), self._seen
        if seen is None or seen.topic_id != topic.topic_id or now - seen.read_at > KEPT_S or seen.position > end:
            seen = _Seen(topic.topic_id)
        self._seen = None  # until the read succeeds
        seen.watched, seen.watched_seen = watched, False
        seen.position = max(seen.position, start)
        if seen.position < end:
            self._read_on(topic.name, seen, end, waiting=waiting)
        seen.rows = {key: row for key, row in seen.rows.items() if row.offset >= start}
        seen.read_at, self._seen = now, seen
        self._warn_of_foreign(topic.name, seen)
        return seen

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_on(self, topic: str, seen: _Seen, end: int, *, waiting: bool) -> None:
        if self._consumer is None:
            self._consumer = self._connection.consumer(_READING)
        self._consumer.assign([KafkaPartition(topic, 0, seen.position)])
        begun_at, began = seen.position, monotonic()
        last_news = last_progress = began
        stuck = False
        with self._connection.waiting():
            while seen.position < end and (waiting or not stuck):
                messages = self._consumer.consume(BATCH, POLL_S)
                for message in messages:
                    if message.error() is None:
                        seen.take(message, self._begins)
                        seen.position = message.offset() + 1
                        stuck = False
                    else:
                        stuck = self._take_error(topic, message, seen, end) or stuck
                now = monotonic()
                if messages and not stuck:
                    last_news = now
                    heard()
                elif now - last_news > (UNFINISHED_S if stuck else self._connection.timeout_s):
                    if stuck:
                        raise self._unfinished(topic, seen.position)
                    raise self._connection.cluster.no_answer(f"Could not read topic {topic!r}")
                if now - last_progress > PROGRESS_S:
                    last_progress = now
                    done, whole = seen.position - begun_at, end - begun_at
                    notes.info("topic %s: %s of %s offsets read", topic, f"{done:,}", f"{whole:,}")
        self._consumer.unassign()

    def _take_error(self, topic: str, message: Any, seen: _Seen, end: int) -> bool:
        """True if the read has reached an open transaction before ``end``."""
        error = message.error()
        if message.topic() is None or error.retriable():
            return False  # not about the topic, or the client retries by itself
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            seen.position = max(seen.position, message.offset())
            return bool(seen.position < end)
        if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return False
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.close()  # this client may say it again, and then of the next read
            raise NotNow(
                f"Topic {topic!r} was truncated or recreated while it was read.",
                hint="Find out what deletes records or the topic, then run this again.",
            )
        needs = Needs(topic=f"Read on topic {topic!r}")
        raise self._connection.failure(KafkaException(error), f"read topic {topic!r}", needs)

    def _unfinished(self, topic: str, offset: int) -> Unreachable:
        return NotNow(
            f"Topic {topic!r} could not be read to its end: a transaction that begins at or after offset {offset} has"
            f" been open for more than {UNFINISHED_S:g} s.",
            hint="Find the program that holds it open: kafka-transactions.sh find-hanging names it.",
        )

    def _warn_of_foreign(self, topic: str, seen: _Seen) -> None:
        if seen.foreign and seen.first_foreign not in self._warned:
            self._warned.add(seen.first_foreign)
            notes.warning(
                "topic %s holds %s records that are not rows of a store (the first at offset %d); they are ignored",
                topic,
                f"{seen.foreign:,}",
                seen.first_foreign,
            )
