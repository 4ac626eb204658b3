"""Brokers' answers as the reader of many partitions takes them: certain answers are used, others are left.

The answers are encoded by aiokafka's own description of the protocol, and the batches by its builder.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from reconciler.core.probes import Chunk
from reconciler.kafka.bulk import reading, wire
from reconciler.kafka.bulk.reading import BulkReader, Place, Uncertain
from reconciler.ports import ReadRequest, TopicPartition
from tests.kafka.bulk.readers import answered, bulk_reader

TOPIC = "events"
NO_ERROR, OUT_OF_RANGE, NOT_LEADER = 0, 1, 6
APPENDED, CONTROL = 0x08, 0x20
MANY = 1_000_000
Partition = tuple[int, int, int, bytes]
"""Number, error, high watermark and batches."""


def batch(base: int, count: int, *, attributes: int = 0, codec: int = 0, size: int = 10) -> bytes:
    made = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 64 * MANY)
    for at in range(count):
        made.append(at, 1_000 + at, b"k%d" % at, b"v" * size, [])
    content = bytearray(made.build())
    content[:8] = base.to_bytes(8, "big")
    content[22] |= attributes
    return with_checksum(content)


def with_checksum(content: bytearray) -> bytes:
    from aiokafka.record._crecords.cutil import crc32c_cython

    content[17:21] = crc32c_cython(bytes(content[21:])).to_bytes(4, "big")
    return bytes(content)


def request(offset: int, wanted: int, number: int = 0, *, committed: bool = False) -> ReadRequest:
    return ReadRequest(TopicPartition(TOPIC, number), offset, wanted, committed)


def place_of(offset: int, wanted: int) -> Place:
    return Place(0, request(offset, wanted))


def offsets(place: Place) -> list[int]:
    return [record.offset for record in place.records]


# ---------------------------------------------------------------- the batches of one partition


def test_records_before_the_offset_and_behind_the_last_one_are_cut() -> None:
    place = place_of(12, 5)
    assert place.take(memoryview(batch(10, 4) + batch(14, 4) + batch(18, 4)), 22)
    assert (offsets(place), place.position) == ([12, 13, 14, 15, 16], 17)


def test_an_answer_goes_on_where_the_last_one_ended() -> None:
    place = place_of(0, 6)
    assert not place.take(memoryview(batch(0, 4)), 8)
    assert (offsets(place), place.position) == ([0, 1, 2, 3], 4)
    assert place.take(memoryview(batch(0, 4) + batch(4, 4)), 8)
    assert (offsets(place), place.position) == ([0, 1, 2, 3, 4, 5], 6)


def test_the_high_watermark_ends_a_read() -> None:
    place = place_of(0, 100)
    assert place.take(memoryview(batch(0, 4)), 4)
    assert (offsets(place), place.chunk().next_offset) == ([0, 1, 2, 3], 4)
    at_the_end = place_of(4, 1)
    assert at_the_end.take(memoryview(b""), 4)
    assert at_the_end.chunk() == Chunk([], 4)


def test_markers_and_emptied_batches_are_passed_over() -> None:
    place = place_of(0, 100)
    emptied = bytearray(batch(4, 1))
    emptied = emptied[:61]
    emptied[8:12] = (61 - 12).to_bytes(4, "big")
    emptied[57:61] = (0).to_bytes(4, "big")
    assert place.take(memoryview(batch(2, 2, attributes=CONTROL) + with_checksum(emptied) + batch(9, 1)), 10)
    assert (offsets(place), place.position) == ([9], 10)


def test_a_batch_that_is_cut_short_is_not_taken() -> None:
    place = place_of(0, 100)
    assert not place.take(memoryview(batch(0, 4) + batch(4, 4)[:-1]), 8)
    assert place.position == 4


def test_times_of_the_broker_are_told_as_such() -> None:
    (chunk,) = read([request(0, 9)], [(0, NO_ERROR, 2, batch(0, 2, attributes=APPENDED))]).values()
    assert [(each.append_time, each.timestamp_ms) for each in chunk.records] == [(True, 1_001), (True, 1_001)]


def old_format() -> bytes:
    made = LegacyRecordBatchBuilder(1, 0, MANY)
    made.append(0, 1_000, b"k", b"v")
    return bytes(made.build())


def damaged() -> bytes:
    content = bytearray(batch(0, 4))
    content[-1] ^= 1
    return bytes(content)


def torn() -> bytes:
    """A batch that says it has one record more than it has; its checksum is right."""
    content = bytearray(batch(0, 4))
    content[57:61] = (5).to_bytes(4, "big")
    return with_checksum(content)


def compressed(kind: int) -> bytes:
    return batch(0, 4, attributes=kind)


DOUBTFUL: Sequence[tuple[Callable[[], bytes], type[Exception]]] = [
    (old_format, Uncertain),
    (damaged, Uncertain),
    (torn, CorruptRecordException),
    *(((lambda kind=kind: compressed(kind)), Exception) for kind in range(1, 8)),
]


@pytest.mark.parametrize(("made", "error"), DOUBTFUL)
def test_batches_that_are_not_understood_are_left(made: Callable[[], bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        place_of(0, 9).take(memoryview(made()), 5)
    others = (1, NO_ERROR, 4, batch(0, 4))
    assert list(read([request(0, 9), request(0, 9, 1)], [(0, NO_ERROR, 5, made()), others])) == [1]


def test_a_log_that_ends_before_the_offset_is_left() -> None:
    with pytest.raises(Uncertain, match="the log ends at 3, before 4"):
        place_of(4, 1).take(memoryview(b""), 3)


# ---------------------------------------------------------------- answers


def answer(partitions: Sequence[Partition], aborted: Sequence[tuple[int, int]] = ()) -> memoryview:
    told = [(number, error, high, high, list(aborted), batches) for number, error, high, batches in partitions]
    return memoryview(FetchResponse_v4(0, [(TOPIC, told)]).encode())


def read(requests: Sequence[ReadRequest], *answers: Sequence[Partition], most_bytes: int = MANY) -> dict[int, Chunk]:
    """What a reader answers whose one broker gives these answers, in turn."""
    reader = bulk_reader({"bootstrap.servers": "none:1"}, most_bytes=most_bytes)
    coming = iter(answers)
    known = {(TOPIC, each.partition.partition): 1 for each in requests}
    reader._known = wire.Leaders({1: ("none", 1)}, known)
    reader._ask = lambda leader, fetch: come(reader, answer(next(coming)))  # type: ignore[method-assign]
    found = answered(reader, requests)
    assert reader._failures == 0
    assert list(coming) == [], "it has asked less often"
    reader.close()
    return found


def come(reader: BulkReader, content: memoryview) -> Future[memoryview]:
    """An answer that has come."""
    found: Future[memoryview] = reader._loop.create_future()
    found.set_result(content)
    return found


def test_an_answers_parts_are_found() -> None:
    partitions = [(3, NO_ERROR, 4, batch(0, 4)), (5, OUT_OF_RANGE, -1, b"")]
    first, second = wire.parse_fetch(answer(partitions, aborted=[(7, 8), (9, 10)]))
    assert (first.name, first.error, first.high, bytes(first.batches)) == ((TOPIC, 3), 0, 4, batch(0, 4))
    assert (second.name, second.error, bytes(second.batches)) == ((TOPIC, 5), OUT_OF_RANGE, b"")


@pytest.mark.parametrize("error", [OUT_OF_RANGE, NOT_LEADER])
def test_a_partition_with_an_error_is_left_and_no_other(error: int) -> None:
    found = read([request(0, 9), request(0, 9, 1)], [(0, error, -1, b""), (1, NO_ERROR, 4, batch(0, 4))])
    assert list(found) == [1]


def test_a_batch_above_the_fetch_size_is_asked_for_once_more_with_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], int]] = []
    reader = bulk_reader({"bootstrap.servers": "none:1"})
    reader._known = wire.Leaders({1: ("none", 1)}, {(TOPIC, number): 1 for number in range(4)})
    kept = [batch(0, 4), batch(0, 1, size=reading.LARGER_BYTES), batch(0, 1, size=reading.EACH_BYTES), batch(0, 4)]

    def ask(leader: int, fetch: wire.Fetch) -> Future[memoryview]:
        places = [wire.ASKED.unpack_from(fetch.body, at) for at in range(33, len(fetch.body), wire.ASKED.size)]
        (each,) = {each for _, _, each in places}
        asked.append(([number for number, _, _ in places], each))
        return come(reader, answer([(n, NO_ERROR, 4, kept[n] if len(kept[n]) <= each else b"") for n, _, _ in places]))

    monkeypatch.setattr(reader, "_ask", ask)
    found = answered(reader, [request(0, wanted, number) for number, wanted in enumerate((9, 1, 1, 9))])
    assert asked == [([0, 1, 2, 3], reading.EACH_BYTES), ([1, 2], reading.LARGER_BYTES)]
    assert {number: len(chunk.records) for number, chunk in found.items()} == {0: 4, 2: 1, 3: 4}
    reader.close()


def test_a_partition_that_an_answer_had_no_room_for_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ALL_BYTES", reading.EACH_BYTES)
    full = [(0, NO_ERROR, 4, batch(0, 4)), (1, NO_ERROR, 4, b"")]
    found = read([request(0, 9), request(0, 9, 1)], full, [(1, NO_ERROR, 4, batch(0, 4))])
    assert sorted(found) == [0, 1]


def test_nothing_that_moves_ends_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ALL_BYTES", 0)
    assert read([request(0, 9), request(0, 9, 1)], [(0, NO_ERROR, 4, b""), (1, NO_ERROR, 4, b"")]) == {}


def test_partitions_that_are_not_complete_hold_no_more_than_the_limit() -> None:
    halves = [(0, NO_ERROR, 8, batch(0, 4, size=100)), (1, NO_ERROR, 4, batch(0, 4, size=100))]
    rest = [(0, NO_ERROR, 8, batch(4, 4))]
    requests = [request(0, 9), request(0, 9, 1)]
    assert sorted(read(requests, halves, rest, most_bytes=800)) == [0, 1]
    assert list(read(requests, halves, most_bytes=799)) == [1]


def test_records_are_handed_over_before_the_whole_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HAND_OVER_BYTES", 400)
    reader = bulk_reader({"bootstrap.servers": "none:1"})
    reader._known = wire.Leaders({1: ("none", 1)}, {(TOPIC, number): 1 for number in range(3)})
    partitions = [(number, NO_ERROR, 4, batch(0, 4, size=50)) for number in range(3)]
    reader._ask = lambda leader, fetch: come(reader, answer(partitions))  # type: ignore[method-assign]
    found = [[index for index, _ in some] for some in reader.read([request(0, 9, number) for number in range(3)])]
    assert found == [[0, 1], [2]]
    reader.close()


def test_many_partitions_of_a_leader_are_asked_for_in_two_requests_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that an answer had no room for is asked for again when the other one has been answered."""
    monkeypatch.setattr(reading, "DIVIDED_FROM", 4)
    monkeypatch.setattr(reading, "ALL_BYTES", reading.EACH_BYTES)
    reader = bulk_reader({"bootstrap.servers": "none:1"})
    reader._known = wire.Leaders({1: ("none", 1)}, {(TOPIC, number): 1 for number in range(5)})
    asked: list[list[int]] = []

    def ask(leader: int, fetch: wire.Fetch) -> Future[memoryview]:
        numbers = [int.from_bytes(fetch.body[at : at + 4]) for at in range(33, len(fetch.body), wire.ASKED.size)]
        asked.append(numbers)
        return come(reader, answer([(n, NO_ERROR, 4, batch(0, 4) if n == numbers[0] else b"") for n in numbers]))

    monkeypatch.setattr(reader, "_ask", ask)
    assert sorted(answered(reader, [request(0, 9, number) for number in range(5)])) == [0, 1, 2, 3, 4]
    assert asked == [[0, 1, 2], [3, 4], [1, 2], [4], [2]]
    reader.close()


