"""``anchors export`` and ``import``: rows keep the times that they were written at, and get none that they lacked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.places.registry import open_store
from reconciler.ports import Change
from tests.golden.corpus import HEAD, OFFSETS, job, stored, tracked
from tests.golden.internals import NOW_MS, StoredOffset, TopicPartition
from tests.golden.world import World

MINUTE_MS = 60_000
OTHER = "sqlite:///other.db"
KEY = TopicPartition("events", 0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def moved(world: World, policy: str = "") -> World:
    """The job ``clicks`` with its rows in one store, and with none in another; then exported and imported there."""
    world.file("reconciler.toml", HEAD + policy + job("clicks", ["events"]))
    world.file("other.toml", HEAD + policy + job("clicks", ["events"], store=OTHER))
    for command in ("export -c reconciler.toml rows.jsonl", "import -c other.toml rows.jsonl"):
        ended = world.run("anchors", *command.split())
        assert ended.code == 0, ended.err
    return world


def test_where_a_job_lives_and_its_journal_go_into_another_state_store(world: World) -> None:
    tracked(world, committed=True)
    assert world.run("track", "-c", "reconciler.toml", "--once").code == 0
    world.located(to="b")
    assert world.run("anchors", "export", "-c", "reconciler.toml", "lines.jsonl").code == 0
    text = (world.folder / "reconciler.toml").read_text()
    other = world.file("other.toml", text.replace("state.db", "other.db"))
    assert world.run("init", "-c", other).code == 0
    found = world.run("anchors", "import", "-c", other, "lines.jsonl")
    assert (found.code, found.err) == (0, "4 lines written, 2 existed already.\n"), found.err
    for command in (("status",), ("track", "--once"), ("plan",)):
        one, another = (world.run(*command, "-c", file) for file in ("reconciler.toml", "other.toml"))
        assert (one.code, one.out) == (
            another.code,
            another.out.replace("other.db", "state.db").replace("other.toml", "reconciler.toml"),
        )
    assert world.run("anchors", "import", "-c", other, "lines.jsonl").err == "0 lines written, 6 existed already.\n"
    assert world.run("move", "-c", other, "--cancel", "--yes").code == 0
    ended = world.run(
        "anchors", "import", "-c", "reconciler.toml", stdin=world.run("anchors", "export", "-c", other).out
    )
    assert (ended.code, "Nothing was imported" in ended.err) == (5, True)


def test_a_line_of_a_job_that_was_not_chosen_is_refused(world: World) -> None:
    tracked(world, committed=True)
    text = world.run("anchors", "export", "-c", "reconciler.toml").out.replace('"job": "counts"', '"job": "cuonts"')
    ended = world.run("anchors", "import", "-c", "reconciler.toml", stdin=text)
    assert (ended.code, 'A line is of job "cuonts"' in ended.err) == (2, True)


def test_an_imported_row_without_anchor_and_time_is_not_dated_by_the_import(world: World) -> None:
    """By such a time ``row-time`` would take every record up to the import for processed, and skip those."""
    world.destination.create("a.events", 1)
    for number in range(240):  # one a minute until now; the job had processed half of them
        at_ms = NOW_MS - (240 - number) * MINUTE_MS
        world.destination.partition("a.events", 0).append(at_ms, b"k%d" % number, b"v%d" % number, ())
    store = open_store(OFFSETS)
    store.write("clicks", [Change(KEY, None, StoredOffset(1100), undated=True)], reason="commit", now_ms=NOW_MS)
    moved(world, '[policy]\nno_anchor = "row-time"\n')
    assert [row.stored for row in open_store(OTHER).read("clicks")] == [StoredOffset(1100)]
    ended = world.run("plan", "-c", "other.toml")
    assert (ended.code, "the row's own time is not known" in " ".join(ended.out.split())) == (4, True), ended.out


@pytest.mark.parametrize("text", ["", "\n\n"], ids=["nothing", "blank lines"])
@pytest.mark.parametrize("piped", [True, False], ids=["piped", "a file"])
def test_an_import_of_nothing_is_refused(world: World, text: str, piped: bool) -> None:
    """A filter that matches no line, or an export of a misspelt group, must not look like rows that are in place."""
    world.file("reconciler.toml", HEAD + job("clicks", ["events"]))
    world.file("rows.jsonl", text)
    ended = world.run("anchors", "import", *([] if piped else ["rows.jsonl"]), stdin=text)
    assert ended.code == 2
    assert f"{'stdin' if piped else 'rows.jsonl'} holds no line. Nothing was imported." in ended.err
    assert not (world.folder / "offsets.db").exists()


def test_an_import_of_the_null_device_creates_the_store_and_no_row(world: World) -> None:
    world.file("reconciler.toml", HEAD + job("clicks", ["events"]))
    ended = world.run("anchors", "import", os.devnull)
    assert (ended.code, (world.folder / "offsets.db").exists()) == (0, True), ended.err
    assert world.run("anchors", "export").out == ""


@pytest.mark.parametrize("order", ["-c FILE rows.jsonl", "rows.jsonl -c FILE", "-c FILE --job clicks rows.jsonl"])
def test_the_path_may_stand_where_help_shows_it(world: World, order: str) -> None:
    world.file("reconciler.toml", HEAD + job("clicks", ["events"]))
    world.store(OFFSETS, "clicks", {("events", 0): stored(3)})
    assert world.run("anchors", "export", *order.replace("FILE", "reconciler.toml").split()).code == 0
    assert len(world.read("rows.jsonl").splitlines()) == 1
