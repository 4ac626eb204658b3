"""The message ids that a flowlet's rows hold, read off the log that its offsets are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.core.anchors import Record
from reconciler.core.errors import ConfigError, Refused
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs
from reconciler.ports import TopicPartition
from reconciler.stores.hbase.layouts import cdap

TIMEOUT_S = 10.0
POLL_S = 0.1
SILENCE_S = 0.5
_READS = {
    "group.id": "reconciler-reads-only",  # required by the client; never joined, nothing is ever committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 16 * 1024 * 1024,
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 50,  # how long the brokers say nothing at a log's end
}
_NO_RECORD = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


@dataclass(frozen=True, slots=True)
class _Message:
    """A consumed message as a ``core.anchors.Record``."""

    offset: int
    timestamp_ms: int | None
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @classmethod
    def of(cls, message: Any) -> _Message:
        kind, stamp = message.timestamp()
        return cls(
            message.offset(),
            None if kind == TIMESTAMP_NOT_AVAILABLE else stamp,
            kind == TIMESTAMP_LOG_APPEND_TIME,
            message.key(),
            message.value(),
            message.headers() or (),
        )


class LogMessageIds:
    """Message ids by ``id_of``, from the cluster of ``client`` (librdkafka properties)."""

    def __init__(
        self, id_of: Callable[[Record], bytes | None], client: Mapping[str, str] | None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._id_of = id_of
        self._client = client
        self._timeout_s = timeout_s

    def at(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The id of the first record at or behind each offset, None where there is none yet.

        Raises Unreachable without an answer in time, and Refused where the cluster says no or a record has no id of
        8 bytes.
        """
        if not self._client:
            raise ConfigError(
                "Writing a flowlet's row takes the cluster's client settings, and there are none.",
                hint="Set bootstrap_servers under [destination].",
            )
        connection = Connection(self._client, timeout_s=self._timeout_s)
        consumer = connection.consumer(_READS)
        try:
            records = self._first_records(connection, consumer, places)
        finally:
            consumer.close()
        return {key: None if record is None else self._id(key, record) for key, record in records.items()}

    def close(self) -> None:
        """Nothing is held between calls."""

    def _first_records(
        self, connection: Connection, consumer: Any, places: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, _Message | None]:
        found: dict[TopicPartition, _Message | None] = {}
        consumer.assign([KafkaPartition(key.topic, key.partition, offset) for key, offset in places.items()])
        last_news, silent = monotonic(), False
        while len(found) < len(places):
            message = consumer.poll(POLL_S)
            if message is None:
                if not silent and monotonic() - last_news > SILENCE_S:
                    silent = True
                    found |= dict.fromkeys(self._unknown(consumer, places.keys() - found.keys()))
                if monotonic() - last_news > self._timeout_s:
                    raise connection.no_answer("Could not read the records that a flowlet's rows name")
                continue
            key, error = TopicPartition(message.topic(), message.partition()), message.error()
            if error is not None and error.code() not in _NO_RECORD:
                if error.retriable():
                    continue
                needs = Needs(topic=f'Read on topic "{key.topic}"')
                raise connection.failure(KafkaException(error), f"read {key.topic}-{key.partition}", needs)
            if key not in found:
                found[key] = None if error is not None else _Message.of(message)
                last_news = monotonic()
                consumer.pause([KafkaPartition(key.topic, key.partition)])
        return found

    def _unknown(self, consumer: Any, places: Set[TopicPartition]) -> set[TopicPartition]:
        """Those of topics that the cluster does not have: about these the client says nothing for half a minute."""
        unknown = set()
        for topic in {key.topic for key in places}:
            with suppress(KafkaException):  # whoever waits for an answer says so
                error = consumer.list_topics(topic, timeout=self._timeout_s).topics[topic].error
                if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    unknown |= {key for key in places if key.topic == topic}
        return unknown

    def _id(self, key: TopicPartition, record: _Message) -> int:
        found = self._id_of(record)
        number = cdap.as_message_id(found)
        if number is None:
            raise Refused(
                f"The record at {key.topic}-{key.partition}, offset {record.offset}, has no message id that is a number"
                f" of 8 bytes (the function gave {'nothing' if found is None else f'{len(found)} bytes'}).",
                hint="Correct id_of in the store's address: it gives a record's id as a whole number.",
            )
        return number
