"""The table fits its width, cuts where it hurts least, and is coloured only where that is wanted."""

from __future__ import annotations

import io
import re

import pytest

from reconciler.cli.table import Cell, render, wants_colour, width

HEADS = ("PARTITION", "OFFSET", "EVIDENCE")
RIGHT = frozenset({1})


def table(*rows: tuple[str, str, str], columns: int = 80, colour: bool = False) -> list[str]:
    cells = [(Cell(name), Cell(offset, "good"), Cell(evidence, "dim")) for name, offset, evidence in rows]
    return render(HEADS, cells, right=RIGHT, columns=columns, colour=colour).split("\n")


def test_columns_stand_under_their_heads() -> None:
    assert table(("a.events-0", "1,200", "id of record 1,199"), ("a.events-11", "7", "id")) == [
        "PARTITION    OFFSET  EVIDENCE",
        "a.events-0    1,200  id of record 1,199",
        "a.events-11       7  id",
    ]


def test_without_rows_only_the_heads_are_shown() -> None:
    assert table() == ["PARTITION  OFFSET  EVIDENCE"]


@pytest.mark.parametrize("columns", range(42, 130, 7))
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    lines = table(("a." + "long" * 20 + "-17", "1,234,567", "a sentence " * 12), columns=columns)
    assert max(map(len, lines)) <= columns
    assert len({line.index("1,234,567") + len("1,234,567") for line in lines[1:]}) == 1


def test_the_last_column_is_cut_first_and_keeps_its_beginning() -> None:
    line = table(("a.events-0", "1", "the anchor is at its own offset"), columns=40)[1]
    assert line.startswith("a.events-0")
    assert line.endswith("…")
    assert "the anchor" in line


def test_a_long_name_keeps_its_end_which_tells_partitions_apart() -> None:
    lines = table(("a." + "x" * 90 + "-17", "1", "id"), ("a." + "x" * 90 + "-18", "1", "id"), columns=50)
    assert [re.search(r"…x+-(\d+)", line)[1] for line in lines[1:]] == ["17", "18"]


def test_a_terminal_narrower_than_any_table_still_gets_one() -> None:
    lines = table(("a.events-0", "1,200", "id of record 1,199"), columns=1)
    assert len(lines) == 2
    assert "1,200" in lines[1]


def test_colours_change_nothing_but_colours() -> None:
    rows = [("a.events-0", "1,200", "id of record 1,199")]
    plain, coloured = table(*rows), table(*rows, colour=True)
    assert plain != coloured
    assert [re.sub(r"\033\[\d*m", "", line).rstrip() for line in coloured] == plain
    assert "\033[32m" in coloured[1]
    assert "\033" not in coloured[0]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(Terminal()) is wanted
    assert wants_colour(io.StringIO()) is False


def test_the_width_is_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    assert width() == 61
