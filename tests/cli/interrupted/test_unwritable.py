"""A full disk, an interrupt: a sentence that lists what was written and what was not."""

from __future__ import annotations

import errno
import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from reconciler import written
from reconciler.cli.main import main
from reconciler.core.errors import ExitCode, OutcomeUnknown, Unreachable
from reconciler.places.sqlite.store import SqliteStore
from tests.golden.corpus import HEAD, OFFSETS, Estate, job, stored
from tests.golden.keys import write_key
from tests.golden.world import DESTINATION, World

OTHER = "sqlite:///other.db"
PLANNED = "plan -c reconciler.toml --job clicks -o p.json"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    write_key(tmp_path, "key")
    return world


def run(world: World, line: str) -> Any:
    return world.run(*line.split())


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FILLERS = {
    "plan": (PLANNED, "p.json"),
    "page": ("show old.json --html p.html", "p.html"),
    "signature": ("sign old.json --key key.pem --yes", "old.json.sig"),
    "configuration": (
        f"init --bootstrap-servers {DESTINATION} --alias a --store {OFFSETS} -o made.toml",
        "made.toml",
    ),
    "anchor lines": ("anchors export -c reconciler.toml --job clicks out.jsonl", "out.jsonl"),
    "the hook's plan": ("hook -c reconciler.toml --job ready --plans plans", "plan.json"),
}


@pytest.mark.parametrize(("line", "name"), FILLERS.values(), ids=list(FILLERS))
def test_a_full_disk_is_named_and_leaves_no_part_of_a_file(
    world: World, monkeypatch: pytest.MonkeyPatch, line: str, name: str
) -> None:
    run(world, PLANNED.replace("p.json", "old.json"))
    world.located(to="b")
    (world.folder / "plans").mkdir(exist_ok=True)
    files = world.files()
    monkeypatch.setattr(os, "fsync", full_disk)
    ended = run(world, line)
    assert ended.code == ExitCode.USAGE, ended.err
    assert f"{name} cannot be written: No space left on device. Make room on its disk" in ended.err
    assert world.files() == files


def test_a_full_disk_under_stdout_is_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.cli.commands.plan.run", full_disk)
    monkeypatch.setattr("reconciler.cli.main._drop_stdout", lambda: None)
    ended = run(world, "plan -c reconciler.toml")
    assert ended.code == ExitCode.USAGE
    assert ended.err == (
        "The output cannot be written: No space left on device. Make room on its disk, or choose another place.\n"
    )


# ---------------------------------------------------------------- what was written, and what not


class Full(io.StringIO):
    """A stdout on a disk that gets full after so many lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def write(self, text: str) -> int:
        self._left -= text.count("\n")
        if self._left < 0:
            full_disk()
        return super().write(text)


def run_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, lines: int
) -> tuple[int, list[str]]:
    """The exit code, and the lines on stderr."""
    monkeypatch.setattr("reconciler.cli.main._drop_stdout", lambda: None)
    with redirect_stdout(Full(lines)):
        code = main(line.split())
    return code, capsys.readouterr().err.splitlines()


def test_an_output_that_is_lost_does_not_hide_what_was_written(
    planned: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 2 says else that nothing was written."""
    before = planned.tables("offsets.db")
    line = "apply p.json -c reconciler.toml --yes"
    code, said = run_on_a_full_disk(monkeypatch, capsys, line, lines=9)
    assert planned.tables("offsets.db") != before
    assert code == ExitCode.USAGE
    assert said == [
        "The output cannot be written: No space left on device. Make room on its disk, or choose another place.",
        f"Written: {CLICKS}, {OTHERS}.",
    ]
    assert run(planned, line).code == ExitCode.OK


def test_locations_that_were_recorded_before_the_output_was_lost_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.located()
    line = "move --to b -c reconciler.toml --job ready --job clicks --yes"
    code, said = run_on_a_full_disk(monkeypatch, capsys, line, lines=2)
    assert code == ExitCode.USAGE
    assert said[-1] == 'Written: the location of job "ready", the location of job "clicks".'
    assert run(world, "status -c reconciler.toml").out.count("moves to b") == 2


@pytest.fixture
def planned(world: World) -> World:
    """A plan of two jobs, each with a store of its own."""
    world.store(OTHER, "other", {("events", 0): stored(3)})
    clicks = job("clicks", ["events"], id="none")
    clicks = clicks.replace('name = "clicks"', 'name = "clicks"\nignore_topics = ["older", "ties"]')
    world.file("reconciler.toml", HEAD + clicks + job("other", ["events"], OTHER, "none"))
    world.with_state()
    assert run(world, "plan -c reconciler.toml -o p.json").code == ExitCode.OK
    return world


def breaking(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Let the ``number``-th write to a SQLite store fail."""
    real, calls = SqliteStore.write, []

    def write(self: SqliteStore, *args: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            raise error
        return real(self, *args, **named)

    monkeypatch.setattr(SqliteStore, "write", write)


CLICKS, OTHERS = 'job "clicks" (3 offsets)', 'job "other" (3 offsets)'
AGAIN = "(run this again: it looks first)"


@pytest.mark.parametrize(
    ("number", "error", "code", "said"),
    [
        (1, KeyboardInterrupt(), 130, f"Not known whether written: {CLICKS} {AGAIN}. Not written: {OTHERS}."),
        (2, KeyboardInterrupt(), 130, f"Written: {CLICKS}. Not known whether written: {OTHERS} {AGAIN}."),
        (2, Unreachable("away"), 7, f"Written: {CLICKS}. Not written: {OTHERS}."),
        (1, Unreachable("away"), 7, f"Written: {OTHERS}. Not written: {CLICKS}."),
        (1, OutcomeUnknown("?"), 7, f"Written: {OTHERS}. Not known whether written: {CLICKS} {AGAIN}."),
    ],
)
def test_a_write_that_is_cut_off_names_what_was_written_and_what_was_not(
    planned: World, monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException, code: int, said: str
) -> None:
    breaking(monkeypatch, number, error)
    ended = run(planned, "apply p.json -c reconciler.toml --yes")
    assert ended.code == code
    assert ended.err.endswith(f"{said}\n")


def test_an_interrupt_before_the_first_write_says_that_nothing_was_written(
    planned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reconciler.cli.commands.apply.confirm", interrupted)
    ended = run(planned, "--log-format json apply p.json -c reconciler.toml")
    assert ended.code == 130
    assert '"message": "Interrupted. Nothing was written."' in ended.err


def test_an_error_before_anything_was_to_be_written_says_nothing_of_writes(world: World) -> None:
    assert "ritten" not in run(world, "plan -c nowhere.toml").err
    assert written.is_whole()
