"""A plan for jobs of several kinds of stores: apply writes offsets, and copies checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import ExitCode
from tests.golden.corpus import HEAD, OFFSETS, Estate, deliver, job, stored, tracked
from tests.golden.world import World
from tests.starting import with_state

PLAN = ("p.json", "-c", "reconciler.toml")
APPLY = ("apply", *PLAN, "--yes")


@pytest.fixture(params=[True, False], ids=["between batches", "within a batch"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """``counts`` has its offsets in a checkpoint, ``clicks`` in a database; both need correcting."""
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=request.param)
    deliver(world, "a.clicks", range(10))
    world.store(OFFSETS, "clicks", {("clicks", 0): stored(3, topic="clicks")})
    with (tmp_path / "reconciler.toml").open("a") as config:
        config.write(job("clicks", ["clicks"]))
    world.located()
    assert world.run("track", "-c", "reconciler.toml", "--once", "--job", "counts").code == 0
    return world


def test_plan_names_apply_for_every_job(mixed: World) -> None:
    checked = mixed.run("plan", "-c", "reconciler.toml")
    said = " ".join(checked.out.split())
    assert (
        checked.code,
        "Next: reconciler move -c reconciler.toml --to b, then start the jobs by their hooks." in said,
    ) == (3, True)
    made = mixed.run("plan", "-c", "reconciler.toml", "-o", "p.json").out
    assert made.splitlines()[-1] == "Next: reconciler apply p.json -c reconciler.toml"


def test_apply_writes_stores_and_copies_checkpoints(mixed: World) -> None:
    assert mixed.run("plan", "-c", "reconciler.toml", "-o", "p.json").code == 0
    tried = mixed.run("apply", *PLAN, "--dry-run")
    assert (tried.code, "Dry run: 1 offset would be written, nothing was." in tried.out) == (0, True)
    applied = mixed.run(*APPLY)
    assert (applied.code, "1 offset written and read back." in applied.out) == (0, True), applied.err
    assert "counts: 2 offsets to correct, in a copy of its checkpoint." in applied.out
    assert "counts continues in checkpoint-2 when its hook starts it next." in applied.out
    again = mixed.run(*APPLY)
    assert (again.code, again.out.count("this plan was applied before")) == (0, 2)


def test_apply_calls_no_offset_right_of_a_job_that_was_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    away = HEAD + job("ready", ["same", "fresh"]) + job("clicks", ["events"], "sqlite:///nowhere/x.db")
    world.file("reconciler.toml", away)
    with_state(world.folder / "reconciler.toml")
    assert world.run("plan", "-c", "reconciler.toml", "-o", "p.json").code == ExitCode.UNREACHABLE
    ended = world.run("apply", "p.json", "-c", "reconciler.toml", "--yes")
    assert ended.code == ExitCode.NEEDS_PERSON
    assert "clicks: left alone, since it could not be judged when the plan was made" in ended.out
