"""``reconciler checkpoint`` on the command line: its output, its exit codes and its warnings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.places.checkpoint.reading import read_checkpoint
from tests.failover.checkpoint.checkpoint_files import PLANNED, QUERY, Files, command


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "checkpoint")
    made.began({"o": {0: 0}})
    made.batch(0, {"o": {0: 1_234, 1: 5}}, "17")
    return made


def shown(files: Files, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert command("checkpoint", "show", files.path, *options) == 0
    return capsys.readouterr().out


def test_show_prints_a_checkpoint_as_json(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(files, capsys, "--format", "json"))
    assert found == {
        "format": "reconciler.checkpoint/1",
        "path": str(files.path),
        "query_id": QUERY,
        "last_batch": 0,
        "committed": True,
        "next_batch": 1,
        "repeats": False,
        "numbers_missing": False,
        "missing": [],
        "offset_version": 1,
        "planned_at_ms": PLANNED,
        "sources": [
            {
                "name": "0",
                "kafka": True,
                "text": '{"o":{"0":1234,"1":5}}',
                "start": {"o": {"0": 1234, "1": 5}},
                "end": None,
            },
            {"name": "1", "kafka": False, "text": "17", "start": None, "end": None},
        ],
        "stateful": True,
        "cloned_from": None,
        "behind": None,
    }


def test_show_tells_a_query_without_any_batch_from_one_that_has_only_its_beginnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Files(tmp_path / "checkpoint")
    out = shown(files, capsys)
    assert "none planned" in out
    files.began({"o": {0: 7}})
    assert "o-0           7" in shown(files, capsys)
    assert read_checkpoint(str(files.path)).next_batch == 0


def test_show_says_what_spark_does_without_the_querys_id(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    (files.path / "metadata").unlink()
    out = " ".join(shown(files, capsys).split())
    assert "no metadata file: Spark 3.5 assigns a new id at the start, and Spark 4.2 and later do not start" in out


def test_a_log_behind_the_output_is_told(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.planned(4, {"o": {0: 1_300, 1: 9}}, "18")
    files.done(4)
    told = (
        "asynchronous progress tracking, or lost entries: what the query wrote after batch 4 is in no file and is "
        "read again"
    )
    assert told in " ".join(shown(files, capsys).split())
    assert json.loads(shown(files, capsys, "--format", "json"))["behind"] == {"tracking": "asynchronous", "step_ms": 0}
