"""``job(config, name)``: a job that does the hook's work in its own process. Its clusters are in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.ports import TopicPartition
from reconciler.spark import job
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase
from reconciler.state.store import open_state
from tests.golden.corpus import Estate, tracked
from tests.golden.world import World

CONFIG = "reconciler.toml"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def state(name: str) -> JobState:
    return JobState(open_state("sqlite:///state.db"), name)


def test_a_first_start_is_at_home_and_is_recorded(world: World) -> None:
    tracked(world, committed=True)
    text = Path(CONFIG).read_text().replace("checkpoint:checkpoint", "checkpoint:new")
    world.file(CONFIG, text.replace("/state.db", "/first.db"))
    open_state("sqlite:///first.db").create()
    counts = job(CONFIG, "counts")
    assert (counts.start.cluster, counts.start.stay, counts.start.offsets) == ("a", 1, {})
    assert counts.checkpoint == str(world.folder / "new")
    assert [(each.phase, each.cluster) for each in counts.state.history()] == [(Phase.LIVES, "a")]


def test_a_job_that_is_moving_starts_where_it_moves_to_and_lives_there_at_its_next_start(world: World) -> None:
    tracked(world, committed=True)
    assert world.run("track", "-c", CONFIG, "--once").code == 0
    world.located(to="b")
    for _ in range(2):
        world.now_ms += 60_000
        counts = job(CONFIG, "counts", plans=world.folder / "plans")
        assert (counts.start.cluster, counts.start.stay) == ("b", 2)
        assert counts.start.offsets == {TopicPartition("a.events", 0): 4, TopicPartition("a.events", 1): 5}
        assert counts.checkpoint == str(world.folder / "checkpoint-2")
        assert list((world.folder / "plans").glob("*.plan.json"))
    here = state("counts").location()
    assert here is not None
    assert (here.phase, here.cluster, here.why) == (Phase.LIVES, "b", "job()")


def test_a_job_that_must_not_start_says_why_and_stays_where_it_is(world: World) -> None:
    Estate(world)
    world.located(to="b")
    with pytest.raises(NeedsPerson) as stopped:
        job(CONFIG, "stuck")
    assert 'Job "stuck" must not start: a partition needs a decision. a.cut-0 must not start: ' in str(stopped.value)
    assert 'the destination has no topic "a.gone". Correct the job' in str(stopped.value)
    assert f"Plan: {world.folder}" in str(stopped.value)
    here = state("stuck").location()
    assert here is not None
    assert (here.phase, here.cluster) == (Phase.MOVING, "a")


def test_a_job_without_a_name_or_with_a_wait_that_is_none_is_refused(world: World) -> None:
    tracked(world, committed=True)
    world.located()
    with pytest.raises(ConfigError, match="Name the job"):
        job(CONFIG)
    with pytest.raises(ConfigError, match="wait -1 is not a number of seconds"):
        job(CONFIG, "counts", wait=-1)


def test_a_job_that_a_hook_started_loads_nothing_of_the_hook_or_of_the_command_line(world: World) -> None:
    tracked(world, committed=True)
    world.located()
    lines = world.run("hook", "-c", CONFIG).out.replace("<TMP>", str(world.folder)).splitlines()
    program = "import sys; from reconciler.spark import job; job(); print(*sys.modules)"
    env = os.environ | dict(line.split("=", 1) for line in lines)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    loaded = set(ended.stdout.split())
    assert "reconciler.spark.started" in loaded
    assert not loaded & {"reconciler.jobs.hook", "reconciler.cli", "reconciler.failover"}
