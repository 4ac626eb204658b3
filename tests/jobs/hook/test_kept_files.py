"""The files that the hook keeps of a job's starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.jobs.hook.kept import KEPT_STARTS, files, folder
from tests.golden.corpus import tracked
from tests.golden.world import World

SECOND = 1_000


def test_the_starts_of_a_job_with_a_similar_name_stay(tmp_path: Path) -> None:
    theirs = files(tmp_path, "team_clicks", SECOND)
    theirs.plan.write_text("{}")
    for number in range(2, KEPT_STARTS + 5):
        files(tmp_path, "team/clicks", number * SECOND).plan.write_text("{}")
    assert theirs.plan.exists()


def test_the_plan_of_a_copy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit needs it."""
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=True)
    assert world.run("track", "-c", "reconciler.toml", "--once").code == 0
    world.located(to="b")
    for _ in range(2):
        assert world.run("hook", "-c", "reconciler.toml", "--plans", "plans").code == 0
        world.now_ms += SECOND
    plans = tmp_path / "plans"
    made, later = sorted(plans.glob("*.plan.json"))
    for number in range(KEPT_STARTS):
        files(plans, "counts", world.now_ms + number * SECOND).plan.write_text("{}")
    assert (made.exists(), later.exists()) == (True, False)


# ---------------------------------------------------------------- the folder of plans


def test_the_folder_of_plans_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = folder(tmp_path / "state" / "plans")
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o702])
def test_a_folder_of_plans_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    plans.chmod(mode)
    with pytest.raises(ConfigError, match=r"writable by other users.*chmod 700"):
        folder(plans)
