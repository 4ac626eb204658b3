"""A start that was not planned: the other partitions of its topics, and whether they are still the same topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.core.errors import NeedsPerson
from reconciler.core.question import StartAt, StartPlace
from reconciler.ports import TopicPartition
from reconciler.spark.starting import complete, complete_from
from reconciler.state.start import Start
from tests.memory_log import MemoryLog

AT_HOME = Start(
    job="clicks",
    cluster="a",
    bootstrap_servers="kafka-a:9092",
    stay=1,
    store="memory:x",
    store_id="id",
    topics={"events": Stream("events", "a")},
    offsets={TopicPartition("events", 1): 7},
    identity=IdentitySettings(),
    new=StartAt(),
    cluster_id="a",
)


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog("a", {"events": 3})
    for second in range(5):
        log.partition("events", 0).append(1_000 * second, b"k", b"v")
    return log


def completed(start: Start, log: MemoryLog) -> list[int]:
    assert start.new is not None
    found = complete_from(start, log.describe(start.topics), log, start.new).offsets
    assert set(found) == {TopicPartition("events", number) for number in range(3)}
    return [found[key] for key in sorted(found)]


@pytest.mark.parametrize(
    ("new", "offsets"),
    [
        (StartAt(), [-2, 7, -2]),
        (StartAt(StartPlace.LATEST), [-1, 7, -1]),
        (StartAt(StartPlace.TIME, 3_000), [3, 7, 0]),
        (StartAt(StartPlace.TIME, 9_000), [5, 7, 0]),  # not at the latest: the query starts later than the question
    ],
)
def test_partitions_without_a_stored_offset_start_as_new_ones_do(
    log: MemoryLog, new: StartAt, offsets: list[int]
) -> None:
    assert completed(replace(AT_HOME, new=new), log) == offsets


def test_a_planned_start_asks_no_cluster() -> None:
    planned = replace(AT_HOME, new=None)
    assert complete(planned, {"bootstrap.servers": "nobody:1"}) is planned


def test_offsets_of_another_cluster_are_not_read(log: MemoryLog) -> None:
    with pytest.raises(NeedsPerson, match="is a, and the stored offsets of job clicks are of cluster b"):
        completed(replace(AT_HOME, cluster_id="b"), log)


def test_offsets_of_a_topic_that_was_deleted_are_not_read(log: MemoryLog) -> None:
    """The new topic's numbers begin again: the old ones would skip its records, or are beyond its end."""
    with pytest.raises(NeedsPerson, match=r"events was deleted and created again .* are of an older one"):
        completed(replace(AT_HOME, topic_ids={"events": ("an older one",)}), log)
    same = replace(AT_HOME, topic_ids={"events": (str(log.topic_ids["events"]),)})
    assert completed(same, log) == completed(AT_HOME, log)
