"""Reconcilers that write at the same moment: one content wins whole, and each says what became of its own."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.state.locations import Location, Phase
from tests.failover.killed import BEGIN, TEMPORARY, Driver, Outcome, Rows, committed, table
from tests.starting import state_of, with_state
from tests.world import World, source_record

pytestmark = pytest.mark.system

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
            self._sync()
        else:
            world.processed(*[4] * PARTITIONS)
            # It has been here before: there is something to replace.
            world.save({1: StoredOffset(2, Anchor(1, cluster_id="the cluster before"), 1)}, topic=world.mirrored)
            shutil.copy(world.folder / "offsets.db", world.folder / "offsets.db.before")
        self.config = world.config(lives="a")
        self.before = self.bytes()

    def _sync(self) -> None:
        synced = {number: StoredOffset(1, source_record(4, number).anchor) for number in range(PARTITIONS)}
        self.world.save(synced, topic=self.world.mirrored)

    def bytes(self) -> Rows:
        if self.in_group:
            return committed(self.world.cluster, self.world.group)
        return table(self.world.folder / "offsets.db")

    def plan(self, name: str, *offsets: int) -> Path:
        """A plan of that name; with offsets, a person's: it differs in every row."""
        path = self.world.folder / name / "failover.plan.json"
        path.parent.mkdir()
        by_hand = [
            word for number, at in enumerate(offsets) for word in ("--set", f"{self.world.mirrored}:{number}={at}")
        ]
        ended = self.world.run("plan", "-c", self.config, "--to", "b", "-o", path, *by_hand)
        assert ended.code == 0, ended.output
        return path

    def copy(self, plan: Path, name: str) -> Path:
        """The same plan on another machine."""
        path = self.world.folder / name / plan.name
        path.parent.mkdir()
        shutil.copy(plan, path)
        return path

    def apply(self, plan: Path) -> tuple[object, ...]:
        return ("apply", plan, "-c", self.config, "--yes")

    def reset(self, *, to: str | None = None) -> None:
        """The next round begins as this one did; with ``to`` the job is moving."""
        if self.in_group:
            self._sync()
        else:
            shutil.copy(self.world.folder / "offsets.db.before", self.world.folder / "offsets.db")
        assert self.bytes() == self.before
        (self.world.folder / "state.db").unlink()
        with_state(self.config, to=to)

    def lives_there_with_what_was_replaced(self) -> None:
        """By the plan of one run, which has the rows of before."""
        state = state_of(self.config, "clicks", "a")
        here = state.location()
        assert isinstance(here, Location)
        assert (here.phase, here.cluster) == (Phase.LIVES, "b")
        assert [each.phase for each in state.history()].count(Phase.WRITING) == 1
        store = "kafka" if self.in_group else "offsets.db"
        for row in state.plan(here.plan or 0).rows.values():
            there = self.before.get((store, row.key.topic, row.key.partition))
            assert row.row.replaced == {there and there[0 if self.in_group else 3]}


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


def codes(outcomes: Sequence[Outcome]) -> Counter[int]:
    return Counter(outcome.code for outcome in outcomes)


# ---------------------------------------------------------------- one plan


def test_one_plan_applied_by_many_is_applied_once(contested: Contested, driver: Driver, thorough: bool) -> None:
    plan = contested.plan("here")
    for count, meet_at in [(2, None), (2, BEGIN), (8, None), (8, BEGIN)] * 2 if thorough else [(2, BEGIN), (8, None)]:
        outcomes = driver.together(*[contested.apply(plan)] * count, meet_at=meet_at)
        assert set(codes(outcomes)) <= {0, 5}, [outcome.output for outcome in outcomes]
        assert 0 in codes(outcomes)
        assert contested.world.offsets() == targets(plan)
        contested.lives_there_with_what_was_replaced()
        again = contested.world.run(*contested.apply(plan))
        assert (again.code, "this plan was applied before" in again.out) == (0, True), again.output
        contested.reset()


# ---------------------------------------------------------------- two plans


def test_of_two_plans_for_the_same_rows_one_wins_whole(in_a_file: Contested, driver: Driver, thorough: bool) -> None:
    found, by_hand = in_a_file.plan("found"), in_a_file.plan("by hand", 0, 1, 2)
    more = [in_a_file.copy(plan, f"{plan.parent.name} {number}") for plan in (found, by_hand) for number in range(3)]
    for plans in ((found, by_hand), (found, by_hand, *more)):
        for meet_at in (None, BEGIN) * 2 if thorough else (None, BEGIN):
            outcomes = driver.together(*map(in_a_file.apply, plans), meet_at=meet_at)
            said = [outcome.output for outcome in outcomes]
            assert (0 in codes(outcomes), set(codes(outcomes)) <= {0, 5}) == (True, True), said
            assert in_a_file.world.offsets() in (targets(found), targets(by_hand))
            in_a_file.lives_there_with_what_was_replaced()
            loser = found if in_a_file.world.offsets() == targets(by_hand) else by_hand
            late = in_a_file.world.run(*in_a_file.apply(loser))
            assert (late.code, "has moved on since the plan" in late.err) == (5, True), late.output
            in_a_file.reset()


# ---------------------------------------------------------------- starts


def test_of_two_starts_at_once_one_corrects_and_none_starts_elsewhere(
    contested: Contested, driver: Driver, thorough: bool
) -> None:
    plans = contested.world.folder / "plans"
    show = ("sh", "-c", 'cat "$RECONCILER_STARTING_OFFSETS"')
    hook = ("hook", "-c", contested.config, "--plans", plans, "--", *show)
    right = targets(contested.plan("right"))
    contested.reset(to="b")
    for meet_at in (None, TEMPORARY, BEGIN) * (2 if thorough else 1):  # it begins to write the location
        outcomes = driver.together(hook, hook, meet_at=meet_at)
        for outcome in outcomes:
            assert outcome.code in (0, 5), outcome.output
            started = json.loads(outcome.out)[contested.world.mirrored] if outcome.out else None
            assert (started is None) == (outcome.code != 0)
            assert started is None or {int(number): at for number, at in started.items()} == right
        assert 0 in {outcome.code for outcome in outcomes}
        assert contested.world.offsets() == right
        contested.lives_there_with_what_was_replaced()
        again = driver.run(*hook)
        assert (again.code, "every offset is right" in again.err) == (0, True)
        contested.reset(to="b")
