"""Compaction of small files: a reader of the catalogue sees every row once, before, during and after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed
from reconciler.folder import open_folder
from reconciler.spark.ranges import compaction, output
from reconciler.spark.ranges.compaction import compact
from reconciler.spark.ranges.output import Catalogue, CatalogueEntry
from tests import ROOT
from tests.spark.ranges.world import collected, ids
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.system

HOUR = 3_600_000


class Finished:
    """Batches as ``hashed_files`` leaves them, three rows each."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.spark, self.path = spark, path
        (path / "_batches").mkdir(parents=True)
        self.catalogue = Catalogue(open_folder(str(path / "_batches")))
        self.count = 0

    def more(self, batches: int) -> None:
        from reconciler.spark.ranges.hadoop import Directory

        directory = Directory(self.spark, str(self.path))
        for _ in range(batches):
            rows = [(f"id-{n}",) for n in range(self.count, self.count + 3)]
            name = f"{self.count:032x}"
            aside = f"_writing/{name}"
            self.spark.createDataFrame(rows, "id string").coalesce(1).write.parquet(f"{self.path}/{aside}")
            (file,) = [each for each in directory.names(aside) if each.endswith(".parquet")]
            directory.move(f"{aside}/{file}", f"{name}-00000.parquet")
            self.catalogue.put(f"{name}.json", CatalogueEntry(name, "clicks", (f"{name}-00000.parquet",)))
            self.count += 3

    def compact(self, now_ms: int) -> compaction.Compacted:
        return compact(self.spark, str(self.path), grace_ms=HOUR, now_ms=lambda: now_ms)

    def seen(self) -> Counter[str]:
        return collected(output.read(self.spark, str(self.path)))


def test_readers_see_the_old_files_or_the_merged_ones(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    world = Finished(spark, tmp_path / "out")
    world.more(3)
    told = output.files(str(world.path))
    merge, seen_meanwhile = compaction._merge, []

    def while_merging(*arguments: Any) -> list[str]:
        merged = merge(*arguments)
        seen_meanwhile.append(world.seen())
        world.more(1)  # a batch that ends meanwhile
        return merged

    monkeypatch.setattr(compaction, "_merge", while_merging)
    assert world.compact(0) == compaction.Compacted(3, 1, 0)
    monkeypatch.undo()
    assert seen_meanwhile == [ids(range(9))]
    assert world.seen() == ids(range(12))
    assert len(output.files(str(world.path))) == 2
    assert collected(spark.read.parquet(*told)) == ids(range(9)), "who was told of the old files can still read them"
    plain = collected(spark.read.parquet(str(world.path)))
    assert max(plain.values()) == 1, "who lists the directory does not see both either"

    world.more(1)
    assert world.compact(HOUR - 1).removed == 0, "too early"
    assert world.compact(HOUR).removed == 3, "also where compactions come more often than the grace ends"
    assert world.seen() == ids(range(15))
    assert world.compact(9 * HOUR).removed > 0
    assert world.seen() == ids(range(15))
    left = {file.name for file in world.path.rglob("*.parquet")}
    assert left == {Path(file).name for file in output.files(str(world.path))}, "nothing else is left"


def test_of_two_compactions_one_counts(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    world = Finished(spark, tmp_path / "out")
    world.more(2)
    merge = compaction._merge

    def while_merging(*arguments: Any) -> list[str]:
        merged = merge(*arguments)
        monkeypatch.undo()
        world.compact(0)
        return merged

    monkeypatch.setattr(compaction, "_merge", while_merging)
    with pytest.raises(Changed, match="Another compaction"):
        world.compact(0)
    assert world.seen() == ids(range(6))


def test_the_command_merges_and_reports_the_result(spark: Any, tmp_path: Path) -> None:
    world = Finished(spark, tmp_path / "out")
    world.more(2)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "reconciler", "compact", str(world.path), "--grace-hours", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "2 files became 1; 0 old ones were removed.\n"), done.stderr
    assert world.seen() == ids(range(6))
