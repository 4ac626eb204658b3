"""``kill -9`` at every step of writing, then the same command again: nothing is lost, no partial write trusted."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.state.locations import Phase
from tests.failover.killed import Driver, Outcome, Rows, committed, table
from tests.starting import state_of, with_state
from tests.world import World, source_record

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("killed")) as driver:
        yield driver


class Laid:
    """Three jobs in one plan, two of them with files and one with Kafka's group; what is there, and what is right."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.other = f"sqlite:///{world.folder / 'other.db'}"
        world.deliver(9, 9, 6)
        world.save({0: source_record(4).stored, 2: source_record(5, 2).stored})
        # It has been here before: rows under the destination's name are replaced, not made.
        earlier = Anchor(1, cluster_id="the cluster before")
        world.save({2: StoredOffset(2, earlier, 1)}, topic=world.mirrored)
        world.save({0: source_record(2).stored, 2: source_record(3, 2).stored}, address=self.other)
        self._sync()
        for name in ("offsets.db", "other.db"):
            shutil.copy(world.folder / name, world.folder / f"{name}.before")
        jobs = ("clicks", None), ("views", self.other), ("sums", "kafka-group:")
        self.jobs = [world.job(name, store=store) for name, store in jobs]
        self.config = world.config(*self.jobs, lives="a")
        after = [behind(world, number) for number in range(3)]
        self.right = {
            "clicks": {0: after[0][4], 2: after[2][5]},
            "views": {0: after[0][2], 2: after[2][3]},
            "sums": {0: after[0][3], 1: after[1][1], 2: after[2][2]},
        }
        self.before = self.bytes()

    def _sync(self) -> None:
        """Commit what the mirror commits to the group."""
        synced = {number: source_record(last, number).anchor for number, last in enumerate((3, 1, 2))}
        rows = {number: StoredOffset(0 if number == 1 else 1, anchor) for number, anchor in synced.items()}
        self.world.save(rows, topic=self.world.mirrored, address="kafka-group:")

    def reset(self, *, to: str | None = None) -> None:
        """As before the move; with ``to`` the jobs are moving."""
        for name in ("offsets.db", "other.db"):
            shutil.copy(self.world.folder / f"{name}.before", self.world.folder / name)
        self._sync()
        (self.world.folder / "state.db").unlink()
        with_state(self.config, to=to)

    def offsets(self, topic: str | None = None) -> dict[str, dict[int, int]]:
        """Every job's offsets under a name, by default the destination's; without those of partitions never read."""
        stores = {"clicks": None, "views": self.other, "sums": "kafka-group:"}
        rows = {name: self.world.rows(address) for name, address in stores.items()}
        wanted = topic or self.world.mirrored
        return {
            name: {
                row.key.partition: row.stored.offset for row in each if row.key.topic == wanted and row.stored.offset
            }
            for name, each in rows.items()
        }

    def bytes(self) -> Rows:
        return {
            **table(self.world.folder / "offsets.db"),
            **table(self.world.folder / "other.db"),
            **committed(self.world.cluster, self.world.group),
        }

    def lives(self, job: str) -> tuple[Phase, str]:
        here = state_of(self.config, job, "a").location()
        assert here is not None
        return here.phase, here.cluster


STORES = {"clicks": "offsets.db", "views": "other.db", "sums": "kafka"}
THERE = (Phase.LIVES, "b")


def behind(world: World, partition: int) -> dict[int, int]:
    """By a record's number, the offset right behind it."""
    numbers = {source_record(number, partition).id: number for number in range(9)}
    return {numbers[dict(headers)["message-id"]]: offset + 1 for offset, headers in world.read_log(partition)}


@pytest.fixture
def laid(world: World) -> Laid:
    return Laid(world)


def nothing_is_written_before_it_is_said(laid: Laid) -> None:
    """Looked at without the product: the rows of a job that is not being written are as they were."""
    now = laid.bytes()
    for job, store in STORES.items():
        if laid.lives(job) == (Phase.LIVES, "a"):
            assert _of(store, now) == _of(store, laid.before)


def goes_on(laid: Laid, run: Callable[..., Any]) -> None:
    again = run("apply", laid.world.plan_file, "-c", laid.config, "--yes")
    assert again.code == 0, again.output
    assert laid.offsets() == laid.right
    assert {laid.lives(job) for job in STORES} == {THERE}


def reached(outcomes: list[Outcome]) -> set[str]:
    """All steps at which a command was killed; and unharmed it ended well."""
    whole, *killed = outcomes
    assert (whole.code, all(each.killed for each in killed)) == (0, True), whole.output
    return {each.steps[-1] for each in killed}


