"""Offsets are saved only for files that will count: another run of the group may have given the batch up meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError
from reconciler.ports import Change, ClusterInfo, Row, TopicInfo, TopicPartition
from reconciler.spark.ranges import hashed_files, output
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.offsets import refuse_conflicts
from reconciler.spark.ranges.planning import LogEdges, OffsetRange, name_of
from reconciler.spark.ranges.sinks import RangeBatch
from reconciler.stores.memory import MemoryStore
from tests.spark.ranges.hashed_files.world import Local, frame

CLUSTER = ClusterInfo("c", {"events": TopicInfo("events", "t", (0,))})
RANGES = (OffsetRange("events", 0, 0, 10),)
BATCH = RangeBatch(RANGES, name_of(RANGES, CLUSTER), "clicks", CLUSTER, {}, ())


def up_to(end: int, at_ms: int = 5) -> list[Change]:
    anchor = Anchor(end - 1, 1, None, None, "c", "t")
    return [Change(TopicPartition("events", 0), None, StoredOffset(end, anchor, at_ms))]


@pytest.mark.parametrize(
    ("scheme", "default", "catalogue", "is_refused"),
    [
        ("", "hdfs", None, True),
        ("", "hdfs", "_batches", False),
        ("", "file", None, False),
        ("file://", "hdfs", None, False),
    ],
)
def test_a_path_that_spark_and_the_catalogue_take_for_two_places_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    default: str,
    catalogue: str | None,
    is_refused: bool,
) -> None:
    class Elsewhere(Local):
        def __init__(self, spark: object, path: str) -> None:
            super().__init__(spark, str(tmp_path))
            self.scheme = "file" if path.startswith("file:") else default

    monkeypatch.setattr(hashed_files, "Directory", Elsewhere)
    spark: Any = None
    sink = HashNamedFiles(f"{scheme}{tmp_path}", catalogue=catalogue and f"{tmp_path}/{catalogue}")
    sink.check(MemoryStore(str(tmp_path)))
    if is_refused:
        with pytest.raises(ConfigError, match=r"no file system: Spark's default \(fs.defaultFS\) is hdfs:") as caught:
            sink.settle(spark, "clicks", {})
        assert all(other in str(caught.value.hint) for other in ("output.read()", "files:/PATH"))
        assert list(tmp_path.iterdir()) == []
    else:
        sink.settle(spark, "clicks", {})
        assert (tmp_path / "_batches").is_dir()


SPARK: Any = None
"""What the local folder needs of it."""


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HashNamedFiles:
    """A run that has staged ten records."""
    monkeypatch.setattr(hashed_files, "Directory", Local)
    files = HashNamedFiles(str(tmp_path))
    files._catalogue.folder.make()
    files.settle(SPARK, "clicks", {})
    assert files.begin(BATCH, up_to(10))
    files.stage(frame([*range(10)]), BATCH)
    return files


@pytest.fixture
def rival(first: HashNamedFiles, tmp_path: Path) -> HashNamedFiles:
    """Another run of the group, which has seen what the first one has begun."""
    files = HashNamedFiles(str(tmp_path))
    files.settle(SPARK, "clicks", {})
    return files


@pytest.mark.parametrize(("is_undone", "said"), [(False, "has given up"), (True, "has finished or undone")])
def test_a_run_saves_no_offsets_of_a_batch_that_another_run_has_given_up(
    first: HashNamedFiles, rival: HashNamedFiles, *, is_undone: bool, said: str
) -> None:
    assert not rival.begin(BATCH, up_to(8)), "compaction has removed the last records"
    if is_undone:
        rival.settle(SPARK, "clicks", {})
    saved: list[str] = []
    with pytest.raises(Changed, match=said):
        first.commit(BATCH, up_to(10), lambda: saved.append("offsets"))
    assert saved == []


@pytest.mark.parametrize("end", [8, 10], ids=["compaction has removed more", "the same records"])
@pytest.mark.parametrize("is_staged", [False, True])
def test_a_run_saves_no_offsets_of_a_batch_that_another_run_has_begun_again(
    first: HashNamedFiles, rival: HashNamedFiles, tmp_path: Path, *, is_staged: bool, end: int
) -> None:
    """The other run has removed its files."""
    rival.abandon(BATCH)
    rival.settle(SPARK, "clicks", {})
    changes = up_to(end, at_ms=6)
    assert rival.begin(BATCH, changes)
    if is_staged:
        rival.stage(frame([*range(end)]), BATCH)
    saved: list[int] = []
    with pytest.raises(Changed, match="has finished or undone"):
        first.commit(BATCH, up_to(10), lambda: saved.append(10))
    rival.stage(frame([*range(end)]), BATCH)
    rival.commit(BATCH, changes, lambda: saved.append(end))
    (counted,) = output.files(str(tmp_path))
    assert (saved, json.loads(Path(counted).read_text())) == ([end], [*range(end)])


def test_a_run_saves_the_offsets_of_a_batch_that_is_its_own(first: HashNamedFiles) -> None:
    saved: list[str] = []
    first.commit(BATCH, up_to(10), lambda: saved.append("offsets"))
    assert (saved, first._catalogue.begun()) == (["offsets"], [])


# ---------------------------------------------------------------- rows that a person has corrected meanwhile


PLACES = (TopicPartition("events", 0), TopicPartition("events", 1))
TWO = ClusterInfo("c", {"events": TopicInfo("events", "t", (0, 1))})
EDGES = LogEdges(TWO, dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 15))


def stored_at(offset: int) -> StoredOffset:
    return StoredOffset(offset, Anchor(offset - 1, 1, None, f"{offset:032x}", "c", "t"), 5)


class Begun:
    """A batch of two partitions from the rows at 5, begun and staged; ``changes`` are the rows that it saves."""

    def __init__(self, path: Path, saved: int) -> None:
        self.path, self.store = path, MemoryStore(str(path))
        self.store.create()
        self.write(dict.fromkeys(PLACES, 5))
        ranges = tuple(OffsetRange(at.topic, at.partition, 5, 15) for at in PLACES)
        self.batch = RangeBatch(ranges, name_of(ranges, TWO), "clicks", TWO, self.rows)
        self.changes = [Change(at, self.rows[at].version, stored_at(15)) for at in PLACES[:saved]]
        self.sink = HashNamedFiles(str(path))
        self.sink._catalogue.folder.make()
        self.sink.settle(None, "clicks", self.rows)  # type: ignore[arg-type]
        assert self.sink.begin(self.batch, self.changes)
        self.sink.stage(frame([1], [2]), self.batch)

    @property
    def rows(self) -> dict[TopicPartition, Row]:
        return {row.key: row for row in self.store.read("clicks")}

    def write(self, offsets: dict[TopicPartition, int]) -> None:
        there = self.store.read("clicks")
        versions = {row.key: row.version for row in there}
        changes = [Change(at, versions.get(at), stored_at(offset)) for at, offset in offsets.items()]
        assert not self.store.write("clicks", changes, reason="by hand", now_ms=1).conflicts

    def save(self) -> None:
        refuse_conflicts(
            self.store.write("clicks", self.changes, reason="batch", now_ms=1).conflicts, "clicks", self.store
        )

    def next_run(self, unfinished: Any = "stop") -> HashNamedFiles:
        made = HashNamedFiles(str(self.path), unfinished=unfinished)
        made.settle(None, "clicks", self.rows)  # type: ignore[arg-type]
        return made


@pytest.mark.parametrize(("corrected", "decision"), [(PLACES[:1], "stop"), (PLACES[1:], "stop"), (PLACES, "drop")])
def test_a_batch_one_of_whose_rows_was_corrected_is_undone_and_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corrected: tuple[TopicPartition, ...], decision: str
) -> None:
    """As past a record that the function cannot process."""
    monkeypatch.setattr(hashed_files, "Directory", Local)
    begun = Begun(tmp_path, saved=2)
    begun.write(dict.fromkeys(corrected, 8))
    assert begun.next_run(decision).unfinished("clicks", EDGES) is None
    assert (list(tmp_path.glob("*.parquet")), output.files(str(tmp_path)), begun.sink._catalogue.begun()) == (
        [],
        [],
        [],
    )

    with pytest.raises(Changed):
        begun.save()
    assert [begun.rows[at].stored.offset for at in PLACES] == [8 if at in corrected else 5 for at in PLACES]


def test_a_batch_all_of_whose_records_count_already_is_not_kept_whatever_a_person_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run has saved them in batches of its own, and gone on."""
    monkeypatch.setattr(hashed_files, "Directory", Local)
    begun = Begun(tmp_path, saved=2)
    (entry,) = begun.sink._catalogue.begun()
    begun.sink._catalogue.put("other.json", replace(entry, name="other", files=("other-0.parquet",)))
    begun.write(dict.fromkeys(PLACES, 20))
    assert begun.next_run("keep").unfinished("clicks", EDGES) is None
    assert output.files(str(tmp_path)) == [str(tmp_path / "other-0.parquet")]
    assert not begun.sink._catalogue.begun()


def test_a_corrected_row_that_the_batch_does_not_save_does_not_undo_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has no record of that partition: a save of the other's that is under way may still succeed."""
    monkeypatch.setattr(hashed_files, "Directory", Local)
    begun = Begun(tmp_path, saved=1)
    begun.write({PLACES[1]: 8})
    again = begun.next_run()
    assert again.unfinished("clicks", EDGES) == begun.batch.ranges
    batch = RangeBatch(begun.batch.ranges, begun.batch.name, "clicks", TWO, begun.rows)
    assert again.begin(batch, begun.changes)
    again.commit(batch, begun.changes, begun.save)
    assert len(output.files(str(tmp_path))) == 2
    assert [begun.rows[at].stored.offset for at in PLACES] == [15, 8]
