"""Seeded logs carried out twice, on a broker and in memory, and what differs between the two.

Only what no client decides is copied from the broker's disk to memory: markers' and append times, which records share
a batch, where segments begin. Everything else the model in memory must say by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from time import monotonic
from typing import Any

from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import TopicPartition
from reconciler.retry import PatientReader
from tests.demo.lab.kafka import KafkaCluster
from tests.kafka.model.cleaner import Cleaner
from tests.kafka.model.log_files import BatchOnDisk, Layout, cleaned_to, layout
from tests.kafka.model.seeded_logs import WRITERS, DeleteBefore, Kind, Message, SeededLog, Transaction, Write
from tests.memory_log import MemoryLog, MemoryPartition, MemoryRecord
from tests.waiting import LIMIT_S, wait_until

CLEANS, RESTS = "0.0", "1.0"
"""Values of min.cleanable.dirty.ratio: everything is dirty enough, nothing ever is."""
BROKER = {
    "log.cleaner.backoff.ms": "50",
    # Deleted segments of topics that are not compacted stay: their removal would come at any moment.
    "log.initial.task.delay.ms": "86400000",
}
"""Settings of a broker that carries seeded logs."""


def patient_reader(cluster: KafkaCluster) -> PatientReader:
    """As every command reads: a broker without processor time for nine seconds is out of its cluster for a moment."""
    return PatientReader(KafkaLogReader({"bootstrap.servers": cluster.bootstrap}), monotonic, LIMIT_S)


@dataclass(frozen=True, slots=True)
class Twin:
    """One seeded log, on the broker and in memory."""

    log: SeededLog
    place: TopicPartition
    memory: MemoryPartition


@dataclass(frozen=True, slots=True)
class Phase:
    """A partition's files when a phase's operations were done, and after its cleaning, if there was one."""

    written: Layout
    cleaned: Layout | None = None


# ---------------------------------------------------------------- on the broker


class Scribe:
    """Carries out seeded logs on a cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        from confluent_kafka import Producer

        self._cluster = cluster
        common = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 1_000}
        self._producers: dict[str, Any] = {by: Producer({**common, **settings}) for by, settings in WRITERS.items()}
        self._reader = patient_reader(cluster)
        for by in WRITERS:
            if by.startswith("transactional"):
                self._producers[by].init_transactions(LIMIT_S)

    def close(self) -> None:
        self._reader.close()

    def carry_out(self, topic: str, kind: Kind, logs: Sequence[SeededLog]) -> list[list[Phase]]:
        """Do everything that the logs say, one partition of a new topic each; tell each one's phases."""
        ratio = {"min.cleanable.dirty.ratio": RESTS} if kind.is_cleaned else {}
        self._cluster.create_topic(topic, len(logs), {**kind.config, **ratio})
        places = [TopicPartition(topic, number) for number in range(len(logs))]
        told: list[list[Phase]] = [[] for _ in logs]
        for number, operations in enumerate(zip(*(log.phases() for log in logs), strict=True)):
            for place, own in zip(places, operations, strict=True):
                self._do(place, own)
            if kind.is_cleaned:
                wait_until(lambda: all(map(self._is_retired, places)), "the removal of deleted segments", look_s=0.005)
            written = [layout(self._cluster, place) for place in places]
            cleaned: list[Layout | None] = [None] * len(logs)
            if number + 1 < kind.phases:
                self._clean(topic, written)
                cleaned = [layout(self._cluster, place) for place in places]
            for phases, before, after in zip(told, written, cleaned, strict=True):
                phases.append(Phase(before, after))
        return told

    def _do(self, place: TopicPartition, operations: Sequence[object]) -> None:
        (end,) = self._reader.log_ends([place]).values()
        for operation in operations:
            if isinstance(operation, Write):
                end += self._write(place, operation)
            elif isinstance(operation, Transaction):
                end += self._transaction(place, operation, end)
            elif isinstance(operation, DeleteBefore):
                self._cluster.delete_records(place.topic, place.partition, operation.offset)

    def _write(self, place: TopicPartition, write: Write) -> int:
        producer = self._producers[write.by]
        for m in write.messages:
            producer.produce(
                place.topic, m.value, m.key, place.partition, timestamp=m.timestamp_ms, headers=list(m.headers)
            )
        assert producer.flush(LIMIT_S) == 0
        return len(write.messages)

    def _transaction(self, place: TopicPartition, transaction: Transaction, end: int) -> int:
        producer = self._producers[transaction.by]
        producer.begin_transaction()
        count = sum(self._write(place, write) for write in transaction.writes)
        (producer.commit_transaction if transaction.commits else producer.abort_transaction)(LIMIT_S)
        # The coordinator answers before it writes the marker: other records could still get in front of it.
        wait_until(
            lambda: self._reader.log_ends([place])[place] == end + count + 1, f"the marker in {place}", look_s=0.005
        )
        return count + 1

    # ------------------------------------------------------------ the cleaner

    def _clean(self, topic: str, written: Sequence[Layout]) -> None:
        """Let the cleaner go over all of a topic's segments but the last ones, once."""
        self._configure(topic, "min.cleanable.dirty.ratio", CLEANS)
        wanted = {
            TopicPartition(topic, number): segments[-1].base
            for number, segments in enumerate(written)
            if len(segments) > 1
        }
        wait_until(
            lambda: all(cleaned_to(self._cluster).get(place, 0) >= base for place, base in wanted.items()),
            f"the cleaning of {topic}",
        )
        self._configure(topic, "min.cleanable.dirty.ratio", RESTS)
        # Configurations take effect one after the other: when this one is seen, the one before is in force.
        self._configure(topic, "file.delete.delay.ms", "60001")
        self._configure(topic, "file.delete.delay.ms", "60000")

    def _configure(self, topic: str, name: str, value: str) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = self._cluster.admin()
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(LIMIT_S)

        def seen() -> bool:
            asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
            return bool(admin.describe_configs([asked])[asked].result(LIMIT_S)[name].value == value)

        wait_until(seen, f"{name} of {topic}", look_s=0.005)

    def _is_retired(self, place: TopicPartition) -> bool:
        """A compacted topic's deleted segments are removed whenever the cleaner comes by."""
        (start,) = self._reader.log_starts([place]).values()
        segments = layout(self._cluster, place)
        return len(segments) < 2 or segments[1].base > start


