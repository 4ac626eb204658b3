"""Files named by the hash of a batch's ranges: what the stored rows show of one that was begun; what sinks need."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, Refused
from reconciler.ports import TopicPartition
from reconciler.spark.batches.hashed_files import Begun, dumps, is_saved, loads
from reconciler.spark.batches.planning import OffsetRange
from reconciler.spark.batches.reading import require_single_attempts

P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)
Rows = dict[TopicPartition, StoredOffset]


def at(number: int, cluster: str = "a", topic_id: str = "t", record: int | None = None) -> StoredOffset:
    """A stored offset; ``record`` is which record its anchor names, if not the number says it."""
    stamp = number if record is None else record
    return StoredOffset(number, Anchor(number - 1, stamp, None, f"{stamp:032x}", cluster, topic_id))


def begun(before: Rows, after: Rows) -> Begun:
    ranges = tuple(OffsetRange(each.topic, each.partition, 0, stored.offset) for each, stored in after.items())
    return Begun("n", "clicks", "1", ranges, before, after)


BEGUN = begun({P0: at(3)}, {P0: at(10), P1: at(20)})


def test_an_incomplete_record_is_none_and_another_format_is_refused():
    text = dumps(BEGUN)
    assert all(loads(text[:length], "here") is None for length in range(len(text)))
    for wrong in (text.replace("begun/1", "begun/2"), "[" * 100_000):
        with pytest.raises(Refused, match="here cannot be read"):
            loads(wrong, "here")


@pytest.mark.parametrize(
    ("now", "saved"),
    [
        ({P0: at(10), P1: at(20)}, True),
        ({P0: at(3)}, False),
        ({P0: at(3), P1: at(20)}, None),
        ({P0: at(10)}, None),
        ({P0: at(7), P1: at(8)}, None),
    ],
    ids=["all after", "all before", "half", "other half", "neither"],
)
def test_the_stored_rows_show_whether_a_batch_was_saved(now: Rows, saved: bool | None):
    assert is_saved(BEGUN, now) is saved


@pytest.mark.parametrize(
    ("now", "saved"),
    [
        (at(110, "b", "u", record=10), True),
        (at(103, "b", "u", record=3), False),
        (at(105, "b", "u", record=5), None),
        (at(10, "b", "u", record=5), None),
    ],
    ids=["after", "before", "neither", "an equal number of another cluster"],
)
def test_after_a_failover_the_anchors_show_whether_a_batch_was_saved(now: StoredOffset, saved: bool | None):
    assert is_saved(begun({P0: at(3)}, {P0: at(10)}), {P0: now}) is saved


# ---------------------------------------------------------------- at most once


def test_at_most_once_is_refused_where_spark_repeats_tasks():
    for master, settings in {
        "local[2]": {},
        "local": {"spark.task.maxFailures": "4"},
        "local[*, 1]": {},
        "yarn": {"spark.task.maxFailures": "1"},
    }.items():
        require_single_attempts(master, settings)
    for master, settings in {
        "yarn": {},
        "local[2,3]": {},
        "k8s://host": {"spark.task.maxFailures": "1", "spark.speculation": "true"},
    }.items():
        with pytest.raises(ConfigError, match="repeats tasks"):
            require_single_attempts(master, settings)
