"""The start after a rollback, on the cluster where the job is: its query does not go on at the undone offsets."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import OutcomeUnknown
from reconciler.places.sqlite.store import SqliteStore
from reconciler.spark.stay_checkpoint import checkpoint_at
from reconciler.state.start import load
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")
RIGHT, WRONG, WORSE = 4, 10, 15


@dataclass(frozen=True)
class Living:
    """A job that lives at the destination, at offset 4 of 20. It has begun a query there, and recorded no batch."""

    world: World

    @property
    def base(self) -> str:
        return str(self.world.folder / "checkpoint")

    def started(self, *decision: str) -> tuple[str, int]:
        """A start through the hook: the checkpoint that the query is given, and the offset, if it is a new query."""
        self.world.now_ms += 1_000
        ended = self.world.run("hook", *CONFIG, "--plans", "plans", *decision)
        assert ended.code == 0, ended.err
        names = dict(line.split("=", 1) for line in ended.out.splitlines())
        path = Path(names["RECONCILER_START"].replace("<TMP>", str(self.world.folder)))
        start = load(path.read_text(), str(path))
        (offset,) = start.offsets.values()
        return checkpoint_at(self.base, start), offset

    def set_to(self, offset: int) -> tuple[str, int]:
        return self.started("--set", f"a.events:0={offset}", "--accept", "skips")

    def roll_back(self, code: int = 0) -> None:
        self.world.now_ms += 1_000
        ended = self.world.run("rollback", *CONFIG, "--job", "clicks", "--yes")
        assert ended.code == code, ended.out


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Living:
    world = World(tmp_path, monkeypatch)
    deliver(world, "a.events", range(20))
    world.store(OFFSETS, "clicks", {("events", 0): stored(RIGHT - 1)})
    world.file("reconciler.toml", HEAD + job("clicks", ["events"], id="none"))
    world.located(to="b")
    living = Living(world)
    assert living.started() == (f"{living.base}-2", RIGHT)
    return living


def test_a_query_does_not_go_on_at_an_offset_that_was_undone(living: Living) -> None:
    assert living.set_to(WRONG) == (f"{living.base}-3", WRONG)
    living.roll_back()
    for _ in range(2):
        assert living.started() == (f"{living.base}-4", RIGHT), "a restart keeps the place"
    assert living.set_to(WRONG) == (f"{living.base}-5", WRONG), "a correction counts as ever"


@pytest.mark.parametrize("kept", [True, False], ids=["an old copy", "a new store in its place"])
def test_a_state_store_that_knows_less_than_the_last_start_starts_nothing(living: Living, kept: bool) -> None:
    store, old = living.world.folder / "state.db", living.world.folder / "old.db"
    shutil.copyfile(store, old)
    assert living.set_to(WRONG) == (f"{living.base}-3", WRONG)
    store.unlink()
    if kept:
        shutil.copyfile(old, store)
    else:
        assert living.world.run("init", *CONFIG).code == 0
    ended = living.world.run("hook", *CONFIG, "--plans", "plans")
    assert ended.code == 4
    knows = "knows it only up to stay 2" if kept else "does not know it"
    assert f"was last started here in stay 3, on b, and sqlite:///<TMP>/state.db {knows}: " in ended.err
    assert "Mount or restore the newest state store." in ended.err


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_rollback_that_is_cut_off_begins_a_new_query_too(
    living: Living, monkeypatch: pytest.MonkeyPatch, is_written: bool, again: bool
) -> None:
    """It may have put the row back. If it has not, the hook does so: the numbers are those of its plan."""
    living.set_to(WRONG)
    write = SqliteStore.write

    def cut_off(self: SqliteStore, *args: Any, **more: Any) -> None:
        if is_written:
            write(self, *args, **more)
        raise OutcomeUnknown("The disk is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "write", cut_off)
        living.roll_back(code=0 if is_written else 7)  # reading back decides
    if again:
        living.roll_back()
    path, offset = living.started()
    assert path not in {f"{living.base}-2", f"{living.base}-3"}
    assert offset == RIGHT
