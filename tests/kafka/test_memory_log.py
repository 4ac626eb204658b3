"""The log in memory by itself. ``tests/kafka/model`` proves that it answers as a broker does."""

from __future__ import annotations

import random

import pytest

from tests.kafka.model.cleaner import Cleaner
from tests.memory_log import MemoryLog, MemoryPartition, MemoryRecord

AHEAD = 10_000


def written(*stamps: int) -> MemoryPartition:
    """One record each, all of one key."""
    made = MemoryPartition()
    for stamp in stamps:
        made.append(stamp, b"k", b"v")
    return made


def batch(*stamps: int, key: bytes = b"k") -> list[MemoryRecord]:
    return [MemoryRecord(0, stamp, key, b"v") for stamp in stamps]


def at_random(seed: int) -> MemoryPartition:
    """Everything that can happen to a partition."""
    rng = random.Random(seed)
    made = MemoryPartition()
    cleaner = Cleaner(made)
    for number in range(rng.randrange(30)):
        producer = rng.choice((None, "p", "q"))
        stamps = [AHEAD if rng.random() < 0.05 else rng.randrange(40) for _ in range(rng.randint(1, 3))]
        what = rng.choice(("write", "write", "write", "marker", "roll", "delete", "clean", "compact", "retire"))
        if what == "write":
            records = batch(*stamps, key=b"%d" % rng.randrange(3))
            made.append_batch(records, producer=producer, transactional=producer == "q")
        elif what == "marker":
            made.append_marker(stamps[0], producer="q", aborts=rng.random() < 0.5)
        elif what == "roll":
            made.roll()
        elif what == "delete":
            made.delete_before(rng.randint(0, made.end) if rng.random() < 0.5 else made.start + 1)
        elif what == "clean":
            cleaner.clean(now_ms=number, bases=[segment.base for segment in made.segments if rng.random() < 0.7])
        elif what == "compact":
            made.compact(rng.sample(range(made.end), made.end // 4))
        else:
            made.retire()
    return made


def test_whatever_happened_to_a_log_no_lookup_overlooks_a_record() -> None:
    seen = {"none": 0, "none of a broker, though there is one": 0}
    for seed in range(3_000):
        log = at_random(seed)
        for stamp in (0, 1, 5, 20, 39, 40, AHEAD, AHEAD + 1):
            first = next((record.offset for record in log.records if record.stamp >= stamp), None)
            found = log.lookup(stamp)
            assert first is None or (found is not None and found <= first), f"seed {seed}, time {stamp}"
            assert found is None or log.start <= found < log.end, f"seed {seed}, time {stamp}"
            seen["none"] += found is None
            seen["none of a broker, though there is one"] += first is not None and log.broker_lookup(stamp) is None
    assert min(seen.values()) > 200


def test_a_lookup_names_the_record_itself_inside_a_batch_and_a_marker_by_its_own_time() -> None:
    log = MemoryPartition()
    log.append_batch(batch(3, 9, 5))
    log.append_marker(7)
    assert [log.lookup(stamp) for stamp in (3, 4, 9, 10)] == [0, 1, 1, None]
    log.compact([1])
    assert [log.lookup(stamp) for stamp in (3, 4, 6, 8)] == [0, 2, 3, None]


@pytest.mark.parametrize(("asked", "next_offset"), [(1, 1), (2, 2), (3, 3), (4, 5), (9, 5)])
def test_a_read_that_got_all_it_asked_for_has_not_seen_the_end(asked: int, next_offset: int) -> None:
    log = written(1, 2, 3)
    log.append_marker(4)
    log.append_marker(4)
    assert log.read(0, asked).next_offset == next_offset


def test_a_deleted_topic_is_gone_and_can_be_recreated() -> None:
    log = MemoryLog("b", {"events": 2})
    log.partition("events", 1).append(1)
    log.delete("events")
    assert log.describe(["events"]).topics == {}
    log.create("events", 1, "another id", compacted=True)
    (info,) = log.describe(["events"]).topics.values()
    assert (info.topic_id, info.partitions, info.compacted) == ("another id", (0,), True)
    assert log.partition("events", 0).end == 0


def test_a_partition_made_of_records_is_looked_up_like_one_that_was_written() -> None:
    made = MemoryPartition([MemoryRecord(3, 10), MemoryRecord(5, 20)], start=3)
    assert (made.end, made.lookup(10), made.lookup(11), made.lookup(21)) == (6, 3, 5, None)
    made.append(30)
    assert made.lookup(21) == 6


def test_a_hole_is_taken_for_compaction_unless_a_transaction_explains_it() -> None:
    whole = written(10, 20)
    whole.append_marker(30)
    assert not whole.may_be_compacted
    whole.delete_before(1)
    assert not whole.may_be_compacted
    assert MemoryPartition([MemoryRecord(0, 10), MemoryRecord(2, 20)]).may_be_compacted
    whole.compact([1])
    assert whole.may_be_compacted


def test_committed_reads_leave_out_aborted_records_and_end_at_an_open_transaction() -> None:
    log = MemoryPartition()
    log.append_batch(batch(1), producer="t", transactional=True)
    log.append_batch(batch(2), producer="u", transactional=True)
    log.append_marker(3, producer="t", aborts=True)
    log.append(4)
    log.append_marker(5, producer="u")
    log.append_batch(batch(6), producer="t", transactional=True)
    log.append(7)
    assert [record.offset for record in log.read(0, 10).records] == [0, 1, 3, 5, 6]
    seen = log.read(0, 10, committed=True)
    assert ([record.offset for record in seen.records], seen.next_offset) == ([1, 3], 5)
    assert log.read(6, 1, committed=True).records == ()
