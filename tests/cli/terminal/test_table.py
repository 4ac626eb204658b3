"""The table fits its width, cuts where it hurts least, and is coloured only where that is wanted."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

import pytest

from reconciler.cli.terminal.output import UNLIMITED, columns_of, cut, fold, wants_colour, width
from reconciler.cli.terminal.table import Cell, render

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


@pytest.mark.parametrize("columns", range(42, 130, 7))
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    lines = table(("a." + "long" * 20 + "-17", "1,234,567", "a sentence " * 12), columns=columns)
    assert max(map(len, lines)) <= columns
    assert "1,234,567" in lines[1]
    lines = [line for line in lines if "1,234,567" in line]
    assert len({line.index("1,234,567") + len("1,234,567") for line in lines}) == 1


def test_the_last_column_is_cut_first_and_keeps_its_beginning() -> None:
    line = table(("a.events-0", "1", "the anchor is at its own offset"), columns=40)[1]
    assert line.startswith("a.events-0")
    assert line.endswith("…")
    assert "the anchor" in line


def test_a_text_that_is_cut_stands_below_the_table_once_for_all_its_rows() -> None:
    why = "none of the 10 records read has the header: check [jobs.identity] id"
    rows = [("a.events-0", "1", why), ("a.events-1", "2", "id of record 1"), ("a.events-2", "3", why)]
    lines = table(*rows, columns=50)
    assert lines[4:] == [
        "  a.events-0, a.events-2: none of the 10 records",
        "    read has the header: check [jobs.identity] id",
    ]
    cells = [tuple(map(Cell, row)) for row in rows]
    told = render(HEADS, cells, right=RIGHT, columns=50, colour=False, printed={why}).split("\n")
    assert told == lines[:4]
    many = table(*((f"a.events-{n}", "1", f"{n}, {why}") for n in range(21)), columns=50)
    assert many[-1] == "(cut; COLUMNS=93 shows all)"
    assert "a.events-19: 19, none" in "\n".join(many)
    assert "a.events-20: " not in "\n".join(many)


def test_a_long_name_keeps_its_end_which_tells_partitions_apart() -> None:
    lines = table(("a." + "x" * 90 + "-17", "1", "id"), ("a." + "x" * 90 + "-18", "1", "id"), columns=50)
    assert [re.search(r"…x+-(\d+)", line)[1] for line in lines[1:3]] == ["17", "18"]
    assert lines[3] == "(cut; COLUMNS=113 shows all)"
    shown = table(("a." + "x" * 90 + "-17", "1", "id"), ("a." + "x" * 90 + "-18", "1", "id"), columns=113)
    assert "cut" not in shown[-1]
    assert all("a." + "x" * 90 in line for line in shown[1:])


def test_a_terminal_narrower_than_any_table_still_gets_one() -> None:
    lines = table(("a.events-0", "1,200", "id of record 1,199"), columns=1)
    assert "1,200" in lines[1]


def test_colours_change_nothing_but_colours() -> None:
    rows = [("a.events-0", "1,200", "id of record 1,199")]
    plain, coloured = table(*rows), table(*rows, colour=True)
    assert plain != coloured
    assert [re.sub(r"\033\[\d*m", "", line).rstrip() for line in coloured] == plain
    assert "\033[32m" in coloured[1]
    assert "\033" not in coloured[0]


def test_what_has_no_room_goes_below_its_row_and_is_whole_there() -> None:
    heads = ("PARTITION", "RESUME", "READ", "ITS TIME", "FOUND")
    row = tuple(map(Cell, ("a.events-0", "1,234,567,890", "100", "2026-11-22T00:49:43Z", "behind 1,234,567,889")))
    lines = render(heads, [row], right=frozenset({1, 2}), columns=50, colour=False).split("\n")
    assert lines == [
        "PARTITION          RESUME  READ",
        "a.events-0  1,234,567,890   100",
        "  its time 2026-11-22T00:49:43Z · found behind",
        "  1,234,567,889",
    ]


@pytest.mark.parametrize(
    ("name", "columns"),
    [("a.events-0", 10), ("a.中文-0", 8), ("a.ｆ-0", 6), ("e\u0301e\u0301-0", 4), ("שלום-0", 6), ("🚀-0", 4)],
)
def test_a_name_takes_the_columns_that_a_terminal_gives_it(name: str, columns: int) -> None:
    assert columns_of(name) == columns
    rows = [(Cell(name), Cell("1"), Cell("id")), (Cell("a.events-of-all-kinds-0"), Cell("1"), Cell("id"))]
    lines = render(HEADS, rows, right=RIGHT, columns=80, colour=False).split("\n")
    assert len({columns_of(line[: line.index("  id")]) for line in lines[1:]}) == 1


@pytest.mark.parametrize("keep_end", [True, False])
@pytest.mark.parametrize("columns", range(2, 12))
def test_a_cut_is_never_wider_than_asked_and_splits_no_character(columns: int, keep_end: bool) -> None:
    shown = cut("中文e\u0301中文e\u0301", columns, keep_end=keep_end)
    assert columns_of(shown) <= columns
    assert not shown.lstrip("…").startswith("\u0301")


HOSTILE = "a\x1b[2J\x9b1m\nb\r\x07\u202ec\u200b\u2028\ud800\x00"


def test_nothing_in_a_cell_is_obeyed_by_a_terminal() -> None:
    (line,) = render(HEADS, [(Cell(HOSTILE), Cell("1"), Cell(HOSTILE))], right=RIGHT, columns=200, colour=False).split(
        "\n"
    )[1:]
    assert line.startswith(r"a\x1b[2J\x9b1m\x0ab\x0d\x07\u202ec\u200b\u2028\ud800\x00 ")
    assert line.isprintable()


def test_a_sentence_is_folded_between_words_and_a_long_path_stays_whole() -> None:
    path = "/srv/" + "long/" * 12 + "plan.json"
    lines = fold(f"  The plan is at {path} and good until four", 40, indent="    ").split("\n")
    assert lines == ["  The plan is at", f"    {path}", "    and good until four"]


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
    monkeypatch.delenv("COLUMNS")
    assert width(io.StringIO()) == UNLIMITED  # a file, a pipe, a journal: nothing is cut
    assert width(Terminal()) == 80  # a terminal that does not say its size
    controlling, its_end = pty.openpty()
    try:
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 93, 0, 0))
        with open(its_end, "w", closefd=False) as terminal:
            assert width(terminal) == 93
    finally:
        os.close(controlling)
        os.close(its_end)


def test_without_a_terminal_every_line_is_whole() -> None:
    name, sentence = "a." + "long" * 40 + "-17", "a sentence " * 40
    lines = table((name, "1", sentence), columns=UNLIMITED)
    assert len(lines) == 2
    assert lines[1].startswith(name)
    assert lines[1].endswith(sentence)
