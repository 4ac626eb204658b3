"""Behind each door of the README is a configuration that can be read, a job that compiles, and commands that parse."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from reconciler.cli.main import _parse
from reconciler.config.file import load_config
from tests.documents.doors import FIRST, OTHERS, blocks


def name_of(door: str) -> str:
    return door.partition("\n")[0]


def test_there_is_a_door_for_each_kind_of_job() -> None:
    doors = ["It has a checkpoint only", "It uses foreachBatch", "It is a consumer group"]
    assert [name_of(door) for door in (FIRST, *OTHERS)] == doors


@pytest.mark.parametrize("door", OTHERS, ids=name_of)
def test_the_other_doors_jobs_fit_into_the_first_ones_file(door: str, tmp_path: Path) -> None:
    (whole,) = [text for kind, text in blocks(FIRST) if kind == "toml"]
    (table,) = [text for kind, text in blocks(door) if kind == "toml"]
    path = tmp_path / "reconciler.toml"
    path.write_text(whole.partition("[[jobs]]")[0] + table)
    (job,) = load_config(path, {}).jobs
    assert job.topics == ("events",)
    for kind, text in blocks(door):
        if kind == "python":
            compile(text, "README.md", "exec")
        for command in text.splitlines() if not kind else ():
            parsed = _parse(shlex.split(command)[1:])
            assert getattr(parsed, "job", None) in (job.name, [job.name], [], None), command
