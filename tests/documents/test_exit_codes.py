"""A runbook answers every exit code of the commands that it shows."""

from __future__ import annotations

import re

import pytest

from reconciler.core.errors import ExitCode
from tests.documents.runbooks import PAGES

CHECK = {0, 1, 2, 3, 4, 5, 6, 130}
PLAN = {0, 1, 2, 4, 5, 6, 130}
WRITES = {0, 1, 2, 4, 5, 6, 7, 130}


def tables(page: str) -> list[set[int]]:
    """The exit codes in each table of a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = []
    for table in re.findall(r"^ *\| exit code \|.*\n(?: *\|.*\n)+", text, re.MULTILINE):
        cells = re.findall(r"^ *\| ([\d, ]+) \|", table, re.MULTILINE)
        found.append({int(code) for cell in cells for code in cell.split(",")})
    return found


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("failover.md", [CHECK, PLAN, WRITES, WRITES]),
        ("failback.md", [CHECK]),
        ("stateful-failover.md", [WRITES]),
    ],
)
def test_each_table_has_every_code_that_its_command_can_end_with(page: str, expected: list[set[int]]) -> None:
    assert tables(page) == expected


def test_the_two_groups_contain_every_exit_code() -> None:
    assert {*map(int, ExitCode), 130} == CHECK | WRITES
