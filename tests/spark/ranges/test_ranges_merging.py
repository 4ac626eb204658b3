"""Which files a compaction merges: its work grows with what is new, and not with all that is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from reconciler.cli.main import main
from reconciler.core.errors import ExitCode
from reconciler.folder import LocalFolder
from reconciler.spark.ranges import compaction
from reconciler.spark.ranges.compaction import to_merge
from reconciler.spark.ranges.output import Catalogue, CatalogueEntry

TARGET = 1_000


def test_small_files_become_files_of_about_the_target():
    assert to_merge({"a": 499, "b": 400, "c": 500, "d": 5_000}, TARGET) == (["a", "b"], 1)
    assert to_merge({str(n): 100 for n in range(34)}, TARGET)[1] == 3
    assert to_merge({}, TARGET) == ([], 1)


@pytest.mark.parametrize("batch", [7, 90, 499])
def test_a_row_is_written_again_only_a_few_times_however_often_compactions_run(batch: int):
    sizes: dict[str, int] = {}
    arrived = written = 0
    for run in range(300):
        for n in range(4):
            sizes[f"{run}-{n}"] = batch
            arrived += batch
        small, parts = to_merge(sizes, TARGET)
        if len(small) >= 2:
            total = sum(sizes.pop(name) for name in small)
            written += total
            sizes |= {f"merged-{run}-{part}": total // parts for part in range(parts)}
    # A rest below half of the target is written again with each compaction until it has grown.
    assert written <= 2 * arrived + arrived / (4 * batch) * TARGET / 2
    assert len(sizes) <= 2 * arrived / TARGET + 4


class Listed(LocalFolder):
    """Counts how often it is listed."""

    lists = 0

    def names(self, below: str = "") -> list[str]:
        self.lists += 1
        return super().names(below)


class Files:
    """The output's directory: what is removed from it."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def names(self, *_: str) -> list[str]:
        return []

    def remove(self, name: str) -> None:
        self.removed.append(name)


def test_the_catalogue_is_not_listed_once_more_for_each_old_batch(tmp_path: Path):
    folder, directory = Listed(str(tmp_path)), Files()
    catalogue = Catalogue(folder)
    names = [f"{n:032x}" for n in range(60)]
    for name in names:
        catalogue.put(f"{name}.json", CatalogueEntry(name, "clicks", (f"{name}-00000.parquet",)))
    catalogue.put(
        "snapshot-00000000000000000001.json", CatalogueEntry("snapshot", "", ("merged",), (), tuple(names), 1)
    )
    folder.lists = 0
    anything: Any = directory
    assert compaction._remove_old(anything, catalogue, since_ms=2) == 60
    assert sorted(directory.removed) == [f"{name}-00000.parquet" for name in names]
    assert folder.lists <= 4
    assert catalogue.has("snapshot-00000000000000000001.json")
    assert not any(catalogue.has(f"{name}.json") for name in names)
    assert folder.lists <= 4, "nor to find out whether it has a file"


@contextmanager
def no_session(*_: Any, **__: Any) -> Iterator[None]:
    yield None


def test_a_mistyped_path_is_not_an_output_without_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reconciler.spark.session.own_session", no_session)
    assert main(["compact", str(tmp_path / "typo")]) == ExitCode.USAGE
    assert "typo is no output of range batches: it has no catalogue at" in capsys.readouterr().err


def test_a_failure_of_spark_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise Py4JError("java.io.FileNotFoundException: File /srv/clicks/a.parquet does not exist")

    monkeypatch.setattr("reconciler.spark.session.own_session", no_session)
    monkeypatch.setattr(compaction, "compact", fail)
    assert main(["compact", "/srv/clicks"]) == ExitCode.UNREACHABLE
    assert "Spark could not merge the files of /srv/clicks: java.io.FileNotFoundException" in capsys.readouterr().err
