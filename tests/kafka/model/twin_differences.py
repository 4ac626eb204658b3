"""Where a broker and the model in memory differ: on disk, in edges, lookups, reads and findings; a line for each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from reconciler.core.anchors import (
    Anchor,
    Identity,
    IdOrder,
    Names,
    Record,
    StoredOffset,
    fingerprint,
    record_timestamp,
)
from reconciler.core.probes import Chunk
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.kafka.engine import EngineSettings, Inquiry, SearchResult, run
from reconciler.ports import LogReader, ReadRequest
from tests.demo.lab.kafka import KafkaCluster
from tests.kafka.model.broker_twins import Twin, memory_log
from tests.kafka.model.log_files import layout
from tests.kafka.model.seeded_logs import BEGIN, FAR_AHEAD, Message, Operation, Transaction, Write

SIZES = (1, 3, 1_000)
"""How many records a read asks for."""
QUESTIONS = 5
"""Anchors asked for in every log."""
SILENT = 8
"""Times asked for in every log for which a broker knows no record: each needs several calls of the reader."""


def _name(twin: Twin) -> str:
    return f"seed {twin.log.seed} ({twin.log.kind.name})"


def _by_turns(asked: Iterable[Sequence[Any]]) -> list[Any]:
    """The first of every partition, then the second: a reader asks each partition once a turn."""
    return [one for turn in zip_longest(*asked) for one in turn if one is not None]


# ---------------------------------------------------------------- on disk


def on_disk(cluster: KafkaCluster, twins: Sequence[Twin]) -> Iterator[str]:
    """Segments and batches: what is left of them, and their largest timestamps."""
    for twin in twins:
        real = [
            (segment.base, [(b.base, b.last, b.count, b.largest_ms) for b in segment.batches])
            for segment in layout(cluster, twin.place)
        ]
        model = [(s.base, [(b.base, b.last, _count(b), b.largest_ms) for b in s.batches]) for s in twin.memory.segments]
        if real != model:
            yield f"{_name(twin)}: on disk {real}, in memory {model}"


def _count(batch: Any) -> int:
    return (0 if batch.emptied else 1) if batch.control else len(batch.records)


# ---------------------------------------------------------------- edges and lookups


def in_edges(reader: LogReader, twins: Sequence[Twin]) -> Iterator[str]:
    places = [twin.place for twin in twins]
    starts, ends = reader.log_starts(places), reader.log_ends(places)
    for twin in twins:
        real, model = (starts[twin.place], ends[twin.place]), (twin.memory.start, twin.memory.end)
        if real != model:
            yield f"{_name(twin)}: the broker's range is {real}, in memory it is {model}"


def times_of(twin: Twin) -> list[int]:
    """Every time that ever mattered to this log, the ones next to it, and some far away."""
    batches = [batch.largest_ms for segment in twin.memory.segments for batch in segment.batches]
    files = [segment.written_ms for segment in twin.memory.segments]
    stamps = [record.timestamp_ms or 0 for record in twin.memory.records]
    written = [message.timestamp_ms for message in _messages(twin.log.operations)]
    known = {BEGIN, FAR_AHEAD + 10, *batches, *files, *stamps, *written}
    return sorted({0, 1} | {stamp + step for stamp in known for step in (-1, 0, 1)})


def _messages(operations: Iterable[Operation]) -> Iterator[Message]:
    for operation in operations:
        if isinstance(operation, Transaction):
            yield from _messages(operation.writes)
        elif isinstance(operation, Write):
            yield from operation.messages


def in_broker_lookups(cluster: KafkaCluster, twins: Sequence[Twin]) -> Iterator[str]:
    """The broker's own answers to ListOffsets for a time, without anything that the product makes of them."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "never-joined", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        for turn in zip_longest(*([(twin, stamp) for stamp in times_of(twin)] for twin in twins)):
            asked = [one for one in turn if one is not None]
            query = [KafkaPartition(twin.place.topic, twin.place.partition, stamp) for twin, stamp in asked]
            answers = {(a.topic, a.partition): a for a in consumer.offsets_for_times(query, timeout=30)}
            for twin, stamp in asked:
                answer = answers[twin.place.topic, twin.place.partition]
                assert answer.error is None
                real, model = None if answer.offset < 0 else answer.offset, twin.memory.broker_lookup(stamp)
                if real != model:
                    yield f"{_name(twin)}: for time {stamp} the broker says {real}, the model {model}"


