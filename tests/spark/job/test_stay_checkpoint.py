"""Where a query keeps its checkpoint whose job stores its offsets elsewhere: a folder for each stay, and no other."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.spark.stay_checkpoint import (
    NOTE,
    as_opened,
    checkpoint_at,
    for_spark,
    location,
    transaction_id,
)
from tests.failover.checkpoint.checkpoint_files import QUERY, Files
from tests.spark.job.test_starting import AT_HOME

MOVED = replace(AT_HOME, stay=3)


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(tmp_path / "clicks")


@pytest.mark.parametrize("shared", ["", "memory://"], ids=["local", "shared"])
def test_a_stay_keeps_its_checkpoint_and_the_next_one_gets_another(base: str, shared: str) -> None:
    base = shared + base
    for start, path in ((AT_HOME, base), (MOVED, f"{base}-3"), (MOVED, f"{base}-3"), (AT_HOME, base)):
        assert checkpoint_at(base, start) == path


def test_a_jobs_checkpoint_from_before_is_continued_in_its_first_stay_only(base: str) -> None:
    for path in (base, f"{base}-3"):
        Files(Path(path)).batch(0, {"o": {0: 1}})
    assert checkpoint_at(f"{base}/", AT_HOME) == base
    with pytest.raises(NeedsPerson, match="clicks-3 is of another stay of the job: it has batches, and no note"):
        checkpoint_at(base, MOVED)


@pytest.mark.parametrize(
    "other",
    [replace(MOVED, store_id="another"), replace(MOVED, job="views"), replace(MOVED, stay=4)],
    ids=["of another state store", "of another job", "of another stay"],
)
def test_a_folder_that_is_not_this_stays_is_never_continued(base: str, other: object) -> None:
    """Its offsets are of other numbers: a new state store counts its stays from 1 again."""
    checkpoint_at(base, MOVED)
    note = Path(f"{base}-3") / NOTE
    there = Path(f"{base}-{other.stay}")  # type: ignore[attr-defined]
    there.mkdir(exist_ok=True)
    (there / NOTE).write_text(note.read_text())
    with pytest.raises(NeedsPerson, match=r"its note is of stay 3 of job clicks, in clicks-3.*Move it away"):
        checkpoint_at(base, other)  # type: ignore[arg-type]


def test_a_copy_is_not_continued(base: str) -> None:
    checkpoint_at(base, AT_HOME)
    shutil.copytree(base, f"{base}-copy")
    with pytest.raises(NeedsPerson, match="in clicks"):
        checkpoint_at(f"{base}-copy", AT_HOME)


# ---------------------------------------------------------------- the base


@pytest.mark.parametrize("wrong", ["", "/", "..", "s3://bucket", "file:/", "~/clicks", "hdfs:/clicks"])
def test_a_base_needs_a_name_of_its_own(wrong: str) -> None:
    with pytest.raises(ConfigError):
        location(wrong)


@pytest.mark.parametrize(
    ("base", "parent"),
    [("/c/clicks/", "/c"), ("clicks", "."), ("s3://bucket/clicks", "s3://bucket/"), ("file:/c/clicks", "file:/c")],
)
def test_a_note_is_beside_the_query(base: str, parent: str) -> None:
    assert location(base) == (base.rstrip("/"), parent, "clicks")


# ---------------------------------------------------------------- sinks, and a name for a query's batches


def test_every_checkpoint_has_a_name_of_its_own_which_restarts_and_copies_keep(base: str) -> None:
    first, moved = (transaction_id(checkpoint_at(base, start), start) for start in (AT_HOME, MOVED))
    assert first == transaction_id(base, AT_HOME) != moved
    shutil.copytree(base, f"{base}-copy")
    assert transaction_id(f"{base}-copy", MOVED) == first, "it keeps the numbers"
    shutil.rmtree(base)
    assert transaction_id(base, AT_HOME) != first, "its batches begin at 0 again"


def test_a_query_that_has_begun_without_a_note_is_named_by_its_id(base: str) -> None:
    Files(Path(base)).batch(0, {"o": {0: 1}})
    assert transaction_id(base, AT_HOME) == QUERY


def test_a_checkpoint_is_neither_begun_nor_continued_whose_next_batch_the_sink_has(base: str, tmp_path: Path) -> None:
    out = tmp_path / "out" / "_spark_metadata"
    out.mkdir(parents=True)
    here, there = (replace(start, sinks=(f"files:{tmp_path}/out",)) for start in (AT_HOME, MOVED))
    assert checkpoint_at(base, here) == base
    Files(Path(base)).batch(0, {"o": {0: 1}})
    (out / "0").write_text("v1")
    assert checkpoint_at(base, here) == base, "a restart goes on"
    with pytest.raises(NeedsPerson, match="would drop batch 0 without an error"):
        checkpoint_at(base, there)
    assert not Path(f"{base}-3").exists()
    (out / "1").write_text("v1")
    with pytest.raises(NeedsPerson, match="would drop batch 1 without an error"):
        checkpoint_at(base, here)


@pytest.mark.parametrize(
    ("own", "sparks", "resolved"),
    [
        ("/Volumes/main/etl/v/chk", "/Volumes/main/etl/v/chk", "dbfs:/Volumes/main/etl/v/chk"),
        ("/dbfs/mnt/chk", "dbfs:/mnt/chk", "dbfs:/mnt/chk"),
        ("s3://bucket/chk", "s3://bucket/chk", "s3://bucket/chk"),
    ],
)
def test_databricks_finds_the_checkpoint_that_this_process_opens(own: str, sparks: str, resolved: str) -> None:
    on_databricks = {"DATABRICKS_RUNTIME_VERSION": "16.4"}
    assert for_spark(own, on_databricks) == sparks
    assert as_opened(resolved) == own
    assert for_spark("/srv/chk", {}) == as_opened("file:/srv/chk") == "/srv/chk"
    with pytest.raises(ConfigError, match="on the disk of this Databricks driver"):
        for_spark("/srv/chk", on_databricks)
