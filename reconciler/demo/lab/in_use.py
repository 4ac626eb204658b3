"""A running Kafka cluster, whichever process started it, and traffic for it.

The traffic has offsets that cannot be the same on both clusters. Two things make them diverge: records that are deleted
from the source before they were mirrored, and transaction markers, which take offsets at the source and are not
mirrored. A burst of records shares each timestamp, because a search by time alone cannot distinguish such records.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from reconciler.core.errors import Unreachable

T = TypeVar("T")
_POLL_SECONDS = 0.1
_FEW_OFFSETS = 20


class ClusterInUse:
    """A cluster by its name (the alias that a mirror gives it) and its address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._admin: Any = None

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as clients write them."""
        raise NotImplementedError

    def admin(self) -> Any:
        """An admin client of this cluster (confluent_kafka's), one for all callers."""
        if self._admin is None:
            self._admin = admin_client(self.bootstrap)
        return self._admin

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None, **placement: Any
    ) -> None:
        """Create a topic and wait for it. ``placement``: arguments of ``NewTopic`` in the place of one replica."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        placed = placement or {"replication_factor": 1}
        new = NewTopic(topic, num_partitions=partitions, config=dict(config or {}), **placed)

        def is_created() -> bool:
            """False while the controller still fences its brokers, as after a restart or a freeze."""
            try:
                self.admin().create_topics([new], operation_timeout=30)[topic].result(timeout=30)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    return False
                raise
            return True

        self.wait_until(is_created, 30, f"a broker for topic {topic}")
        self.wait_until(lambda: len(self.end_offsets(topic)) == partitions, 30, f"topic {topic}")

    def partitions(self, topic: str) -> int:
        """The topic's number of partitions; 0 if it does not exist."""
        known = self.admin().list_topics(topic, timeout=10).topics[topic]
        return 0 if known.error is not None else len(known.partitions)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset after each partition's last record; empty if the topic does not exist."""
        return self._offsets(topic, latest=True)

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Each partition's first offset; empty if the topic does not exist."""
        return self._offsets(topic, latest=False)

    def last_records(self, topic: str) -> dict[int, tuple[bytes | None, bytes | None]]:
        """The key and the value of each partition's last record; partitions without records are left out."""
        from confluent_kafka import Consumer

        starts, ends = self.start_offsets(topic), self.end_offsets(topic)
        own = {"group.id": "looks-only", "enable.auto.commit": False, "enable.partition.eof": True}
        with closing(Consumer({"bootstrap.servers": self.bootstrap, **own, **_QUIET})) as consumer:
            found = {number: _last(consumer, topic, number, starts[number], end) for number, end in ends.items()}
        return {number: record for number, record in found.items() if record is not None}

    def ends_as(self, topic: str, source: ClusterInUse, source_topic: str) -> bool:
        """True if each partition ends with the last record of the source's."""
        there, here = source.last_records(source_topic), self.last_records(topic)
        return all(here.get(number) == record for number, record in there.items())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete all records of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(topic, partition, before)]
        for answer in self.admin().delete_records(asked, request_timeout=30).values():
            answer.result(timeout=30)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """A group's committed offsets on one topic; empty if it has none.

        A consumer that does not join the group asks: the admin client's request ends the whole process (librdkafka's
        issue 5040) while the group's coordinator starts or moves.
        """
        from confluent_kafka import Consumer, TopicPartition

        asked = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        if not asked:
            return {}
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        with closing(Consumer({"bootstrap.servers": self.bootstrap, **own, **_QUIET})) as consumer:
            found = consumer.committed(asked, timeout=30)
        return {tp.partition: tp.offset for tp in found if tp.error is None and tp.offset >= 0}

    def _offsets(self, topic: str, *, latest: bool) -> dict[int, int]:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()

        def ask() -> tuple[dict[int, int]] | None:
            """Metadata can list a partition before its leader is ready: a retry helps."""
            try:
                asked = {TopicPartition(topic, number): spec for number in range(self.partitions(topic))}
                answers = self.admin().list_offsets(asked, request_timeout=10) if asked else {}
                return ({tp.partition: answer.result(timeout=10).offset for tp, answer in answers.items()},)
            except KafkaException:
                return None

        return self.wait_until(ask, 30, f"the offsets of topic {topic}")[0]

    def forget_admin(self) -> None:
        """Use a new admin client from now on."""
        self._admin = None

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """The first true answer of ``condition``. Raises Unreachable after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not (answer := condition()):
            if time.monotonic() > deadline:
                raise Unreachable(f"Cluster {self.name}: timed out after {timeout:.0f} s waiting for {what}.")
            time.sleep(_POLL_SECONDS)
        return answer


def _last(consumer: Any, topic: str, number: int, start: int, end: int) -> tuple[bytes | None, bytes | None] | None:
    """The last record before ``end``, behind which markers of transactions may be."""
    from confluent_kafka import TopicPartition

    begin, back, found = end, _FEW_OFFSETS, None
    while found is None and begin > start:
        begin, back = max(start, end - back), back * 10
        consumer.assign([TopicPartition(topic, number, begin)])
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found = message.key(), message.value()
    return found


class ClusterAt(ClusterInUse):
    """A cluster that another process started."""

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap


def admin_client(bootstrap: str) -> Any:
    """A new admin client that reconnects quickly and logs nothing."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": 2000, **_QUIET})


def _ignore(_: object) -> None:
    """Ignore errors: while a server starts, every refused connection would be reported."""


_QUIET = {"log_level": 0, "error_cb": _ignore, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}


log = logging.getLogger(__name__)

ID_HEADER = "message-id"
BURST = 25
"""Records that share one millisecond."""
TRANSACTION = 200
"""Records per transaction; each transaction takes one marker in every partition that it wrote to."""


@dataclass(frozen=True, slots=True)
class Event:
    """One record to produce. ``timestamp_ms`` is its create time."""

    id: str
    partition: int
    timestamp_ms: int


def user_of(event: Event) -> str:
    """The user who clicked: the record's key."""
    return f"user-{event.partition}"


def make_events(prefix: str, count: int, partitions: int, begin_ms: int, seed: int) -> Iterator[Event]:
    """``count`` events over ``partitions``, one burst per second; the first one is at ``begin_ms``."""
    chance = random.Random(seed)
    for number in range(count):
        yield Event(f"{prefix}-{number:06d}", chance.randrange(partitions), begin_ms + 1000 * (number // BURST))


def produce(cluster: ClusterInUse, topic: str, traffic: Iterator[Event], transactional_id: str) -> list[str]:
    """Write events in transactions; returns the written ids."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "linger.ms": 20}
    producer = Producer(settings, logger=log)
    producer.init_transactions(30)
    ids: list[str] = []
    in_transaction = 0
    for event in traffic:
        if in_transaction == 0:
            producer.begin_transaction()
        producer.produce(
            topic,
            partition=event.partition,
            key=user_of(event).encode(),
            value=json.dumps({"id": event.id, "ts": event.timestamp_ms}).encode(),
            headers=[(ID_HEADER, event.id.encode())],
            timestamp=event.timestamp_ms,
        )
        ids.append(event.id)
        in_transaction += 1
        if in_transaction == TRANSACTION:
            producer.commit_transaction(30)
            in_transaction = 0
    if in_transaction:
        producer.commit_transaction(30)
    return ids


def delete_all(cluster: ClusterInUse, topic: str) -> None:
    """Delete all records of the topic; its offsets continue."""
    for partition, end in cluster.end_offsets(topic).items():
        cluster.delete_records(topic, partition, end)
