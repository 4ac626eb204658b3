"""The start of an earlier hook, which a driver that starts again without the hook still finds in its environment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed
from reconciler.formats.start import JobStart
from reconciler.ports import Change, TopicPartition
from reconciler.spark import handoff
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE
from reconciler.stores.registry import open_store
from tests.checkpoints.checkpoint_files import Files
from tests.spark.handoff.test_start import AT_A, AT_B

FIRST, SECOND, THIRD = (f"clicks-20260131T06000{second}-000-7" for second in (0, 1, 2))


class Plans:
    """The hook's folder, which the driver sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(self, name: str, content: str = "") -> None:
        (self.folder / name).write_text(content)

    def start(self, stem: str, start: JobStart) -> None:
        self.add(f"{stem}.start.json", start.to_text())

    def begin(self, stem: str, **more: str) -> handoff.Handoff:
        file, clusters = str(self.folder / f"{stem}.start.json"), "kafka-a:9092 kafka-b:9092"
        names = {handoff.START_VARIABLE: file, "RECONCILER_BOOTSTRAP_SERVERS": clusters}
        return handoff.from_environment(environ={**names, **more})


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    """The job has started at the source, and nothing has happened since."""
    found = Plans(tmp_path / "plans")
    found.start(FIRST, AT_A)
    return found


def test_the_newest_start_is_good_and_files_before_it_or_of_other_jobs_do_not_count(
    plans: Plans, caplog: pytest.LogCaptureFixture
) -> None:
    plans.add("clicks-20260131T055959-000-7.plan.json.applied.json")
    plans.add("clicks-eu-20260131T060009-000-7.rollback.json")
    plans.add(f"{THIRD}.plan.json")
    assert plans.begin(FIRST).start == AT_A
    assert not caplog.records


CHANGES: dict[str, Callable[[Plans], None]] = {
    "a correction": lambda plans: plans.add(f"{SECOND}.plan.json.applied.json"),
    "a corrected copy of its checkpoint": lambda plans: plans.add(f"{SECOND}.plan.json.copied"),
    "a rollback": lambda plans: plans.add(f"{SECOND}.rollback.json"),
    "a start at the destination": lambda plans: plans.start(SECOND, AT_B),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_start_before_a_move_a_correction_or_a_rollback_is_refused(plans: Plans, what: str) -> None:
    CHANGES[what](plans)
    for kept_in in ({}, {CHECKPOINT_VARIABLE: "/c"}):
        with pytest.raises(Changed, match=rf"an earlier one of job clicks: {what} came after it.* hook` again"):
            plans.begin(FIRST, **kept_in)


@pytest.fixture
def old(plans: Plans, tmp_path: Path) -> dict[str, Plans]:
    """Starts whose offsets are old, by the reason: none of them shows that the job has left its cluster."""
    expired, gone_on = Plans(tmp_path / "expired"), Plans(tmp_path / "gone-on")
    expired.start(FIRST, replace(AT_A, expires_at="2026-02-01T06:00:00Z"))
    place = f"sqlite:///{tmp_path}/offsets.db"
    store = open_store(place)
    store.create()
    store.write("clicks", [Change(TopicPartition("events", 1), None, StoredOffset(9))], reason="test", now_ms=1)
    gone_on.start(FIRST, replace(AT_A, rows_in=place))
    plans.start(SECOND, AT_A)
    return {
        f"a later start of the job is {SECOND}.start.json": plans,
        "it was good until 2026-02-01T06:00:00Z": expired,
        "its offset of events-1 is 7, and the store has 9": gone_on,
    }


def test_at_old_offsets_no_query_begins_and_one_that_has_begun_goes_on(
    old: dict[str, Plans], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (why, plans) in enumerate(old.items()):
        caplog.clear()
        start, base = plans.begin(FIRST), tmp_path / f"query-{number}"
        assert f"is old: {why}" in caplog.text
        assert "continues its checkpoint does not use its offsets" in caplog.text
        with pytest.raises(Changed, match=r"No query of job clicks has begun yet, and its start is old.* hook` again"):
            start.checkpoint(base)
        assert not base.exists()
        Files(base).planned(0, {"events": {1: 7}})
        assert start.checkpoint(base) == str(base)


def test_what_the_driver_does_not_see_is_not_compared(old: dict[str, Plans], tmp_path: Path) -> None:
    """The start was shipped to a machine that has neither the folder nor the store."""
    (tmp_path / "offsets.db").unlink()
    for number, plans in enumerate(old.values()):
        shipped = Plans(tmp_path / f"shipped-{number}")
        shutil.copy(plans.folder / f"{FIRST}.start.json", shipped.folder / "x.start.json")
        assert bool(shipped.begin("x").old) == ("expired" in plans.folder.name)
