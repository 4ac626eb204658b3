"""Copies of checkpoints as people have them: with gaps, without an id, with strangers in the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from tests.failover.checkpoint.checkpoint_files import Files, after_call, cloned, new


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Batches 0 and 1 are committed, and the plan moves their end."""
    files = Files(tmp_path / "checkpoint")
    files.began({"o": {0: 0, 1: 0}})
    files.batch(0, {"o": {0: 20, 1: 21}})
    files.batch(1, {"o": {0: 30, 1: 31}})
    return files


# ---------------------------------------------------------------- gaps


def test_a_batch_that_is_repeated_has_the_entry_right_before_it_in_the_copy(files: Files) -> None:
    files.planned(3, {"o": {0: 40, 1: 41}})
    files.put("offsets/.2.crc", "of the lost file")
    made = cloned(files)
    after = files.content(new(files))
    assert made.added == ("offsets/2",)
    assert after["offsets/2"] == after["offsets/1"]
    assert after["offsets/1"].endswith(b'\n{"a.o":{"0":3,"1":4}}')
    assert "offsets/.2.crc" in made.left_out
    assert json.loads(after[MANIFEST])["added"] == ["offsets/2"]
    (gap,) = [each for each in made.warnings if "offsets/2" in each]
    assert "left out by asynchronous progress tracking, or lost" in gap
    assert made.batch == 3
    found, original = read_checkpoint(str(new(files))), read_checkpoint(str(files.path))
    assert original.lacks_entry_before
    assert not found.lacks_entry_before
    assert [each.start for each in found.positions] == [{("a.o", 0): 3, ("a.o", 1): 4}]


@pytest.mark.parametrize("others", [True, False])
def test_a_committed_batch_has_an_entry_right_before_it_in_the_copy(files: Files, others: bool) -> None:
    files.batch(7, {"o": {0: 30, 1: 31}})
    for batch in () if others else (0, 1):
        (files.path / f"offsets/{batch}").unlink()
    made = cloned(files)
    after = files.content(new(files))
    assert made.added == ("offsets/6",)
    assert after["offsets/6"] == after["offsets/7"]
    assert made.batch == 8


# ---------------------------------------------------------------- strangers


def test_what_others_keep_in_the_folder_is_copied_and_may_change(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put("_schemas/0", "v1\nneeded")
    files.put("notes.txt", "of a person")
    files.put("offsets.bak/1", "an old entry")
    files.put("sources/1/offsets/0", "a connector's own")
    files.put("sources/1/metadata/0", "a connector's own")

    def go_on() -> None:
        (files.path / "notes.txt").write_text("of a person, longer")
        files.put("run.log", "appeared")

    after_call(monkeypatch, "_copy_files", go_on)
    cloned(files)
    after = files.content(new(files))
    assert after["_schemas/0"] == b"v1\nneeded"
    assert after["notes.txt"] == b"of a person"
    assert {"offsets.bak/1", "sources/1/offsets/0"} <= set(after)
