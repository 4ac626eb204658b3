"""A move that was killed while its offsets were written: it is finished by its plan, or put back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.failover.writing import moves
from reconciler.failover.writing.moves import StorePlace
from reconciler.places.registry import open_store
from reconciler.ports import TopicPartition
from reconciler.state import locations
from reconciler.state.locations import Phase
from tests.failover.planned import CONFIG, planned
from tests.golden.world import World
from tests.starting import state_of

APPLY = ("apply", "p.json", *CONFIG, "--yes")
CANCEL = ("move", "--cancel", *CONFIG)
HERE, THERE = TopicPartition("events", 0), TopicPartition("a.events", 0)
KILLS: dict[str, tuple[Any, str]] = {
    "before the first offset": (StorePlace, "replace"),
    "after the last offset": (locations, "lives"),
}


class Killed(BaseException):
    """The process is gone."""


def kill(*_: object, **__: object) -> None:
    raise Killed


@pytest.fixture(params=KILLS)
def killed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that was at 706 of its source, whose move to b was killed."""
    world = planned(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(*KILLS[request.param], kill)
        with pytest.raises(Killed):
            world.run(*APPLY)
    assert lives(world)[0] is Phase.WRITING
    return world


def lives(world: World) -> tuple[Phase, str]:
    found = state_of(world.folder / "reconciler.toml", "clicks", "a").location()
    assert found is not None
    return found.phase, found.cluster


def offsets(world: World) -> dict[TopicPartition, int]:
    with closing(open_store(f"sqlite:///{world.folder}/offsets.db")) as store:
        return {row.key: row.stored.offset for row in store.read("clicks")}


HOOK = ("hook", *CONFIG, "--job", "clicks", "--plans", "plans")


@pytest.mark.parametrize("words", [APPLY, HOOK], ids=["apply", "hook"])
def test_the_same_plan_or_the_hook_finishes_it(killed: World, words: tuple[str, ...]) -> None:
    before = offsets(killed)[HERE]
    for _ in range(2):
        ended = killed.run(*words)
        assert ended.code == 0, ended.err
        assert lives(killed) == (Phase.LIVES, "b")
        assert (offsets(killed)[HERE], offsets(killed)[THERE]) == (before, 6)


def test_another_plan_is_refused(killed: World) -> None:
    assert killed.run("plan", *CONFIG, "-o", "q.json").code == 0
    ended = killed.run("apply", "q.json", *CONFIG, "--yes")
    assert ended.code == 5
    assert "are being written by another plan" in ended.err
    assert "reconciler move -c reconciler.toml --cancel --job clicks" in ended.err
    assert lives(killed)[0] is Phase.WRITING


@pytest.mark.parametrize("at", [None, "finish"], ids=["", "killed, and again"])
def test_a_cancel_puts_it_back(killed: World, monkeypatch: pytest.MonkeyPatch, at: str | None) -> None:
    before = offsets(killed)[HERE]
    if at is not None:
        with monkeypatch.context() as patch:
            patch.setattr(moves.moving, at, kill)
            with pytest.raises(Killed):
                killed.run(*CANCEL)
        assert lives(killed)[0] is Phase.WRITING
    ended = killed.run(*CANCEL)
    assert (ended.code, ended.err) == (0, "")
    assert "clicks: lives on a, as before" in ended.out
    assert lives(killed) == (Phase.LIVES, "a")
    assert offsets(killed)[HERE] == before


def test_what_is_being_written_is_shown_as_the_plans(killed: World) -> None:
    """The place is not read: it has some of the plan's offsets, and some of those that it replaces."""
    ended = killed.run("plan", *CONFIG, "--to", "b", "--format", "json")
    assert ended.code in (0, 3), ended.err
    assert '"stored_offset": 6' in ended.out
    assert '"resume_offset": 6' in ended.out
