"""Programs that the documents name do what they say."""

from __future__ import annotations

import pytest

from tests import ROOT

PROGRAM = ROOT / "tests" / "core" / "search_in_memory.py"


def test_the_search_in_memory_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    exec(compile(text, PROGRAM.name, "exec"), {})
    assert f"\n    {capsys.readouterr().out}\n" in text
