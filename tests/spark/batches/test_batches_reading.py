"""The last records of planned ranges: read from the log, proven to be the last, or left to Spark to find."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.anchors import Record
from reconciler.core.errors import Changed, NeedsPerson
from reconciler.ports import TopicPartition
from reconciler.spark.batches import reading
from reconciler.spark.batches.offsets import RangeBatch
from reconciler.spark.batches.planning import OffsetRange
from reconciler.spark.batches.reading import ClusterAccess
from reconciler.spark.batches.runner import RangeBatches, at_least_once, at_most_once
from reconciler.spark.session import DATA_LOSS
from tests.memory_log import MemoryLog

WHOLE = (OffsetRange("events", 0, 0, 20),)


def a_log(count: int = 30) -> MemoryLog:
    log = MemoryLog("a", {"events": 1})
    for n in range(count):
        log.partition("events", 0).append(1_000 + n, b"k%d" % n, b"v%d" % n)
    return log


def offsets(found: Mapping[TopicPartition, Record]) -> list[int]:
    return [each.offset for each in found.values()]


# ---------------------------------------------------------------- reading


def test_the_last_record_before_a_ranges_end_is_read():
    log = a_log()
    (last,) = reading.last_records(WHOLE, log).values()
    assert (last.offset, last.timestamp_ms, last.key, last.value) == (19, 1_019, b"k19", b"v19")


def test_a_gap_before_the_end_is_stepped_over_and_a_range_without_records_has_none():
    log = a_log()
    log.partition("events", 0).compact(range(5, 20))
    assert offsets(reading.last_records(WHOLE, log)) == [4]
    assert reading.last_records((OffsetRange("events", 0, 5, 20),), log) == {}


def test_a_range_that_left_the_log_is_not_an_empty_one():
    """It would be remembered as a gap, and skipped."""
    log = a_log()
    log.partition("events", 0).delete_before(25)
    for gone in (WHOLE, (OffsetRange("events", 0, 35, 40),)):
        with pytest.raises(NeedsPerson, match=r"removed while they were read\. Nothing was saved"):
            reading.last_records(gone, log)


@pytest.mark.parametrize("saved", [False, True])
def test_records_that_vanish_while_spark_reads_are_said_with_what_was_saved(saved: bool):
    with pytest.raises(NeedsPerson) as raised, reading.data_loss_as_error(WHOLE, saved=saved):
        raise RuntimeError(DATA_LOSS)
    told = str(raised.value)
    assert ("Nothing was saved" in told, "at most once does not repeat it" in told) == (not saved, saved)


# ---------------------------------------------------------------- the topics


def test_a_topic_that_was_recreated_meanwhile_is_not_saved():
    log = a_log()
    planned = log.describe(["events"])
    reading.check_topics(planned, log)
    log.delete("events")
    with pytest.raises(Changed, match=r"deleted or recreated.*Nothing was saved"):
        reading.check_topics(planned, log)
    log.create("events", 1, "another-id")
    with pytest.raises(Changed):
        reading.check_topics(planned, log)


# ---------------------------------------------------------------- in the job


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(log: MemoryLog, **how: Any) -> RangeBatches:
        monkeypatch.setattr(ClusterAccess, "reader", lambda self, **how: log)
        spark: Any = SimpleNamespace()
        return RangeBatches(
            spark, **{"topics": ["events"], "group": "g", "bootstrap_servers": "k:9092", "store": "memory:", **how}
        )

    return made


def a_batch(log: MemoryLog) -> RangeBatch:
    return RangeBatch(WHOLE, "name", "g", log.describe(["events"]), {})


@pytest.mark.parametrize("semantics", [at_least_once, at_most_once])
def test_nothing_is_saved_for_a_topic_that_was_recreated_before_the_save(
    job: Any, monkeypatch: pytest.MonkeyPatch, semantics: Any
):
    log, done = a_log(), []
    batch = a_batch(log)
    offsets: Any = SimpleNamespace(changes=lambda *_: [], save=lambda _, reason: done.append("saved"))
    monkeypatch.setattr(reading, "read", lambda *_: None)

    def work(frame: Any, ranges: Any) -> None:
        done.append("worked")
        recreate(log)

    if semantics is at_most_once:
        recreate(log)
    with pytest.raises(Changed, match="Nothing was saved"):
        job(log)._finish(semantics(work), offsets, batch, {})
    assert done == (["worked"] if semantics is at_least_once else [])


def recreate(log: MemoryLog) -> None:
    log.delete("events")
    log.create("events", 1, "another-id")


def test_no_batch_begins_and_none_is_saved_once_the_job_was_moved(job: Any, monkeypatch: pytest.MonkeyPatch):
    def moved() -> None:
        raise Changed("it lives on b by now")

    log, done = a_log(), []
    offsets: Any = SimpleNamespace(changes=lambda *_: [], save=lambda _, reason: done.append("saved"))
    monkeypatch.setattr(reading, "read", lambda *_: None)
    batches = job(log, job=SimpleNamespace(require_here=moved))
    work = at_least_once(lambda frame, ranges: done.append("worked"))
    with pytest.raises(Changed, match="lives on b"):
        batches.run_once(work)
    assert done == []
    with pytest.raises(Changed, match="lives on b"):
        batches._finish(work, offsets, a_batch(log), {})
    assert done == ["worked"]