FILES = {"make a temporary file", "write the first half", "write the second half", "fsync", "replace"}
SQLITE = {"BEGIN IMMEDIATE", "INSERT OR", "REPLACE INTO", "COMMIT"}
GROUP = {"commit offsets: send", "commit offsets: under way", "commit offsets: answered"}


@pytest.mark.thorough  # the hook's move is killed in every run, and apply is interrupted at the same steps
def test_apply_killed_at_any_step_is_ended_by_the_next(laid: Laid, driver: Driver, thorough: bool) -> None:
    world = laid.world
    world.plan(laid.config)
    outcomes = []
    for outcome in driver.killed("apply", world.plan_file, "-c", laid.config, "--yes", at_every_step=thorough):
        outcomes.append(outcome)
        nothing_is_written_before_it_is_said(laid)
        goes_on(laid, world.run)
        laid.reset()
    assert reached(outcomes) >= SQLITE | GROUP | {"end"}


def test_apply_interrupted_at_any_step_says_what_it_has_written(laid: Laid, driver: Driver) -> None:
    world = laid.world
    world.plan(laid.config)
    apply = ("apply", world.plan_file, "-c", laid.config, "--yes")
    whole = driver.run(*apply)
    assert (whole.code, laid.offsets()) == (0, laid.right)
    seen = set()
    for number in sorted({whole.steps.index(name) + 1 for name in whole.steps} - {len(whole.steps)}):
        laid.reset()
        ended = driver.run(*apply, kill_at=number, by=signal.SIGINT)
        seen.add((ended.code, whole.steps[number - 1]))
        assert ended.code in (130, 7), ended.output
        written, _, others = ended.err.splitlines()[-1].partition("Not known whether written: ")
        now = laid.bytes()
        changed = {name for name, store in STORES.items() if _of(store, now) != _of(store, laid.before)}
        assert {name for name in STORES if f'"{name}"' in written.partition("Not written")[0]} <= changed, ended.output
        assert changed <= {name for name in STORES if f'"{name}"' in f"{written}{others}".partition("Not written")[0]}
        goes_on(laid, world.run)
    assert {step for code, step in seen if code == 130} >= SQLITE


def _of(store: str, rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if key[0] == store}


@pytest.mark.thorough  # tests/failover/writing/test_store_place.py kills it at any write in every run
def test_rollback_killed_at_any_step_is_ended_by_the_next(laid: Laid, driver: Driver, thorough: bool) -> None:
    world, names = laid.world, ("clicks", "views")
    before = laid.offsets(world.topic)
    world.plan(laid.config)
    goes_on(laid, world.run)
    back = ("rollback", "-c", laid.config, "--job", "clicks", "--job", "views", "--yes")
    outcomes = []
    for outcome in driver.killed(*back, at_every_step=thorough):
        outcomes.append(outcome)
        again = world.run(*back)
        assert again.code == 0, again.output
        assert {laid.lives(job) for job in names} == {(Phase.LIVES, "a")}
        assert laid.offsets(world.topic) == before
        laid.reset()
        goes_on(laid, world.run)
    assert reached(outcomes) >= {"BEGIN IMMEDIATE", "INSERT OR", "COMMIT", "end"}


def test_hook_killed_at_any_step_is_ended_by_the_next_start(laid: Laid, driver: Driver, thorough: bool) -> None:
    plans = laid.world.folder / "plans"
    outcomes = []
    hook = ("hook", "-c", laid.config, "--job", "sums", "--plans", plans, "--", "echo", "started")
    laid.reset(to="b")
    for outcome in driver.killed(*hook, at_every_step=thorough):
        outcomes.append(outcome)
        again = driver.run(*hook)
        assert (again.code, again.out) == (0, "started\n"), again.output
        assert laid.offsets()["sums"] == laid.right["sums"]
        assert laid.lives("sums") == THERE
        laid.reset(to="b")
        shutil.rmtree(plans)  # else later starts would remove the oldest, which are steps, too
    whole, *killed = outcomes
    assert all(each.killed for each in killed)
    assert (whole.code, whole.out) == (0, "started\n"), whole.output
    assert {each.steps[-1] for each in killed} >= FILES | GROUP | {"become the command"}


# ---------------------------------------------------------------- a store that is gone since the plan


def test_a_store_that_is_gone_or_no_store_writes_nothing(world: World) -> None:
    world.deliver(12)
    world.processed(5)
    config, file = world.config(lives="a"), world.folder / "offsets.db"
    world.plan(config)
    for content in (None, b"", b"not a database at all" * 100):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        ended = world.run("apply", world.plan_file, "-c", config, "--yes")
        assert (ended.code, str(file) in ended.err) == (6, True), ended.output
        assert (file.read_bytes() if file.exists() else None) == content
        file.touch()