def in_largest_times(cluster: KafkaCluster, twins: Sequence[Twin]) -> Iterator[str]:
    """The broker's answers to ListOffsets for the largest timestamp (KIP-734)."""
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {KafkaPartition(t.place.topic, t.place.partition): OffsetSpec.max_timestamp() for t in twins}
    futures = cluster.admin().list_offsets(asked, request_timeout=30)
    answers = {(tp.topic, tp.partition): future.result(30).timestamp for tp, future in futures.items()}
    for twin in twins:
        real, model = answers[twin.place.topic, twin.place.partition], twin.memory.broker_latest_ms()
        if (None if real < 0 else real) != model:
            yield f"{_name(twin)}: the largest timestamp is {real} to the broker, {model} to the model"


def _answered_times(twin: Twin) -> list[tuple[Twin, int]]:
    return [(twin, stamp) for stamp in times_of(twin) if twin.memory.broker_lookup(stamp) is not None]


def _silent_times(twin: Twin) -> list[tuple[Twin, int]]:
    """The first of the times without an answer, the last, and some in between."""
    times = [stamp for stamp in times_of(twin) if twin.memory.broker_lookup(stamp) is None]
    some = random.Random(twin.log.seed).sample(times, min(SILENT, len(times)))
    return [(twin, stamp) for stamp in sorted({*times[:1], *some, *times[-1:]})]


def in_lookups(reader: LogReader, twins: Sequence[Twin]) -> Iterator[str]:
    """What the product makes of the broker's answers; and whether it is what a search relies on."""
    for times in (_answered_times, _silent_times):
        asked = _by_turns(map(times, twins))
        answers = reader.offsets_for_times([(twin.place, stamp) for twin, stamp in asked])
        for (twin, stamp), answer in zip(asked, answers, strict=True):
            model = twin.memory.lookup(stamp)
            if answer != model:
                yield f"{_name(twin)}: for time {stamp} the reader says {answer}, the model {model}"
            first = first_since(twin, stamp)
            if first is not None and (answer is None or answer > first):
                yield f"{_name(twin)}: for time {stamp} the reader says {answer}, though offset {first} has it"


def first_since(twin: Twin, timestamp_ms: int) -> int | None:
    """What a lookup must not overlook: the first record that can be read and has at least this timestamp."""
    return next((record.offset for record in twin.memory.records if record.stamp >= timestamp_ms), None)


# ---------------------------------------------------------------- reads


def told(record: Record) -> tuple[object, ...]:
    """A record with all that a search may look at."""
    headers = tuple(record.headers)
    return record.offset, record.timestamp_ms, record.append_time, record.key, record.value, headers