def test_a_failure_ends_the_request_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "DIVIDED_FROM", 2)
    reader = bulk_reader({"bootstrap.servers": "none:1"})
    reader._known = wire.Leaders({1: ("none", 1)}, {(TOPIC, number): 1 for number in range(2)})
    coming: list[Future[memoryview]] = [reader._loop.create_future() for _ in range(2)]
    coming[0].set_exception(ConnectionError())
    waiting = iter(coming)
    monkeypatch.setattr(reader, "_ask", lambda leader, fetch: next(waiting))
    assert list(reader.read([request(0, 9), request(0, 9, 1)])) == []
    assert coming[1].cancelled()
    reader.close()


def test_only_one_uncommitted_request_of_a_partition_is_answered() -> None:
    requests = [request(0, 9, committed=True), request(0, 1), request(2, 1)]
    assert list(read(requests, [(0, NO_ERROR, 4, batch(0, 4))])) == [1]


def test_leaders_are_asked_for_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, asked = bulk_reader({"bootstrap.servers": "none:1"}), []

    async def look_up(topics: Sequence[str]) -> memoryview:
        asked.append(list(topics))
        return memoryview(b"")

    monkeypatch.setattr(reader, "_look_up", look_up)
    monkeypatch.setattr(wire, "parse_leaders", lambda _: wire.Leaders({1: ("none", 1)}, {(TOPIC, 0): 1}))
    answers = iter([[(0, NOT_LEADER, -1, b"")], *[[(0, NO_ERROR, 4, batch(0, 4))]] * 2])
    monkeypatch.setattr(reader, "_ask", lambda leader, fetch: come(reader, answer(next(answers))))
    found = [list(answered(reader, [request(0, 9)])) for _ in range(3)]
    assert found == [[], [0], [0]]
    assert asked == [[TOPIC], [TOPIC]]


