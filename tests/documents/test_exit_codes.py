"""Exit codes are on one page, which says of every code what it means and what to do."""

from __future__ import annotations

import re

from reconciler.core.errors import ExitCode
from tests import ROOT

DOCS = ROOT / "docs"
TABLE = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8").partition("\n\n## ")[0]
ROWS = re.findall(r"^\| ([\d, ]+) \| (.*?) \| (.*?) ?\|$", TABLE, re.MULTILINE)


def test_the_table_has_every_code() -> None:
    assert sorted(int(code) for codes, _, _ in ROWS for code in codes.split(",")) == [*map(int, ExitCode), 130, 143]


def test_each_code_other_than_0_has_its_way_out() -> None:
    assert [row for row in ROWS if row[0] != "0" and not (row[1] and row[2])] == []


def test_no_other_page_has_a_table_of_exit_codes() -> None:
    pages = [path for path in DOCS.rglob("*.md") if re.search(r"^ *\| exit code \|", path.read_text("utf-8"), re.M)]
    assert [path.name for path in pages] == []
