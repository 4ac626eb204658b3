"""What a rollback gives back, and that it refuses once the job has processed anything in its stay."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.commands import rollback
from reconciler.core.anchors import StoredOffset
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition
from reconciler.state.locations import moving
from reconciler.state.stored import Known
from tests.failover.planned import CONFIG, planned
from tests.golden.world import World
from tests.starting import WHO, state_of

BACK = ("rollback", *CONFIG, "--job", "clicks")
AT, HERE, THERE = StreamPartition("events", "a", 0), TopicPartition("events", 0), TopicPartition("a.events", 0)


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that was at 706 on a, and lives on b at 6 by a plan."""
    world = planned(tmp_path, monkeypatch)
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    return world


def state(world: World) -> JobState:
    return state_of(world.folder / "reconciler.toml", "clicks", "a")


def lives(world: World) -> tuple[str, int]:
    here = state(world).location()
    assert here is not None
    return here.cluster, here.stay


def offsets(world: World) -> dict[TopicPartition, int]:
    with closing(open_store(f"sqlite:///{world.folder}/offsets.db")) as store:
        return {row.key: row.stored.offset for row in store.read("clicks")}


def store_offset(world: World, key: TopicPartition, offset: int) -> None:
    """The job stores an offset."""
    with closing(open_store(f"sqlite:///{world.folder}/offsets.db")) as store:
        versions = {row.key: row.version for row in store.read("clicks")}
        change = Change(key, versions.get(key), StoredOffset(offset))
        assert store.write("clicks", [change], reason="job", now_ms=world.now_ms).written


def record(world: World, number: int, *, begun: bool = False) -> None:
    """The job's recorder appends an entry."""
    known = {AT: Known(number, None, processed=not begun)}
    entry = Entry("driver", world.now_ms, {} if begun else known, begun=known if begun else {})
    assert state(world).append_journal(2, 2, entry)


def test_a_rollback_gives_back_what_was_replaced_and_says_what_comes_again(applied: World) -> None:
    record(applied, 6)  # a driver has started, and processed nothing
    shown = applied.run(*BACK)  # nobody answers
    assert (shown.code, lives(applied)) == (2, ("b", 2))
    assert "events-0" in shown.out
    ended = applied.run(*BACK, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert "clicks: lives on a, with the offsets that it had before." in ended.out
    assert lives(applied) == ("a", 3)
    assert offsets(applied)[HERE] == 706
    again = applied.run(*BACK, "--yes")
    assert (again.code, lives(applied)) == (0, ("a", 3))
    assert "nothing to give back; it lives on a with the offsets that were given back" in again.out


def goes_on(world: World) -> None:
    store_offset(world, THERE, 9)


def appears(world: World) -> None:
    store_offset(world, TopicPartition("a.events", 3), 1)


WORK: dict[str, tuple[Any, str]] = {
    "its place": (goes_on, "a.events-0 is at 9 in sqlite:"),
    "a partition without a plan": (appears, "a.events-3 is at 1 in sqlite:"),
    "its journal": (lambda world: record(world, 8), "it has processed partition 0 of events up to 8"),
    "a batch": (
        lambda world: record(world, 8, begun=True),
        "a batch has begun that ends at 8 of partition 0 of events",
    ),
}


@pytest.mark.parametrize("where", WORK)
def test_a_job_that_has_gone_on_is_left_as_it_is(applied: World, where: str) -> None:
    work, sentence = WORK[where]
    work(applied)
    before = offsets(applied)
    ended = applied.run(*BACK, "--yes")
    assert (ended.code, lives(applied), offsets(applied)) == (4, ("b", 2), before)
    assert sentence in ended.out
    assert "Move it instead: reconciler move -c reconciler.toml --to a --job clicks" in ended.out


def test_a_job_that_goes_on_while_a_person_is_asked_is_left_as_it_is(
    applied: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback, "confirm", lambda *_, **__: goes_on(applied))
    assert (applied.run(*BACK).code, lives(applied)) == (4, ("b", 2))


def test_a_correction_where_the_job_lives_goes_back_there_and_counts_what_that_skips(applied: World) -> None:
    store_offset(applied, THERE, 9)
    assert applied.run("hook", *CONFIG, "--job", "clicks", "--plans", "plans", "--set", "a.events:0=4").code == 0
    assert (lives(applied), offsets(applied)[THERE]) == (("b", 3), 4)
    refused = applied.run(*BACK, "--yes")
    assert (refused.code, lives(applied)) == (4, ("b", 3))
    assert "Going back skips up to 5 records" in refused.out
    assert applied.run(*BACK, "--yes", "--accept", "skips").code == 0
    assert (lives(applied), offsets(applied)[THERE]) == (("b", 4), 9)


def test_a_move_that_has_not_ended_is_cancelled_instead(applied: World) -> None:
    here = state(applied).location()
    assert here is not None
    state(applied).move_on(here, moving(here, "a", WHO))
    ended = applied.run(*BACK, "--yes")
    assert ended.code == 4
    assert "Take that back first: reconciler move -c reconciler.toml --cancel --job clicks" in ended.out


def test_a_job_that_was_never_moved_has_nothing_to_give_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = planned(tmp_path, monkeypatch)
    ended = world.run(*BACK, "--yes")
    assert (ended.code, lives(world)) == (0, ("a", 1))
    assert "clicks: nothing to give back; it lives on a by no plan." in ended.out
