"""``reconciler checkpoint`` on the command line: its output, its exit codes and its warnings."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.verdicts import Verdict
from reconciler.failover.checkpoint import clone
from reconciler.places.checkpoint.reading import read_checkpoint
from tests.failover.checkpoint.checkpoint_files import PLANNED, QUERY, Files, command, job, log, outside, plan, row


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


# ---------------------------------------------------------------- clone


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination is a log in memory."""
    real, world = clone.clone, outside(log(o=10), PLANNED)
    monkeypatch.setattr(
        "reconciler.cli.commands.checkpoint.clone", lambda *given, **more: real(*given, **more, outside=world)
    )


def cloned(files: Files, tmp_path: Path, *rows: Any) -> int:
    known = tmp_path / "plan.json"
    known.write_text(plan(job(*rows)).to_text())
    return command("checkpoint", "clone", files.path, tmp_path / "new", "--plan", known)


@pytest.mark.usefixtures("in_memory")
def test_a_clone_says_what_it_made_and_what_it_left(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    files.planned(1, {"o": {0: 1_240, 1: 7}}, "17")
    with caplog.at_level(logging.WARNING):
        assert cloned(files, tmp_path, row(0, 1_234, 3, replay=2), row(1, 5, 4)) == 0
    out, said = capsys.readouterr()
    assert f"{tmp_path / 'new'} is ready: its query runs batch 1 again, without records" in out
    assert "Rewritten: offsets/0, offsets/1" in out
    assert "source 1 stays as it is: the plan's job has none of its topics" in said
    assert "at most 2 records will be read again: a query that counts" in said
    assert "up to 8 records of batch 1, which it may have put out before the stop, come again" in said
    capsys.readouterr()
    assert f"cloned     from {files.path}" in shown(Files(tmp_path / "new"), capsys)


@pytest.mark.usefixtures("in_memory")
def test_a_log_behind_the_output_is_told_by_show_and_by_clone(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.planned(4, {"o": {0: 1_300, 1: 9}}, "18")
    files.done(4)
    told = (
        "asynchronous progress tracking, or lost entries: what the query put out after batch 4 is in no file and is "
        "read again"
    )
    assert told in " ".join(shown(files, capsys).split())
    assert json.loads(shown(files, capsys, "--format", "json"))["behind"] == {"tracking": "asynchronous", "step_ms": 0}
    assert cloned(files, tmp_path, row(0, 1_300, 3), row(1, 9, 4)) == 0
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row(0, 1_234, 3), row(1, 5, None, verdict=Verdict.UNRESOLVED)], 4),
        ([row(0, 1_233, 3), row(1, 5, 4)], 5),
        ([row(0, 1_234, 11), row(1, 5, 4)], 5),
        ([row(0, 1_234, 3, topic="p"), row(1, 5, 4)], 5),
    ],
)
def test_what_is_refused_has_its_exit_code(files: Files, tmp_path: Path, rows: list[Any], code: int) -> None:
    assert cloned(files, tmp_path, *rows) == code
    assert not (tmp_path / "new").exists()