def test_leaders_are_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut off from the others may go on answering."""
    reader, asked, now = bulk_reader({"bootstrap.servers": "none:1"}), [], 100.0

    async def look_up(topics: Sequence[str]) -> memoryview:
        asked.append(list(topics))
        return memoryview(b"")

    monkeypatch.setattr(reading, "monotonic", lambda: now)
    monkeypatch.setattr(reader, "_look_up", look_up)
    monkeypatch.setattr(wire, "parse_leaders", lambda _: wire.Leaders({1: ("none", 1)}, {(TOPIC, 0): 1}))
    monkeypatch.setattr(reader, "_ask", lambda leader, fetch: come(reader, answer([(0, NO_ERROR, 4, batch(0, 4))])))
    for now in (100.0, 100.0 + reading.LEADERS_S, 100.1 + reading.LEADERS_S):
        assert list(answered(reader, [request(0, 9)])) == [0]
        assert len(asked) == (1 if now <= 100.0 + reading.LEADERS_S else 2)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(("failure", "tries"), [(ConnectionError, reading.MOST_FAILURES), (TimeoutError, 1)])
def test_a_failure_leaves_all_and_the_third_one_or_a_timeout_is_the_last(failure: type[OSError], tries: int) -> None:
    reader, asked = bulk_reader({"bootstrap.servers": "none:1"}), []

    def fail(*_: Any) -> memoryview:
        asked.append(1)
        raise failure

    reader._ask = fail  # type: ignore[method-assign]
    for _ in range(5):
        reader._known = wire.Leaders({1: ("none", 1)}, {(TOPIC, 0): 1})
        assert list(reader.read([request(0, 1)])) == []
    assert len(asked) == tries
    reader.close()


def test_settings_that_are_not_translated_leave_all() -> None:
    reader = bulk_reader({"bootstrap.servers": "none:1", "client.rack": "r"})
    assert list(reader.read([request(0, 1)])) == []
    reader.close()


def test_a_broker_that_does_not_know_the_version_is_not_asked() -> None:
    fetch = wire.Fetch([((TOPIC, 0), 0)], 1, 1)
    assert fetch.prepare({1: (4, 17)}) is fetch
    for versions in ((0, 3), (5, 17)):
        with pytest.raises(LookupError, match="of request 1"):
            fetch.prepare({1: versions})
