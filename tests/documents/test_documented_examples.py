"""Examples in the documents that run without servers do what the documents say."""

from __future__ import annotations

import re

import pytest

from tests import ROOT

DOCS = ROOT / "docs"


def test_the_search_in_memory_prints_what_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "how-to" / "try-the-search.md").read_text(encoding="utf-8")
    program, printed = re.findall(r"^```(?:python)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    exec(compile(program, "try-the-search.md", "exec"), {})
    assert capsys.readouterr().out == printed
