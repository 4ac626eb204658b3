"""Reconcilers that write at the same moment: one content wins whole, and each says what became of its own."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed
from reconciler.failover.writing.apply import prepare, write
from reconciler.formats.plan import parse_plan
from tests.failover.killed import BEGIN, LOCK, RENAMED, TEMPORARY, Driver, Outcome, Rows, committed, table
from tests.starting import with_state
from tests.world import World, source_record

pytestmark = pytest.mark.system

AGAIN = "Look at what changed, then make a new plan."
PARTITIONS = 3


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("together")) as driver:
        yield driver


class Contested:
    """Rows that several plans are about: in a file under the source's name, or in a group as MirrorMaker left them."""

    def __init__(self, world: World, store: str) -> None:
        self.world = world
        self.in_group = store == "kafka-group:"
        world.deliver(*[9] * PARTITIONS)
        if self.in_group:
            world.address = store
            synced = {number: StoredOffset(1, source_record(4, number).anchor) for number in range(PARTITIONS)}
            world.save(synced, topic=world.mirrored)
        else:
            world.processed(*[4] * PARTITIONS)
            # It has been here before: there is something to replace.
            world.save({1: StoredOffset(2, Anchor(1, cluster_id="the cluster before"), 1)}, topic=world.mirrored)
        self.config = world.config()
        self.before = self.bytes()

    def bytes(self) -> Rows:
        if self.in_group:
            return committed(self.world.cluster, self.world.group)
        return table(self.world.folder / "offsets.db")

    def plan(self, name: str, *offsets: int, config: Path | None = None) -> Path:
        """A plan of that name; with offsets, a person's: it differs in every row. ``config``: another than the usual"""
        path = self.world.folder / name / "failover.plan.json"
        path.parent.mkdir()
        by_hand = [
            word for number, at in enumerate(offsets) for word in ("--set", f"{self.world.mirrored}:{number}={at}")
        ]
        ended = self.world.run("plan", "-c", config or self.config, "-o", path, *by_hand)
        assert ended.code == 0, ended.output
        return path

    def copy(self, plan: Path, name: str) -> Path:
        """The same plan on another machine: with a snapshot of its own."""
        path = self.world.folder / name / plan.name
        path.parent.mkdir()
        shutil.copy(plan, path)
        return path

    def apply(self, plan: Path) -> tuple[object, ...]:
        return ("apply", plan, "-c", self.config, "--yes")

    def undo(self, plan: Path) -> None:
        """Roll it back, and forget all snapshots: the next round begins as this one did."""
        # One row that goes back was ahead of the plan's offset.
        ended = self.world.run("rollback", plan, "-c", self.config, "--yes", "--accept", "skips")
        assert ended.code == 0, ended.output
        assert self.bytes() == self.before
        for snapshot in self.world.folder.glob("*/*.applied.json"):
            snapshot.unlink()


@pytest.fixture(params=["sqlite", "kafka-group:"])
def contested(world: World, request: pytest.FixtureRequest) -> Contested:
    return Contested(world, request.param)


@pytest.fixture
def in_a_file(world: World) -> Contested:
    return Contested(world, "sqlite")


def targets(plan: Path) -> dict[int, int]:
    """The offsets to write."""
    (job,) = json.loads(plan.read_text())["jobs"]
    return {row["partition"]: row["resume_offset"] for row in job["partitions"]}


def is_true(outcome: Outcome) -> None:
    """Check what a process reports of its own writing; the caller checks that it won."""
    if outcome.code == 0:
        assert f"{PARTITIONS} offsets written and read back" in outcome.out or "was applied before" in outcome.out
    elif outcome.code == 5:
        assert "Nothing was written." in outcome.err or "has moved on since the plan" in outcome.err
        assert AGAIN in outcome.err
    else:
        assert outcome.code == 7, outcome.output
        assert "again" in outcome.err


def codes(outcomes: Sequence[Outcome]) -> Counter[int]:
    for outcome in outcomes:
        is_true(outcome)
    return Counter(outcome.code for outcome in outcomes)


def snapshot_is_of_before(contested: Contested, plan: Path) -> None:
    """Looked at without the product."""
    kept = json.loads(plan.with_name(plan.name + ".applied.json").read_text())["rows"]
    assert len(kept) == PARTITIONS
    store = "kafka" if contested.in_group else "offsets.db"
    for row in kept:
        after = row["after"]["line"]
        there = contested.before.get((store, after["topic"], after["partition"]))
        before = row["before"] and row["before"]["line"]["stored_offset"]
        assert before == (there and there[0 if contested.in_group else 3])


# ---------------------------------------------------------------- one plan