# ---------------------------------------------------------------- in memory


def in_memory(log: SeededLog, phases: Sequence[Phase]) -> MemoryPartition:
    """Do everything that the log says to a partition in memory. ``phases`` tells what only the broker knows."""
    made = MemoryPartition(compacted=log.kind.is_cleaned)
    cleaner = Cleaner(made)
    for number, (operations, phase) in enumerate(zip(log.phases(), phases, strict=True)):
        press = _Press(made, log.kind, phase.written)
        for operation in operations:
            if isinstance(operation, Write):
                press.write(operation, in_transaction_of=None)
            elif isinstance(operation, Transaction):
                press.transaction(operation)
            elif isinstance(operation, DeleteBefore):
                made.delete_before(operation.offset)
        if log.kind.is_cleaned:
            made.retire()
        for segment, real in zip(made.segments, phase.written, strict=True):
            segment.written_ms = real.written_ms
        if phase.cleaned is not None:
            bases = [segment.base for segment in phase.cleaned]
            # Only whether a tombstone's time is over matters, so rounds will do for a clock.
            cleaner.clean(now_ms=number, delete_retention_ms=log.kind.delete_retention_ms, bases=bases)
    return made


class _Press:
    """Writes to a partition in memory in the batches and segments that the broker made."""

    def __init__(self, made: MemoryPartition, kind: Kind, written: Layout) -> None:
        self._made = made
        self._kind = kind
        self._batches = {batch.base: batch for segment in written for batch in segment.batches}
        self._bases = {segment.base for segment in written if segment.base > 0}

    def _next(self, count: int, *, control: bool) -> BatchOnDisk:
        """The batch at the end. One in a segment that was removed since is nobody's concern."""
        end = self._made.end
        if end in self._bases:
            self._made.roll()
        gone = BatchOnDisk(end, end + count - 1, count, 0, control, False, -1)
        found = self._batches.get(end, gone)
        assert found.control == control
        return found

    def write(self, write: Write, *, in_transaction_of: str | None) -> None:
        messages = list(write.messages)
        producer = None if write.by.startswith("plain") else write.by
        while messages:
            batch = self._next(len(messages), control=False)
            count = batch.last - batch.base + 1
            records = [self._record(message, batch) for message in messages[:count]]
            self._made.append_batch(records, producer=producer, transactional=write.by == in_transaction_of)
            del messages[:count]

    def _record(self, m: Message, batch: BatchOnDisk) -> MemoryRecord:
        stamp = batch.largest_ms if self._kind.append_time else m.timestamp_ms
        return MemoryRecord(0, stamp, m.key, m.value, m.headers, self._kind.append_time)

    def transaction(self, transaction: Transaction) -> None:
        for write in transaction.writes:
            self.write(write, in_transaction_of=transaction.by)
        batch = self._next(1, control=True)
        self._made.append_marker(batch.largest_ms, producer=transaction.by, aborts=not transaction.commits)


# ---------------------------------------------------------------- both


def make_twins(
    cluster: KafkaCluster, logs: Sequence[SeededLog], *, name: Callable[[str], str] = lambda kind: kind
) -> list[Twin]:
    """Carry out the logs on the broker, a topic for each kind, and in memory. ``name`` makes topics' of kinds'."""
    twins: list[Twin] = []
    with closing(Scribe(cluster)) as scribe:
        for kind, of_kind in groupby(sorted(logs, key=_kind_name), key=_kind_name):
            own, topic = list(of_kind), name(kind)
            histories = scribe.carry_out(topic, own[0].kind, own)
            for number, (log, phases) in enumerate(zip(own, histories, strict=True)):
                twins.append(Twin(log, TopicPartition(topic, number), in_memory(log, phases)))
    return twins


def _kind_name(log: SeededLog) -> str:
    return log.kind.name


def memory_log(twins: Sequence[Twin]) -> MemoryLog:
    """A cluster in memory that holds the twins' partitions."""
    made = MemoryLog("memory")
    for twin in twins:
        made.topic_ids[twin.place.topic] = twin.place.topic
        made.partitions[twin.place] = twin.memory
    return made
