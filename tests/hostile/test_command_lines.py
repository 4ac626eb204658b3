"""Random command lines and environments: each ends with a sentence and a code of the contract, never as a bug."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from reconciler.cli.main import full_parser
from tests.hostile.estate import CONFIG, Again
from tests.hostile.fuzz import fuzz, sized_for_commands, words

NOT_RUN = {"demo", "audit"}
"""They start servers, or Spark; their command lines are parsed."""
ALWAYS = {
    **{"track": ["--once"], "watch": ["--once"], "drill": ["--temp", "temp"]},
    **{"init": ["--bootstrap-servers", "kafka-b:9092"], "hook": ["--plans", "plans"]},
}
EDGES = ("0001", "1969", "9999", "10000")
GOOD = {
    "--set": ["a.events:0=3", "events:1=0", f"a.events:{'9' * 5_000}=1", f"a.events:0={'9' * 5_000}", "x:٣=²"],
    "--set-time": ["2026-01-31T06:00:00Z", "1700000000000", "9" * 5_000, *(f"{day}-01-01T00:00:00Z" for day in EDGES)],
    **{"--accept": ["skips", "behind", "lost", "new"], "--job": ["clicks", "ready", "stuck"]},
    **{"--format": ["json", "text"]},
    **{"--every": ["1", "nan", "inf", "1e999"], "--wait": ["0", "nan", "-1", "inf", "1e999"]},
    **{"--records": ["5", "0", "-1", "9" * 30], "--to": ["a", "b", "c"]},
    **{"--listen": ["127.0.0.1:0", ":٣", "h:99999"]},
    **{"--client": ["client.id=x", "=", "sasl.password=x"]},
    **{"--store": ["sqlite:///offsets.db", "kafka-group:", "memory:"], "--separator": [".", ""]},
    **{"--policy": ["default"]},
    **{"--key": ["ada.pem"]},
    **{"--plan": ["p.json"]},
    **{"--group": ["clicks"]},
    **{"--config": ["reconciler.toml", ".", "none.toml"], "--since": ["2026-01-31T06:00:00Z"], "--alias": ["a"]},
    **{"--bootstrap-servers": ["kafka-b:9092"], "--source-bootstrap-servers": ["kafka-a:9092"], "--topic": ["events"]},
}  # fmt: skip
PLACES = [
    "p.json",
    "anchors.jsonl",
    "reconciler.toml",
    "new",
    ".",
    "none/x",
    "x" * 300,
    "-",
    "--",
]
ENVIRONMENT = {
    "COLUMNS": ["80", "0", "-1", "9" * 5_000, "٣", "²"],
    "RECONCILER_CONFIG": ["reconciler.toml", "none.toml", "."],
    "RECONCILER_PLANS": ["plans", "p.json"],
    "RECONCILER_KEY_PASSPHRASE": ["secret", ""],
    **{"NO_COLOR": ["1"], "TERM": ["dumb", "x"], "XDG_STATE_HOME": ["state", "p.json"], "LANG": ["C", "tlh"]},
}


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Again:
    return Again(tmp_path, monkeypatch)


def in_this_folder(text: str) -> str:
    """The paths of these tests stay in their folder, and no command line has a login for another host."""
    return text.replace("/", "_").replace("..", "_")


def value(texts: list[str], *, is_path: bool) -> st.SearchStrategy[str]:
    return words(texts, 2).map(in_this_folder) if is_path else words(texts, 2)


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for action in below:
        for word, each in action.choices.items():
            yield from leaves(each, f"{name} {word}".strip())


def option(action: argparse.Action) -> st.SearchStrategy[list[str]]:
    """One option with its value, or one positional."""
    name = action.option_strings[-1] if action.option_strings else ""
    if action.nargs == 0:
        return st.just([name])
    is_path = action.type is Path or name not in GOOD
    drawn = value(GOOD.get(name, PLACES), is_path=is_path)
    if not name:
        return st.lists(drawn, min_size=action.nargs is None, max_size=1)
    return drawn.map(lambda text: [name, text]) | drawn.map(lambda text: [f"{name}={text}"])


def command_lines(*, only_run: bool) -> st.SearchStrategy[list[str]]:
    lines: list[st.SearchStrategy[list[str]]] = []
    for name, parser in leaves(full_parser()):
        if only_run and (name in NOT_RUN or name.split(" ")[0] in NOT_RUN):
            continue
        actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
        options = st.one_of([option(action) for action in actions if action.option_strings])
        positionals = [option(action) for action in actions if not action.option_strings and action.dest != "command"]
        always = st.just(
            [*ALWAYS.get(name, []), *(CONFIG if any("-c" in each.option_strings for each in actions) else ())]
        )
        parts: Any = st.tuples(
            st.just(name.split(" ")), always, *positionals, st.lists(options, max_size=3).map(joined)
        )
        lines.append(parts.map(joined))
    return st.one_of(lines)


def joined(parts: Any) -> list[str]:
    return [word for part in parts for word in part]


ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        name: value(texts, is_path=True).filter(lambda text: len(text) < 9_000) for name, texts in ENVIRONMENT.items()
    },
)


@sized_for_commands
def test_any_command_line_ends_with_a_sentence(again: Again, monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    def claim(drawn: tuple[list[str], dict[str, str]]) -> None:
        line, environ = drawn
        before = dict(os.environ)
        os.environ.update(environ)
        try:
            again.run(line, {})
        finally:
            os.environ.clear()
            os.environ.update(before)

    fuzz(runs, st.tuples(command_lines(only_run=True), ENVIRONMENTS), claim)


@sized_for_commands
def test_any_words_are_a_command_line_or_a_hint(again: Again, runs: int) -> None:
    """Also of the commands that are not run here, and in any order."""
    line = command_lines(only_run=False).flatmap(st.permutations) | st.lists(
        words(["plan", "-c", "--help", "p.json"]), max_size=4
    )

    def claim(line: list[str]) -> None:
        again.run([*line, "--no-such-option"], {})

    fuzz(runs, line.map(lambda found: [word for word in found if word not in ("--", "-h")]), claim)


DIGITS = "9" * 5_000
"""More than Python reads as a number."""


@pytest.mark.parametrize(
    "options",
    [["--set", f"a.events:0={DIGITS}"], ["--set", f"a.events:{DIGITS}=0"], ["--set-time", DIGITS]],
    ids=["offset", "partition", "time"],
)
def test_a_number_of_thousands_of_digits_is_a_usage_error(again: Again, options: list[str]) -> None:
    assert again.run(["plan", *CONFIG, "--job", "clicks", *options], {}).code == 2


@pytest.mark.parametrize("option", ["--output=--", "--set=--", "--job=--", "--config=--"])
def test_two_dashes_are_no_value_of_an_option(again: Again, option: str) -> None:
    assert again.run(["plan", *CONFIG, "-o", "new.json", option], {}).code == 2


@pytest.mark.parametrize("path", ["", "."])
def test_a_plans_path_without_a_name_is_a_usage_error(again: Again, path: str) -> None:
    assert again.run(["plan", *CONFIG, "--job", "clicks", "-o", path], {}).code == 2


def test_columns_of_thousands_of_digits_are_no_width(again: Again) -> None:
    again.world.environ(COLUMNS=DIGITS)
    assert again.run(["show", "p.json"], {}).code == 0
