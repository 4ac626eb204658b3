"""A name for a query's batches that goes with its checkpoint, and the checkpoint beside what the sink has taken."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import NeedsPerson
from reconciler.formats.start import JobStart, parse_start
from reconciler.spark.handoff import START_VARIABLE, Handoff, from_environment
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE
from tests.checkpoints.checkpoint_files import QUERY, Files
from tests.spark.handoff.test_start import AT_A, AT_B


def handed(folder: Path, start: JobStart, kept_in: str | None = None) -> Handoff:
    """What a job reads from its environment."""
    path = folder / "start.json"
    path.write_text(start.to_text())
    more = {CHECKPOINT_VARIABLE: kept_in} if kept_in else {}
    return from_environment(environ={START_VARIABLE: str(path), **more})


def name(folder: Path, start: JobStart, kept_in: str | None = None) -> str:
    return handed(folder, start, kept_in).transaction_id(None if kept_in else str(folder / "c"))


def test_every_checkpoint_has_a_name_of_its_own_which_restarts_keep(tmp_path: Path) -> None:
    first = name(tmp_path, AT_A)
    assert name(tmp_path, replace(AT_A, created_at="later")) == first
    moved = name(tmp_path, AT_B)
    corrected = name(tmp_path, replace(AT_B, correction="20260202T060000-000-7"))
    back = name(tmp_path, replace(AT_A, correction="20260203T060000-000-7"))
    assert len({first, moved, corrected, back}) == 4
    assert name(tmp_path, replace(AT_A, correction="")) == back
    assert Path(handed(tmp_path, AT_A).checkpoint(str(tmp_path / "c"))).name == "c-4"


def test_a_copy_keeps_its_originals_name_since_it_keeps_the_numbers(tmp_path: Path) -> None:
    files = Files(tmp_path / "query")
    files.batch(0, {"o": {0: 1}})
    assert name(tmp_path, AT_A, str(files.path)) == QUERY
    first = name(tmp_path, AT_A, str(tmp_path / "new"))
    shutil.copytree(tmp_path / "new", tmp_path / "copy")
    assert name(tmp_path, AT_B, str(tmp_path / "copy")) == first == name(tmp_path, AT_A, str(tmp_path / "new"))


# ---------------------------------------------------------------- the job's own checkpoint beside its sinks


def put_out(folder: Path, *batches: int) -> None:
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (folder / "_spark_metadata" / str(batch)).write_text("v1")


def test_a_new_checkpoint_is_not_begun_where_the_file_sink_has_its_numbers(tmp_path: Path) -> None:
    base, here = str(tmp_path / "c"), replace(AT_A, sinks=(f"files:{tmp_path}/out",))
    assert parse_start(here.to_text(), "it") == here
    assert handed(tmp_path, here).checkpoint(base) == base
    Files(Path(base)).batch(0, {"o": {0: 1}})
    put_out(tmp_path / "out", 0)
    assert handed(tmp_path, here).checkpoint(base) == base, "a restart goes on"

    there = replace(AT_B, sinks=here.sinks)
    for _ in range(2):
        with pytest.raises(NeedsPerson, match="would drop batch 0 without an error"):
            handed(tmp_path, there).checkpoint(base)
    assert not (tmp_path / "c-2").exists()
    elsewhere = replace(AT_B, sinks=(f"files:{tmp_path}/out-b",))
    assert handed(tmp_path, elsewhere).checkpoint(base) == f"{base}-2"


def test_a_checkpoint_is_not_continued_whose_next_batch_the_sink_has(tmp_path: Path) -> None:
    base, here = str(tmp_path / "c"), replace(AT_A, sinks=(f"files:{tmp_path}/out",))
    handed(tmp_path, here).checkpoint(base)
    Files(Path(base)).batch(0, {"o": {0: 1}})
    put_out(tmp_path / "out", 0, 1)
    with pytest.raises(NeedsPerson, match="would drop batch 1 without an error"):
        handed(tmp_path, here).checkpoint(base)
