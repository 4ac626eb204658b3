"""Marks of failovers, whatever is in their files: read, or a start is refused with a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

from reconciler.core.errors import ExitCode, Refused
from reconciler.hook.kept import files, last_correction
from reconciler.hook.marks import Mark, Marks, file_name
from tests.fuzz import attempt, documents, fuzz, sized, words
from tests.in_memory import Memory


@sized
def test_any_mark_is_read_or_refused_with_a_sentence(memory: Memory, runs: int) -> None:
    marks = Marks(memory.config())
    assert marks.set("clicks", Mark("2026-01-31T06:00:00Z", "ada@ops-1"))
    path = Path(marks.place) / file_name("clicks")
    original = json.loads(path.read_text())

    def claim(data: bytes) -> None:
        path.write_bytes(data)
        mark = attempt(lambda: marks.of("clicks"), ExitCode.UNREACHABLE, ExitCode.USAGE)
        assert mark is None or (json.loads(data)["since"], json.loads(data)["by"]) == (mark.since, mark.by)

    fuzz(runs, documents([original]), claim)


def test_a_mark_whose_source_has_a_name_of_any_length_is_refused_in_a_few_words(memory: Memory) -> None:
    marks = Marks(memory.config())
    assert marks.set("clicks", Mark("2026-01-31T06:00:00Z", "ada@ops-1"))
    path = Path(marks.place) / file_name("clicks")
    path.write_text(json.dumps({**json.loads(path.read_text()), "source_alias": "x" * 100_000}))
    with pytest.raises(Refused, match="source_alias is not a cluster's name"):
        marks.of("clicks")


@sized
def test_any_jobs_name_is_a_file_in_the_folder_of_plans(tmp_path: Path, runs: int) -> None:
    beside = [
        *("clicks-20260131T060000-000-7.plan.json", "clicks-20260131T060000-000-7.plan.json.applied.json", "clicks")
    ]

    def claim(drawn: tuple[str, str]) -> None:
        job, name = drawn
        if "/" not in name and 0 < len(os.fsencode(name)) < 250 and name not in (".", ".."):
            (tmp_path / name).touch()
        found = files(tmp_path, job, 1_700_000_000_000)
        assert found.plan.parent == tmp_path
        last_correction(tmp_path, job)
        for made in tmp_path.iterdir():
            made.unlink()

    fuzz(runs, st.tuples(words(["clicks", "a/b", "..", "名"]), words(beside)), claim)
