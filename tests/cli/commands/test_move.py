"""``move``: what it says of each job, and what it records. The clusters are in memory."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.cli.commands import move
from reconciler.failover.writing import moves
from reconciler.ports import TopicPartition
from tests.cli.commands.moving import Moving, moving
from tests.golden.corpus import OFFSETS, deliver, job, stored
from tests.golden.world import DESTINATION, SOURCE

__all__ = ["moving"]

LINES = {
    "exact": (0, "exact: starts exactly"),
    "early": (0, "early: starts early, at most 2 records again"),
    "behind": (0, "the mirror"),
    "bare": (4, "bare: must not start on b: a.bare-0 (unresolved): "),
    "broken": (6, "broken.db is not a SQLite file."),
}


@pytest.mark.parametrize("name", LINES)
def test_of_each_job_one_line_says_how_it_starts_there(moving: Moving, name: str) -> None:
    """Only a job that may start there, or that only waits for the mirror, is recorded as moving."""
    code, said = LINES[name]
    if name != "broken":
        moving.at_home(*([name] if name != "bare" else []))
    ended = moving.run("move --to b --yes", "--job", name)
    first = (ended.out or ended.err).splitlines()[0]
    assert (ended.code, said in first) == (code, True), ended.out + ended.err
    assert ("is behind in 1 partition" in first) is (name == "behind")
    assert ("moves to b" in moving.status(name)) is (code == 0)


def test_jobs_that_may_go_go_without_the_others(moving: Moving) -> None:
    ended = moving.run("move --to b --yes")
    assert ended.code == 4, "one must not start"
    assert [line.partition(":")[0] for line in ended.out.splitlines()][:5] == list(LINES)
    assert "broken: not checked. " in ended.out
    shown = moving.run("status").out
    assert [line.split()[0] for line in shown.splitlines() if "moves to b" in line] == ["exact", "early", "behind"]


def test_it_asks_and_a_no_records_nothing(moving: Moving) -> None:
    moving.at_home()
    before = moving.status()
    ended = moving.run("move --to b --job exact")
    assert (ended.code, "Add --yes." in ended.err) == (2, True)
    assert moving.status() == before
    assert moving.run("move --to c --yes").code == 2


def test_one_command_accepts_all_that_stops_a_job(moving: Moving) -> None:
    world, text = moving.world, moving.world.read("reconciler.toml")
    world.store(OFFSETS, "two", {(each, 0): stored(6, base=0, by="time", topic=each) for each in ("exact", "early")})
    text = text.replace('behind = "wait"', "max_replay = 1")
    world.file("reconciler.toml", text + job("two", ["exact", "early"], id="none"))
    world.destination.partition("a.exact", 0).delete_before(12)
    refused = moving.run("move --to b --yes --job two")
    assert (refused.code, "a.exact-0 (lost): " in refused.out) == (4, True), refused.out
    assert "(also 1 early)" in refused.out
    *_, accepting = refused.out.splitlines()
    said, _, command = accepting.partition(": reconciler ")
    assert said == "To accept what was found"
    assert command == "move -c reconciler.toml --to b --job two --accept early --accept lost"
    assert world.run(*command.split(), "--yes").code == 0


def test_details_are_the_partitions(moving: Moving) -> None:
    ended = moving.run("move --to b --details --yes --job exact")
    assert "a.exact-0" in ended.out


def test_a_job_that_is_moving_is_not_moved_twice(moving: Moving) -> None:
    moving.run("move --to b --yes --job exact")
    again = moving.run("move --to b --yes --job exact")
    assert (again.code, again.out.startswith("exact: is moving to b already, by ada@ops-1 since 2027-")) == (0, True)
    back = moving.run("move --to a --yes --job exact")
    assert back.code == 4
    assert "reconciler move -c reconciler.toml --cancel --job exact" in back.out
    assert "moves to b" in moving.status()


def test_where_a_job_lives_already_nothing_is_recorded(moving: Moving) -> None:
    moving.at_home()
    before = moving.run("status --history").out
    ended = moving.run("move --to a --yes --job exact")
    assert (ended.code, ended.out) == (0, "exact: lives on a already, and starts exactly\n")
    assert moving.run("status --history").out == before


def test_where_its_topic_was_made_anew_a_job_moves_to_where_it_lives(moving: Moving) -> None:
    moving.run("move --to b --yes --job exact")
    assert moving.start().offsets == {TopicPartition("a.exact", 0): 5}
    moving.world.destination.create("a.exact", 1, "another id")
    deliver(moving.world, "a.exact", range(20))
    ended = moving.run("move --to b --yes --job exact")
    assert (ended.code, "exact: starts early, at most 1 record again" in ended.out) == (0, True), ended.out
    start = moving.start()
    assert (start.bootstrap_servers, start.offsets) == (DESTINATION, {TopicPartition("a.exact", 0): 7})
    assert moving.status().startswith("exact b 3 ")


# ---------------------------------------------------------------- jobs of which the store knows nothing


def test_a_job_that_has_run_before_is_adopted_at_home(moving: Moving) -> None:
    """Its place holds numbers, and nothing says whose: its hook does not guess."""
    refused = moving.hook()
    assert (refused.code, "--to a --job exact" in refused.err) == (4, True), refused.err
    ended = moving.run("move --to a --yes --job exact")
    assert (ended.code, "exact: lives on a, its home, from now on: starts exactly" in ended.out) == (0, True)
    start = moving.start()
    assert (start.bootstrap_servers, start.offsets) == (SOURCE, {TopicPartition("exact", 0): 7})


def test_a_jobs_bare_numbers_are_adopted_at_home_and_called_unchecked(moving: Moving) -> None:
    """Nothing can be proven of them, and the job runs on them as it always has."""
    ended = moving.run("move --to a --yes --job bare")
    words = "bare: lives on a, its home, from now on: starts as stored; 1 offset without an anchor not checked"
    assert (ended.code, words in ended.out) == (0, True), ended.out
    assert moving.start("bare").bootstrap_servers == SOURCE


def test_a_job_whose_unread_records_are_gone_at_home_is_not_adopted(moving: Moving) -> None:
    moving.world.source.partition("exact", 0).delete_before(12)
    ended = moving.run("move --to a --yes --job exact")
    assert (ended.code, "exact: must not start on a: exact-0 (lost): " in ended.out) == (4, True), ended.out
    assert "not recorded" in moving.status()


def test_a_job_that_was_never_placed_may_move_at_once(moving: Moving) -> None:
    """Its home is lost before anybody has said that it lives there."""
    assert moving.run("move --to b --yes --job exact").code == 0
    start = moving.start()
    assert (start.bootstrap_servers, start.offsets) == (DESTINATION, {TopicPartition("a.exact", 0): 5})


# ---------------------------------------------------------------- taken back


def test_a_cancel_in_each_phase(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    assert moving.run("move --cancel --job exact").out.startswith("exact: is not moving; ")
    moving.at_home()
    assert moving.run("move --cancel --job exact").out == "exact: is not moving; it lives on a\n"

    moving.run("move --to b --yes --job exact")
    ended = moving.run("move --cancel --job exact")
    assert (ended.code, ended.out) == (0, "exact: lives on a, as before\n")
    assert moving.start().bootstrap_servers == SOURCE

    moving.run("move --to b --yes --job exact")
    moving.cut_off(monkeypatch)
    for command in ("move --to b --yes --job exact", "move --to a --yes --job exact"):
        ended = moving.run(command)
        assert (ended.code, "start its hook, which finishes that" in ended.out) == (4, True), ended.out
    ended = moving.run("move --cancel --job exact")
    assert (ended.code, ended.out) == (0, "exact: lives on a, as before\n"), "its numbers are put back"
    assert moving.start().bootstrap_servers == SOURCE

    moving.run("move --to b --yes --job exact")
    moving.cut_off(monkeypatch)
    assert moving.start().bootstrap_servers == DESTINATION, "the hook finishes it"

    moving.run("move --to a --yes --job exact")
    assert moving.run("move --cancel --job exact").out == "exact: lives on b, as before\n"
    assert moving.start().bootstrap_servers == DESTINATION, "still by its plan: it is checked there"


# ---------------------------------------------------------------- two operators


@pytest.mark.parametrize("placed", [True, False])
def test_of_two_operators_at_once_one_is_refused(moving: Moving, monkeypatch: pytest.MonkeyPatch, placed: bool) -> None:
    if placed:
        moving.at_home()
    asked = move.confirm

    def meanwhile(question: str, *, yes: bool) -> None:
        monkeypatch.setattr(move, "confirm", asked)
        assert moving.run("move --to b --yes --job exact").code == 0

    monkeypatch.setattr(move, "confirm", meanwhile)
    ended = moving.run("move --to b --yes --job exact")
    assert (ended.code, "exact: not recorded. Somebody else has moved the job" in ended.out) == (5, True), ended.out
    assert "Restart" not in ended.out
    assert moving.run("status --history --job exact").out.count(" moving ") == 1


def test_a_hook_whose_job_was_taken_back_meanwhile_writes_nothing(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.at_home()
    moving.run("move --to b --yes --job exact")
    before, begin = moving.world.tables("offsets.db"), moves.begin

    def meanwhile(*args: Any, **more: Any) -> object:
        assert moving.run("move --cancel --job exact").code == 0
        return begin(*args, **more)

    monkeypatch.setattr(moves, "begin", meanwhile)
    ended = moving.hook()
    assert ended.code == 5, ended.err
    assert moving.world.tables("offsets.db") == before
    assert moving.status().endswith("on a")
