"""Offsets are saved only for files that will count: another run of the group may have given the batch up meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed
from reconciler.ports import Change, ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.ranges import hashed_files
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.planning import OffsetRange, name_of
from reconciler.spark.ranges.sinks import RangeBatch

CLUSTER = ClusterInfo("c", {"events": TopicInfo("events", "t", (0,))})
RANGES = (OffsetRange("events", 0, 0, 10),)
BATCH = RangeBatch(RANGES, name_of(RANGES, CLUSTER), "clicks", CLUSTER, {}, ())


class NoFiles:
    """Spark's view of an output's folder, in which it has written no files."""

    def __init__(self, *_: object) -> None: ...

    def names(self, *_: object, **__: object) -> list[str]:
        return []

    def remove(self, *_: object) -> None: ...


def up_to(end: int) -> list[Change]:
    return [Change(TopicPartition("events", 0), None, StoredOffset(end, Anchor(end - 1, 1, None, None, "c", "t"), 5))]


@pytest.mark.parametrize(("is_undone", "said"), [(False, "has given up"), (True, "has finished or undone")])
def test_a_run_saves_no_offsets_of_a_batch_that_another_run_has_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_undone: bool, said: str
) -> None:
    monkeypatch.setattr(hashed_files, "Directory", NoFiles)
    spark: Any = None
    first, rival = HashNamedFiles(str(tmp_path)), HashNamedFiles(str(tmp_path))
    first._catalogue.folder.make()
    first.settle(spark, "clicks", {})
    assert first.begin(BATCH, up_to(10))
    rival.settle(spark, "clicks", {})
    assert not rival.begin(BATCH, up_to(8)), "compaction has removed the last records"
    if is_undone:
        rival.settle(spark, "clicks", {})
    saved: list[str] = []
    with pytest.raises(Changed, match=said):
        first.commit(BATCH, up_to(10), lambda: saved.append("offsets"))
    assert saved == []


def test_a_run_saves_the_offsets_of_a_batch_that_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_files, "Directory", NoFiles)
    files, spark = HashNamedFiles(str(tmp_path)), None
    files._catalogue.folder.make()
    files.settle(spark, "clicks", {})
    files.begin(BATCH, up_to(10))
    saved: list[str] = []
    files.commit(BATCH, up_to(10), lambda: saved.append("offsets"))
    assert (saved, files._catalogue.begun()) == (["offsets"], [])
