"""The files that the hook keeps of a job's starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.formats import snapshot
from reconciler.hook.kept import KEPT_STARTS, KeptFiles, files, last_correction, note_rollback
from tests.golden.corpus import tracked
from tests.golden.world import World

SECOND = 1_000
ALIKE = ("team/clicks", "team_clicks", "team clicks")


def applied(made: KeptFiles, job: str) -> None:
    made.plan.write_text(json.dumps({"jobs": [{"name": job}]}))
    snapshot.path_for(made.plan).write_text("{}")


@pytest.mark.parametrize("job", ALIKE)
@pytest.mark.parametrize("other", ALIKE)
def test_a_correction_of_a_job_with_a_similar_name_is_another_jobs(tmp_path: Path, job: str, other: str) -> None:
    """A correction makes the job's query begin in a new place; another job's must not."""
    applied(files(tmp_path, other, SECOND), other)
    assert (last_correction(tmp_path, job) != "") is (job == other)


def test_the_starts_of_a_job_with_a_similar_name_stay(tmp_path: Path) -> None:
    theirs = files(tmp_path, "team_clicks", SECOND)
    theirs.plan.write_text("{}")
    for number in range(2, KEPT_STARTS + 5):
        files(tmp_path, "team/clicks", number * SECOND).plan.write_text("{}")
    assert theirs.plan.exists()


def test_a_correction_is_the_last_one_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """By its date the job's query begins in a new place, and reads the offsets that were handed over."""
    dates = []
    for now_ms in (1_000_000_000_999, 999_000_000_000, 1_000_000_000_999, 1_000_000_005_000):
        made = files(tmp_path, "clicks", now_ms)
        applied(made, "clicks")
        dates.append(last_correction(tmp_path, "clicks"))
        assert made.stem.name == f"clicks-{dates[-1]}"
    assert dates == sorted(set(dates))
    assert [each[:19] for each in dates] == [
        "20010909T014640-999",
        "20010909T014641-000",
        "20010909T014641-001",
        "20010909T014645-000",
    ]


def test_a_date_that_is_none_holds_up_no_start(tmp_path: Path) -> None:
    applied(KeptFiles(tmp_path / "clicks-99999999T999999-000-7"), "clicks")
    assert files(tmp_path, "clicks", SECOND).stem.name.startswith("clicks-19700101T000001-000-")


def test_the_plan_of_a_copy_stays_and_begins_no_other_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit needs it. The copy itself is the job's checkpoint from then on."""
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
    assert last_correction(plans, "counts") == ""


# ---------------------------------------------------------------- rollbacks


@pytest.mark.parametrize("job", ALIKE)
@pytest.mark.parametrize("other", ALIKE)
def test_a_rollback_of_a_job_with_a_similar_name_is_another_jobs(tmp_path: Path, job: str, other: str) -> None:
    made = files(tmp_path, other, SECOND)
    applied(made, other)
    note_rollback(made.plan, [other], 2 * SECOND)
    assert last_correction(tmp_path, other).startswith("19700101T000002")
    assert (last_correction(tmp_path, job) != "") is (job == other)


def test_every_rollback_is_later_than_what_was_before_it_though_the_clock_was_set_back(tmp_path: Path) -> None:
    plans, dates = [], []
    for now_ms in (9 * SECOND, 5 * SECOND):
        plans.append(files(tmp_path, "clicks", now_ms))
        applied(plans[-1], "clicks")
        dates.append(last_correction(tmp_path, "clicks"))
    for undone, now_ms in ((plans[1], 4 * SECOND), (plans[0], 3 * SECOND), (plans[0], 3 * SECOND)):
        note_rollback(undone.plan, ["clicks"], now_ms)
        dates.append(last_correction(tmp_path, "clicks"))
    applied(files(tmp_path, "clicks", SECOND), "clicks")
    dates.append(last_correction(tmp_path, "clicks"))
    assert dates == sorted(set(dates))


def test_a_rollback_counts_after_any_number_of_starts(tmp_path: Path) -> None:
    """None of them may have come as far as its query."""
    made = files(tmp_path, "clicks", SECOND)
    applied(made, "clicks")
    note_rollback(made.plan, ["clicks"], 2 * SECOND)
    noted = last_correction(tmp_path, "clicks")
    for number in range(3, 2 * KEPT_STARTS):
        files(tmp_path, "clicks", number * SECOND).plan.write_text("{}")
    assert last_correction(tmp_path, "clicks") == noted
    assert len(list(tmp_path.glob("*.plan.json"))) == KEPT_STARTS + 1, "those, and the plan that was applied"


def test_a_rollback_by_a_link_to_the_plan_counts(tmp_path: Path) -> None:
    (plans := tmp_path / "plans").mkdir()
    made = files(plans, "clicks", SECOND)
    applied(made, "clicks")
    (tmp_path / "last.json").symlink_to(made.plan)
    note_rollback(tmp_path / "last.json", ["clicks"], 2 * SECOND)
    assert last_correction(plans, "clicks").startswith("19700101T000002")


@pytest.mark.parametrize("name", ["clicks.plan.json", "clicks-20260131T060003-000-7.json", "x-1970.plan.json"])
def test_a_rollback_of_a_plan_that_no_hook_made_leaves_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    note_rollback(tmp_path / name, ["clicks"], SECOND)
    assert [each.name for each in tmp_path.iterdir()] == [name]
