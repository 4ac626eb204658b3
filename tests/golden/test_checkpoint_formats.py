"""A query's checkpoint: what is tracked of it, its plan, and its copy, file by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.compare import Goldens
from tests.golden.corpus import tracked
from tests.golden.masks import details, without_digest, without_words
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")


@pytest.fixture
def committed(world: World) -> World:
    tracked(world, committed=True)
    assert world.run("track", *CONFIG, "--once").code == 0
    return world


@pytest.fixture
def stopped(world: World) -> World:
    """The query was stopped within its last batch."""
    tracked(world, committed=False)
    assert world.run("track", *CONFIG, "--once").code == 0
    return world


@pytest.mark.parametrize("of", ["committed", "stopped"])
def test_a_checkpoint_as_json(of: str, request: pytest.FixtureRequest, goldens: Goldens) -> None:
    world: World = request.getfixturevalue(of)
    found = world.run("checkpoint", "show", "checkpoint", "--format", "json")
    assert found.code == 0
    goldens.check(f"formats/checkpoint/show-{of}.json", found.out)


@pytest.mark.parametrize(("of", "rows"), [("committed", 2), ("stopped", 4)])
def test_a_checkpoints_plan_and_copy(of: str, rows: int, request: pytest.FixtureRequest, goldens: Goldens) -> None:
    """Where the query was stopped within a batch, the plan has a start and an end of each partition."""
    world: World = request.getfixturevalue(of)
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 0
    plan = world.read("p.json")
    assert plan.count('"position"') == rows
    world.located()
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    goldens.check(f"formats/plan/checkpoint-{of}.json", without_words(plan))
    goldens.check(f"words/details-checkpoint-{of}.txt", details(plan))
    goldens.check(f"formats/checkpoint/clone-{of}.txt", without_words(world.files("checkpoint-2")))


def test_a_hook_hands_over_the_copy(committed: World, goldens: Goldens) -> None:
    committed.located(to="b")
    found = committed.run("hook", *CONFIG, "--plans", "plans")
    assert found.code == 0
    goldens.check("formats/hook/checkpoint.env", without_digest(found.out))


def test_a_hooks_plan_has_the_positions_that_plan_writes(stopped: World) -> None:
    """And the command finds the starts: Spark knows no ends, and goes by the copy."""
    assert stopped.run("plan", *CONFIG, "-o", "p.json").code == 0
    stopped.located(to="b")
    found = stopped.run("hook", *CONFIG, "--plans", "plans")
    assert found.code == 0
    names = dict(line.split("=", 1) for line in found.out.replace("<TMP>", str(stopped.folder)).splitlines())
    jobs = json.loads(Path(names["RECONCILER_PLAN"]).read_text())["jobs"]
    assert jobs == json.loads(stopped.read("p.json"))["jobs"]
    (job,) = jobs
    rows = job["partitions"]
    assert [row["position"] for row in rows] == ["start", "end"] * 2
    starts = {str(row["partition"]): row["resume_offset"] for row in rows if row["position"] == "start"}
    offsets = json.loads(Path(names["RECONCILER_STARTING_OFFSETS"]).read_text())
    assert list(offsets.values()) == [starts]
    assert json.loads(Path(names["RECONCILER_START"]).read_text())["offsets"] == offsets