class Whole:
    """A reader whose chunks are never short: Kafka's may be, and then a search needs more of them."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        ends = self._reader.log_ends([request.partition for request in requests])
        chunks = list(self._reader.read(requests))
        while short := [
            index
            for index, (request, chunk) in enumerate(zip(requests, chunks, strict=True))
            if not chunk.out_of_range
            and len(chunk.records) < request.max_records
            and chunk.next_offset < ends[request.partition]
        ]:
            assert all(chunks[index].records for index in short), "an empty chunk ends at the log's end"
            asked = [
                ReadRequest(
                    requests[index].partition,
                    chunks[index].next_offset,
                    requests[index].max_records - len(chunks[index].records),
                    requests[index].committed,
                )
                for index in short
            ]
            for index, more in zip(short, self._reader.read(asked), strict=True):
                chunks[index] = Chunk((*chunks[index].records, *more.records), more.next_offset)
        return chunks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def in_reads(reader: Any, twins: Sequence[Twin], *, committed: bool = False) -> Iterator[str]:
    """Reads from every offset, in every size, and from outside of the log."""
    asked = _by_turns([[(twin, request) for request in _requests(twin, committed)] for twin in twins])
    chunks = Whole(reader).read([request for _, request in asked])
    for (twin, request), chunk in zip(asked, chunks, strict=True):
        model = twin.memory.read(request.offset, request.max_records, committed=committed)
        if _seen(chunk) != _seen(model):
            yield f"{_name(twin)}: {request} gives {_seen(chunk)}, in memory {_seen(model)}"


def in_counted(reader: Any, twins: Sequence[Twin]) -> Iterator[str | None]:
    """Reads of which newer records are counted: those and the others are together what the log holds. None: right."""
    asked = _by_turns([[(twin, each) for each in _requests(twin, False)] for twin in twins if twin.memory.records])
    times = [twin.memory.records[len(twin.memory.records) // 2].stamp for twin, _ in asked]
    requests = [replace(request, full_until_ms=time) for (_, request), time in zip(asked, times, strict=True)]
    for (twin, request), chunk in zip(asked, reader.read(requests), strict=True):
        if (counted := chunk.counted) is not None:
            model = twin.memory.read(request.offset, request.max_records)
            here = len(chunk.records)
            left, most = model.records[here:], twin.memory.records[len(twin.memory.records) // 2].stamp
            is_right = [*map(told, chunk.records)] == [*map(told, model.records[:here])]
            is_right = is_right and (chunk.next_offset, counted.count) == (model.next_offset, len(left))
            is_right = is_right and counted.last == left[-1].offset
            is_right = is_right and all(each.stamp > most and not each.append_time for each in left)
            yield None if is_right else f"{_name(twin)}: {request} gives {chunk}, in memory {_seen(model)}"


def _requests(twin: Twin, committed: bool) -> list[ReadRequest]:
    start, end = twin.memory.start, twin.memory.end
    outside = [offset for offset in (0, start - 1, end + 1, end + 1_000) if not start <= offset <= end and offset >= 0]
    offsets = [*range(start, end + 1), *outside]
    sizes = [SIZES[(offset + twin.log.seed) % len(SIZES)] for offset in offsets]
    return [ReadRequest(twin.place, offset, size, committed) for offset, size in zip(offsets, sizes, strict=True)]


def _seen(chunk: Chunk) -> tuple[object, ...]:
    return [told(record) for record in chunk.records], chunk.next_offset, chunk.out_of_range


# ---------------------------------------------------------------- findings


def header_id(record: Record) -> bytes | None:
    return next((value for name, value in record.headers if name == "id"), None)


PATIENT = EngineSettings(deadline_s=300)
IDENTITIES = (
    Identity(record_timestamp, header_id),
    Identity(record_timestamp, header_id, IdOrder.INCREASING),
    Identity(record_timestamp),
)


def questions_of(twin: Twin) -> list[Question]:
    """What a job might have stored: anchors of records that are in the log, and of some that no longer are."""
    rng = random.Random(twin.log.seed)
    messages = list(_messages(twin.log.operations))
    chosen = rng.sample(messages, min(QUESTIONS, len(messages)))
    return [_question(rng, twin, message, number) for number, message in enumerate(chosen)]


def _question(rng: random.Random, twin: Twin, m: Message, number: int) -> Question:
    source_offset = 7_000 + number
    id_ = next((value for name, value in m.headers if name == "id"), None)
    what = rng.choice(("all", "all", "content", "id", "time", "no time"))
    names = Names.LAST if what == "no time" else rng.choice((Names.LAST, Names.LAST, Names.NEXT, Names.MAX_TIME))
    anchor = Anchor(
        source_offset,
        None if what == "no time" else m.timestamp_ms,
        id_ if what in ("all", "id", "no time") else None,
        None if what in ("id", "time") else fingerprint(m.key, m.value),
        "the source",
        "its topic",
        names,
    )
    limits = Limits(rng.choice((0, 30, 3_000)), rng.choice((5, 100_000)), rng.choice((0, 3, 100_000)))
    compacted = rng.choice((None, twin.log.kind.is_cleaned))
    identity = rng.choice(IDENTITIES)
    stored = StoredOffset(source_offset + (names is not Names.NEXT), anchor)
    return Question(stored, "the destination", "its topic", identity, limits, compacted=compacted)


def in_findings(reader: LogReader, twins: Sequence[Twin]) -> Iterator[str]:
    """The same searches on both: what is found, and how many probes and rounds it takes."""
    asked = {(twin.log.seed, n): (twin, question) for twin in twins for n, question in enumerate(questions_of(twin))}
    inquiries = {
        key: Inquiry(twin.place, lambda question=question: reconcile(question))
        for key, (twin, question) in asked.items()
    }
    whole: Any = Whole(reader)
    there = run(whole, inquiries, clock=time.monotonic, settings=PATIENT).found
    here = run(memory_log(twins), inquiries, clock=time.monotonic).found
    for key, (twin, question) in asked.items():
        if there[key] != here[key]:
            yield f"{_name(twin)}: {question} gives {_found(there[key])}, in memory {_found(here[key])}"


def _found(found: SearchResult) -> str:
    return f"{found.finding} after {found.probes} probes in {found.rounds} rounds"