def test_one_plan_applied_by_many_is_applied_once(contested: Contested, driver: Driver, thorough: bool) -> None:
    plan = contested.plan("here")
    for count, meet_at in [(2, None), (2, LOCK), (8, None), (8, LOCK)] * 2 if thorough else [(2, LOCK), (8, None)]:
        outcomes = driver.together(*[contested.apply(plan)] * count, meet_at=meet_at)
        assert set(codes(outcomes)) <= {0, 5}, [outcome.output for outcome in outcomes]
        assert sum("written and read back" in outcome.out for outcome in outcomes) == 1
        assert sum(RENAMED in outcome.steps for outcome in outcomes) == 1, "the snapshot is the winner's alone"
        assert contested.world.offsets() == targets(plan)
        snapshot_is_of_before(contested, plan)
        again = contested.world.run(*contested.apply(plan))
        assert (again.code, "This plan was applied before" in again.out) == (0, True), again.output
        contested.undo(plan)


def test_one_that_waited_while_the_rows_changed_does_not_take_the_winners_way_back(in_a_file: Contested) -> None:
    """A person who was asked, and answered when another had applied the plan to rows that are younger."""
    path, config = in_a_file.plan("here"), load_config(in_a_file.config)
    plan = parse_plan(path.read_text())
    with context.outside(config) as outside:
        waiting = prepare(plan, config, outside)
        in_a_file.world.save({1: StoredOffset(3, None, 2)}, topic=in_a_file.world.mirrored)
        in_a_file.before = in_a_file.bytes()
        assert in_a_file.world.run(*in_a_file.apply(path)).code == 0
        with pytest.raises(Changed, match="Nothing was written"):
            write(waiting, plan, path, outside)
    in_a_file.undo(path)


# ---------------------------------------------------------------- two plans


def test_of_two_plans_for_the_same_rows_one_wins_whole(in_a_file: Contested, driver: Driver, thorough: bool) -> None:
    found, by_hand = in_a_file.plan("found"), in_a_file.plan("by hand", 0, 1, 2)
    more = [in_a_file.copy(plan, f"{plan.parent.name} {number}") for plan in (found, by_hand) for number in range(3)]
    for plans in ((found, by_hand), (found, by_hand, *more)):
        for meet_at in (None, TEMPORARY, RENAMED, BEGIN) * 2 if thorough else (None, BEGIN):
            outcomes = driver.together(*map(in_a_file.apply, plans), meet_at=meet_at)
            said = [outcome.output for outcome in outcomes]
            written = [plan for plan, ended in zip(plans, outcomes, strict=True) if "read back" in ended.out]
            assert (len(written), set(codes(outcomes)) <= {0, 5}) == (1, True), said
            assert in_a_file.world.offsets() == targets(written[0])
            snapshot_is_of_before(in_a_file, written[0])
            loser = found if targets(written[0]) == targets(by_hand) else by_hand
            late = in_a_file.world.run(*in_a_file.apply(loser))
            assert (late.code, "has moved on since the plan" in late.err) == (5, True)
            in_a_file.undo(written[0])


# ---------------------------------------------------------------- starts


def test_of_two_starts_at_once_one_corrects_and_none_starts_elsewhere(
    contested: Contested, driver: Driver, thorough: bool
) -> None:
    plans = contested.world.folder / "plans"
    show = ("sh", "-c", 'cat "$RECONCILER_STARTING_OFFSETS"')
    moving = contested.world.config(to="b")
    hook = ("hook", "-c", moving, "--plans", plans, "--", *show)
    right = targets(contested.plan("right", config=moving))
    for meet_at in (None, TEMPORARY, BEGIN) * (2 if thorough else 1):  # it begins to write the location
        outcomes = driver.together(hook, hook, meet_at=meet_at)
        for outcome in outcomes:
            # A group's rows are compared one by one, so that some may have been written by the other.
            assert outcome.code in ((0, 5, 7) if contested.in_group else (0, 5)), outcome.output
            started = json.loads(outcome.out)[contested.world.mirrored] if outcome.out else None
            assert (started is None) == (outcome.code != 0)
            assert started is None or {int(number): at for number, at in started.items()} == right
        assert 0 in {outcome.code for outcome in outcomes}
        assert contested.world.offsets() == right
        again = driver.run(*hook)
        assert (again.code, "every offset is right" in again.err) == (0, True)
        corrected = [outcome for outcome in outcomes if " corrected; " in outcome.err]
        told = corrected[0].err.split("reconciler rollback ")[1].splitlines()[0]
        plan, config = told.split(" -c ")
        assert config == str(moving)
        contested.undo(Path(plan))
        (contested.world.folder / "state.db").unlink()
        with_state(moving, to="b")
