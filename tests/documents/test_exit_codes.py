"""Exit codes are in one table, which says for every code of every command what happened and what to do."""

from __future__ import annotations

import importlib
import re
from typing import NamedTuple

import pytest

from reconciler.cli.main import COMMANDS, module_of
from tests import ROOT

DOCS = ROOT / "docs"
ANY = {1, 130, 143}
"""With these every command may end."""


class Row(NamedTuple):
    codes: set[int]
    commands: set[str]
    what: str
    do: str


def rows() -> list[Row]:
    text = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([\d, ]+) \| (.*?) \| (.*?) \| (.*?) ?\|$", text, re.MULTILINE)
    named = [set(COMMANDS) if who == "every command" else {*re.findall(r"`(.*?)`", who)} for _, who, _, _ in found]
    return [
        Row({int(code) for code in codes.split(",")}, who, what, do)
        for (codes, _, what, do), who in zip(found, named, strict=True)
    ]


ROWS = rows()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_table_name_the_same_exit_codes(name: str) -> None:
    documented = {code for row in ROWS if name in row.commands for code in row.codes}
    helped = {int(code) for code in importlib.import_module(module_of(name)).HELP.exits}
    assert documented - ANY == helped - ANY
    assert documented >= ANY


def test_every_command_of_the_table_is_one() -> None:
    assert {name for row in ROWS for name in row.commands} == set(COMMANDS)


def test_each_code_other_than_0_has_its_way_out() -> None:
    assert [row for row in ROWS if row.codes != {0} and not (row.what and row.do)] == []


def test_no_other_page_has_a_table_of_exit_codes() -> None:
    pages = [path for path in DOCS.rglob("*.md") if re.search(r"^ *\| exit code \|", path.read_text("utf-8"), re.M)]
    assert [path.name for path in pages] == []
