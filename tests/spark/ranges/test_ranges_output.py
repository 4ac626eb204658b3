"""The catalogue of a job's output: files that count, incomplete files, and interrupted batches; what sinks need."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, ExitCode, Refused
from reconciler.folder import open_folder
from reconciler.ports import TopicPartition
from reconciler.spark.ranges import output
from reconciler.spark.ranges.idempotent import PostgresUpsert
from reconciler.spark.ranges.interrupted import holds_all, is_contradicted, is_saved
from reconciler.spark.ranges.output import (
    BEGUN,
    BatchPart,
    Catalogue,
    CatalogueEntry,
    dumps,
    files,
    loads,
)
from reconciler.spark.ranges.planning import OffsetRange
from reconciler.spark.ranges.reading import require_single_attempts
from reconciler.spark.ranges.transactional import PostgresTransaction
from tests.fuzz import attempt, documents, fuzz, sized, with_field


def at(number: int, cluster: str = "a", topic_id: str = "t", record: int | None = None) -> StoredOffset:
    """A stored offset; ``record`` is which record its anchor names, if not the number says it."""
    stamp = number if record is None else record
    return StoredOffset(number, Anchor(number - 1, stamp, None, f"{stamp:032x}", cluster, topic_id), 5)


def part(before: StoredOffset | None, after: StoredOffset | None, partition: int = 0) -> BatchPart:
    return BatchPart(OffsetRange("events", partition, 0, 10), before, after)


def entry(name: str, *parts: BatchPart, files: tuple[str, ...] = ()) -> CatalogueEntry:
    return CatalogueEntry(name, "clicks", files, parts, 7)


P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "_batches").mkdir()
    return Catalogue(open_folder(str(tmp_path / "_batches")))


def test_an_entry_is_loaded_as_it_was_written():
    whole = entry("n", part(None, at(10)), part(at(3), None, 1), files=("n-0.parquet",))
    assert loads(dumps(whole), "here") == whole


def test_an_incomplete_entry_is_none_and_an_altered_one_is_refused():
    data = dumps(entry("n"))
    assert all(loads(data[:length], "here") is None for length in range(len(data) - 1))
    with pytest.raises(Refused, match="altered"):
        loads(data.replace(b"clicks", b"clacks"), "here")


def test_finished_batches_count_and_begun_ones_do_not(catalogue: Catalogue, tmp_path: Path):
    catalogue.put("one.json", entry("one", files=("one-0.parquet",)))
    catalogue.put("two" + BEGUN, entry("two", files=("two-0.parquet",)))
    (tmp_path / "_batches" / "three.json").write_bytes(dumps(entry("three", files=("three",)))[:-9])
    assert files(str(tmp_path)) == [f"{tmp_path}/one-0.parquet"]


def test_an_incomplete_entry_is_rewritten(catalogue: Catalogue, tmp_path: Path):
    (tmp_path / "_batches" / "one.json").write_bytes(dumps(entry("one"))[:-9])
    assert catalogue.put("one.json", entry("one", files=("one-0",)))
    assert catalogue.contents().files == ["one-0"]


# ---------------------------------------------------------------- a batch that was cut off


@pytest.mark.parametrize(
    ("now", "saved"),
    [
        ({P0: at(10), P1: at(20)}, True),
        ({P0: at(3)}, False),
        ({P0: at(3), P1: at(20)}, None),
        ({P0: at(10)}, None),
        ({P0: at(7), P1: at(8)}, None),
        ({}, False),
    ],
    ids=["all after", "all before", "half", "other half", "neither", "no row any more"],
)
def test_the_stored_rows_show_whether_a_batch_was_saved(now: dict[TopicPartition, StoredOffset], saved: bool | None):
    begun = entry("n", part(at(3) if now else None, at(10)), part(None, at(20), 1))
    assert is_saved(begun, now) is saved


def test_after_a_failover_the_anchors_show_whether_a_batch_was_saved():
    begun = entry("n", part(at(3), at(10)))
    assert is_saved(begun, {P0: at(110, "b", "u", record=10)}) is True
    assert is_saved(begun, {P0: at(103, "b", "u", record=3)}) is False
    assert is_saved(begun, {P0: at(105, "b", "u", record=5)}) is None
    assert is_saved(begun, {P0: at(10, "b", "u", record=5)}) is None, "an equal number of another cluster says nothing"


@pytest.mark.parametrize(
    ("now", "saved"),
    [
        ({P0: at(7), P1: at(20)}, None),
        ({P0: at(10), P1: at(8)}, None),
        ({P0: at(7), P1: at(5)}, False),
        ({P0: at(107, "b", "u", record=7), P1: at(20)}, True),
        ({P0: at(107, "b", "u", record=7), P1: at(120, "b", "u", record=20)}, True),
    ],
    ids=["another batch", "another batch, too", "one before", "one replaced", "all replaced"],
)
def test_a_row_of_another_batch_contradicts_one_that_is_as_after_this_batch(
    now: dict[TopicPartition, StoredOffset], saved: bool | None
) -> None:
    """A batch saves all its rows in one step: only a failover replaces one of them, in another numbering."""
    begun = entry("n", part(at(3), at(10)), part(at(5), at(20), 1))
    assert is_saved(begun, now) is saved


@pytest.mark.parametrize(
    ("now", "contradicted"),
    [
        ({P0: at(110, "b", "u", record=10), P1: at(108, "b", "u", record=8)}, True),
        ({P0: at(110, "b", "u", record=10), P1: at(120, "b", "u", record=20)}, False),
        ({P0: at(110, "b", "u", record=10), P1: at(105, "b", "u", record=5)}, False),
        ({P0: at(110, "b", "u", record=10)}, False),
    ],
    ids=["one row is neither", "both as after it", "one as before it", "no row"],
)
def test_after_a_failover_a_batch_is_doubtful_if_another_that_counts_has_some_of_its_records(
    now: dict[TopicPartition, StoredOffset], contradicted: bool
) -> None:
    """Another run's batch may have ended at the same record of a partition."""
    begun = entry("n", part(at(3), at(10)), part(at(5), at(20), 1))
    counted = entry("m", part(at(3), at(10)), part(at(5), at(8), 1))
    assert is_contradicted(begun, now, [counted]) is contradicted
    assert not is_contradicted(begun, now, [])
    assert not is_contradicted(begun, now, [entry("m", part(at(3), None))]), "it has no records"
    assert not is_contradicted(begun, now, [entry("m", part(at(3), at(10, topic_id="earlier")))])


