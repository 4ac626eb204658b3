"""Records that are only counted: always the last ones of an answer, and all newer than the limit of the request."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from reconciler.kafka.bulk.reading import Place, columns_of
from reconciler.kafka.sent import pack, unpack
from reconciler.ports import ReadRequest, TopicPartition
from tests.kafka.bulk.readers import seen
from tests.kafka.bulk.test_bulk_answers import APPENDED, CONTROL, batch

REQUEST = ReadRequest(TopicPartition("events", 0), 0, 100)


def read(request: ReadRequest, *answers: bytes, high: int) -> Any:
    """The chunk that comes out of the other process."""
    place = Place(0, request)
    done = [place.take(memoryview(content), high) for content in answers]
    assert done == [False] * (len(answers) - 1) + [True]
    ((_, chunk),) = unpack(memoryview(b"".join(pack([(0, place.chunk())], columns_of))))
    return chunk


def offsets(chunk: Any) -> list[int]:
    return [record.offset for record in chunk.records]


def test_records_newer_than_the_limit_are_counted() -> None:
    """The builder stamps the first record of each batch with 1,000, and each other one a millisecond later."""
    chunk = read(replace(REQUEST, full_until_ms=1_001), batch(0, 6), high=6)
    assert (offsets(chunk), chunk.next_offset) == ([0, 1], 6)
    assert (chunk.counted.count, chunk.counted.last, chunk.counted.oldest_ms) == (4, 5, 1_002)


def test_records_in_front_of_an_old_one_are_read() -> None:
    old = read(replace(REQUEST, full_until_ms=1_001), batch(0, 4) + batch(4, 1) + batch(5, 3), high=8)
    assert (offsets(old), old.counted.count) == ([0, 1, 2, 3, 4, 5, 6], 1)
    late = read(replace(REQUEST, full_until_ms=1_001), batch(0, 4), batch(4, 2), high=6)
    assert (offsets(late), late.counted) == ([0, 1, 2, 3, 4, 5], None)


@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in (0, 100, 200)], ids=str)
def test_answers_are_those_in_full_but_for_what_is_counted(seeds: range) -> None:
    for seed in seeds:
        _compare(Random(seed))


def _compare(random: Random) -> None:
    answers, base, high = [], 0, 0
    for _ in range(random.randint(1, 4)):
        content = b""
        for _ in range(random.randint(1, 4)):
            count = random.randint(1, 6)
            content += batch(base, count, attributes=random.choice([0, 0, 0, 0, 0, APPENDED, CONTROL]))
            high = base + count
            base = high + random.choice([0, 0, 2])
        answers.append(content)
    until = random.randint(998, 1_006)
    first, wanted = random.randrange(high), random.choice([1, 3, 10, 100])
    request = replace(REQUEST, offset=first, max_records=wanted)
    place = Place(0, request)
    most = next(at for at, content in enumerate(answers, 1) if place.take(memoryview(content), high))
    whole = read(request, *answers[:most], high=high)
    chunk = read(replace(request, full_until_ms=until), *answers[:most], high=high)
    records, *rest = seen(chunk)
    all_records, *all_rest = seen(whole)
    assert (records, rest) == (all_records[: len(records)], all_rest)  # type: ignore[index]
    left = whole.records[len(chunk.records) :]
    assert (chunk.counted is None) == (len(left) == 0)
    if chunk.counted is not None:
        assert (chunk.counted.count, chunk.counted.last) == (len(left), left[-1].offset)
        assert until < chunk.counted.oldest_ms <= min(record.timestamp_ms for record in left)
        assert not any(record.append_time for record in left)
    if chunk.records:
        last = chunk.records[-1]
        assert last.append_time or last.timestamp_ms <= until