def test_a_row_that_a_failover_placed_at_a_logs_start_is_as_before_a_first_batch() -> None:
    begun = entry("n", part(StoredOffset(-1), at(10)))
    unread = StoredOffset(0, Anchor(None, None, None, None, "b", "u"))
    assert is_saved(begun, {P0: unread}) is False


@pytest.mark.parametrize(
    ("others", "holds"),
    [
        ([(1, 10)], True),
        ([(4, 10), (1, 4)], True),
        ([(1, 4), (5, 10)], False),
        ([(2, 10)], False),
        ([], False),
    ],
)
def test_other_batches_hold_all_of_one_where_their_ranges_together_do(others: list[tuple[int, int]], holds: bool):
    for topic_id, expected in (("t", holds), ("u", False), (None, False)):
        found = [a_batch(start, start, end, topic_id) for start, end in others]
        assert holds_all(found, a_batch(1, 1, 10, "t" if topic_id else None)) is expected
    nothing = entry("n", BatchPart(OffsetRange("events", 0, 1, 10), None, None))
    assert holds_all([], nothing), "it has no records"


@pytest.mark.parametrize(
    ("stored", "holds"),
    [(3, True), (2, True), (4, False), (-1, True), (None, True)],
    ids=["the same", "an earlier one", "a later one", "a sentinel", "none"],
)
def test_a_saved_batch_holds_what_lies_behind_the_stored_offset_that_it_replaced(stored: int | None, holds: bool):
    """Its range begins further on, since its run knew that no record is in between."""
    assert holds_all([a_batch(stored, 5, 10, "t")], a_batch(3, 3, 10, "t")) is holds


def test_a_stored_offset_in_another_clusters_numbers_does_not_say_what_a_batch_holds():
    assert not holds_all([a_batch(3, 5, 10, "t", numbers="another cluster")], a_batch(3, 3, 10, "t"))


def a_batch(stored: int | None, start: int, end: int, topic_id: str | None, numbers: str = "a") -> CatalogueEntry:
    """One of partition 0, begun from a stored offset in this cluster's numbers or in another's."""

    def row(offset: int, cluster_id: str) -> StoredOffset:
        if offset < 0:
            return StoredOffset(offset)
        made = at(offset)
        return replace(made, anchor=replace(made.anchor, cluster_id=cluster_id, topic_id=topic_id))

    before = None if stored is None else row(stored, numbers)
    return entry("n", BatchPart(OffsetRange("events", 0, start, end), before, row(end, "a")))


def test_a_partition_without_records_has_no_last_record():
    assert is_saved(entry("n", part(at(3), None), part(at(3), at(10), 1)), {P0: at(3), P1: at(10)}) is True


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


# ---------------------------------------------------------------- sinks that need a package


@pytest.mark.parametrize(
    "sink", [partial(PostgresTransaction, table="clicks"), partial(PostgresUpsert, table="clicks", key=["id"])]
)
def test_a_sink_whose_package_is_missing_names_it_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, sink: Callable[[str], object]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs the Python package psycopg") as caught:
        sink("postgresql://etl@db/results")
    assert caught.value.hint == "Run: pip install 'failover-offset-reconciler[postgresql]'"


@sized
def test_any_entry_of_the_catalogue_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def summed(content: dict[str, object]) -> dict[str, object]:
        rest = {name: value for name, value in content.items() if name != "sha256"}
        return with_field(rest, "sha256", output._sum(rest))

    def claim(data: bytes) -> None:
        found = attempt(lambda: loads(data, "an entry"), ExitCode.UNREACHABLE)
        assert found is None or loads(dumps(found), "an entry") == found

    original = json.loads(dumps(entry("batch-1", part(None, at(7)), part(at(3), at(7), 1), files=("a.parquet",))))
    fuzz(runs, documents([original], summed), claim)
