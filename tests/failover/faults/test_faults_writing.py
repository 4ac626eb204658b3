"""``kill -9`` at every step of writing, then the same command again: nothing is lost, no partial write trusted."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
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
        synced = {0: StoredOffset(1, source_record(3).anchor), 1: StoredOffset(0, source_record(1, 1).anchor)}
        world.save(
            {**synced, 2: StoredOffset(1, source_record(2, 2).anchor)},
            topic=world.mirrored,
            address="kafka-group:",
        )
        jobs = ("clicks", None), ("views", self.other), ("sums", "kafka-group:")
        self.jobs = [world.job(name, store=store) for name, store in jobs]
        self.config = world.config(*self.jobs)
        after = [behind(world, number) for number in range(3)]
        self.right = {
            "clicks": {0: after[0][4], 2: after[2][5]},
            "views": {0: after[0][2], 2: after[2][3]},
            "sums": {0: after[0][3], 1: after[1][1], 2: after[2][2]},
        }
        self.before = self.bytes()

    @property
    def snapshot(self) -> Path:
        return self.world.plan_file.with_name(self.world.plan_file.name + ".applied.json")

    def offsets(self) -> dict[str, dict[int, int]]:
        """Every job's offsets under the destination's name."""
        stores = {"clicks": None, "views": self.other, "sums": "kafka-group:"}
        rows = {name: self.world.rows(address) for name, address in stores.items()}
        return {
            name: {row.key.partition: row.stored.offset for row in each if row.key.topic == self.world.mirrored}
            for name, each in rows.items()
        }

    def bytes(self) -> Rows:
        return {
            **table(self.world.folder / "offsets.db"),
            **table(self.world.folder / "other.db"),
            **committed(self.world.cluster, self.world.group),
        }


def behind(world: World, partition: int) -> dict[int, int]:
    """By a record's number, the offset right behind it."""
    numbers = {source_record(number, partition).id: number for number in range(9)}
    return {numbers[dict(headers)["message-id"]]: offset + 1 for offset, headers in world.read_log(partition)}


@pytest.fixture
def laid(world: World) -> Laid:
    return Laid(world)


def the_old_rows_are_kept(laid: Laid) -> None:
    """Either nothing was written, or what was there is in a whole snapshot. Looked at without the product."""
    if not laid.snapshot.exists():
        assert laid.bytes() == laid.before
        return
    kept = json.loads(laid.snapshot.read_text())["rows"]
    assert len(kept) == sum(len(rows) for rows in laid.right.values())
    stores = {"clicks": "offsets.db", "views": "other.db", "sums": "kafka"}
    offset_at = {"offsets.db": 3, "other.db": 3, "kafka": 0}
    for row in kept:
        after = row["after"]["line"]
        store = stores[row["job"]]
        there = laid.before.get((store, after["topic"], after["partition"]))
        before = row["before"] and row["before"]["line"]["stored_offset"]
        assert before == (there and there[offset_at[store]])


def goes_on(laid: Laid, run: Callable[..., Any]) -> None:
    again = run("apply", laid.world.plan_file, "-c", laid.config, "--yes")
    assert again.code == 0, again.output
    assert laid.offsets() == laid.right


def goes_back(laid: Laid, run: Callable[..., Any]) -> None:
    back = run("rollback", laid.world.plan_file, "-c", laid.config, "--yes")
    assert back.code == 0, back.output
    assert laid.bytes() == laid.before


def reached(outcomes: list[Outcome]) -> set[str]:
    """All steps at which a command was killed; and unharmed it ended well."""
    whole, *killed = outcomes
    assert (whole.code, all(each.killed for each in killed)) == (0, True), whole.output
    return {each.steps[-1] for each in killed}


SNAPSHOT = {"make a temporary file", "write the first half", "write the second half", "fsync", "replace"}
SQLITE = {"BEGIN IMMEDIATE", "INSERT INTO", "REPLACE INTO", "COMMIT"}
GROUP = {"commit offsets: send", "commit offsets: under way", "commit offsets: answered"}


def test_apply_killed_at_any_step_is_ended_by_the_next_and_undone_to_the_byte(
    laid: Laid, driver: Driver, thorough: bool
) -> None:
    world = laid.world
    world.plan(laid.config)
    outcomes = []
    for outcome in driver.killed("apply", world.plan_file, "-c", laid.config, "--yes", at_every_step=thorough):
        outcomes.append(outcome)
        the_old_rows_are_kept(laid)
        goes_on(laid, world.run)
        goes_back(laid, world.run)
        laid.snapshot.unlink()
    assert reached(outcomes) >= SNAPSHOT | SQLITE | GROUP | {"end"}


def test_apply_interrupted_at_any_step_says_what_it_has_written(laid: Laid, driver: Driver) -> None:
    world = laid.world
    world.plan(laid.config)
    apply = ("apply", world.plan_file, "-c", laid.config, "--yes")
    whole = driver.run(*apply)
    assert (whole.code, laid.offsets()) == (0, laid.right)
    stores = {"clicks": "offsets.db", "views": "other.db", "sums": "kafka"}
    seen = set()
    for number in sorted({whole.steps.index(name) + 1 for name in whole.steps} - {len(whole.steps)}):
        goes_back(laid, world.run)
        laid.snapshot.unlink()
        ended = driver.run(*apply, kill_at=number, by=signal.SIGINT)
        seen.add((ended.code, whole.steps[number - 1]))
        assert ended.code in (130, 7), ended.output
        written, _, others = ended.err.splitlines()[-1].partition("Not known whether written: ")
        now = laid.bytes()
        changed = {name for name, store in stores.items() if _of(store, now) != _of(store, laid.before)}
        assert {name for name in stores if f'"{name}"' in written.partition("Not written")[0]} <= changed, ended.output
        assert changed <= {name for name in stores if f'"{name}"' in f"{written}{others}".partition("Not written")[0]}
        goes_on(laid, world.run)
    assert {step for code, step in seen if code == 130} >= SNAPSHOT | SQLITE


def _of(store: str, rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if key[0] == store}


def test_rollback_killed_at_any_step_is_ended_by_the_next(laid: Laid, driver: Driver, thorough: bool) -> None:
    world = laid.world
    world.plan(laid.config)
    goes_on(laid, world.run)
    outcomes = []
    for outcome in driver.killed("rollback", world.plan_file, "-c", laid.config, "--yes", at_every_step=thorough):
        outcomes.append(outcome)
        the_old_rows_are_kept(laid)
        goes_back(laid, world.run)
        goes_on(laid, world.run)
    assert reached(outcomes) >= SQLITE | GROUP | {"end"}
    goes_back(laid, world.run)


def test_hook_killed_at_any_step_is_ended_by_the_next_start(laid: Laid, driver: Driver, thorough: bool) -> None:
    """Every start makes a plan of its own; together the snapshots have all that was there."""
    world, plans = laid.world, laid.world.folder / "plans"
    config, outcomes = world.config(*laid.jobs, to="b"), []
    hook = ("hook", "-c", config, "--job", "sums", "--plans", plans, "--", "echo", "started")
    for outcome in driver.killed(*hook, at_every_step=thorough):
        outcomes.append(outcome)
        again = driver.run(*hook)
        assert (again.code, again.out) == (0, "started\n"), again.output
        assert laid.offsets()["sums"] == laid.right["sums"]
        here = state_of(config, "sums", "a").location()
        assert here is not None
        assert (here.phase, here.cluster) == (Phase.LIVES, "b")
        (world.folder / "state.db").unlink()
        with_state(config, to="b")  # as before the move
        snapshots = sorted(plans.glob("*.applied.json"), reverse=True)
        assert snapshots
        for snapshot in snapshots:
            plan = snapshot.with_name(snapshot.name.removesuffix(".applied.json"))
            assert world.run("rollback", plan, "-c", laid.config, "--yes").code == 0
        assert laid.bytes() == laid.before
        shutil.rmtree(plans)  # else later starts would remove the oldest, which are steps, too
    whole, *killed = outcomes
    assert all(each.killed for each in killed)
    assert (whole.code, whole.out) == (0, "started\n"), whole.output
    assert {each.steps[-1] for each in killed} >= SNAPSHOT | GROUP | {"become the command"}


# ---------------------------------------------------------------- what a killed run leaves, and what comes after it


def kill_at_second_store(laid: Laid, driver: Driver) -> None:
    """Apply, killed when the first store is written and the second is about to be."""
    apply = ("apply", laid.world.plan_file, "-c", laid.config, "--yes")
    steps = driver.run(*apply).steps
    goes_back(laid, laid.world.run)
    laid.snapshot.unlink()
    second = [number for number, step in enumerate(steps, 1) if step == "BEGIN IMMEDIATE"][1]
    assert driver.run(*apply, kill_at=second).killed


def test_a_row_that_came_after_a_killed_apply_is_what_rollback_brings_back(laid: Laid, driver: Driver) -> None:
    """The snapshot of a run that wrote nothing to a row is older than the row that the next run replaces."""
    world = laid.world
    world.plan(laid.config)
    kill_at_second_store(laid, driver)
    late = StoredOffset(1, None, 2)
    world.save({2: late}, topic=world.mirrored, address=laid.other)
    goes_on(laid, world.run)
    laid.before[("other.db", world.mirrored, 2)] = (world.group, world.mirrored, 2, *columns(late))
    goes_back(laid, world.run)


def columns(stored: StoredOffset) -> tuple[object, ...]:
    from reconciler.stores.sql_rows import to_columns

    return to_columns(stored)


def test_a_torn_snapshot_is_not_taken_for_a_whole_one(laid: Laid, driver: Driver) -> None:
    """A copy that was cut off, a disk that was full: the way back is gone, so nothing more is written."""
    world = laid.world
    world.plan(laid.config)
    kill_at_second_store(laid, driver)
    half, whole = laid.bytes(), laid.snapshot.read_bytes()
    assert half != laid.before
    for share in (0.0, 0.01, 0.5, 0.99):
        laid.snapshot.write_bytes(whole[: int(len(whole) * share)])
        for command in ("apply", "rollback"):
            ended = world.run(command, world.plan_file, "-c", laid.config, "--yes")
            assert (ended.code, f"The snapshot {laid.snapshot} cannot be read" in ended.err) == (5, True), ended.output
            assert laid.bytes() == half
    laid.snapshot.write_bytes(whole)
    goes_on(laid, world.run)
    goes_back(laid, world.run)


# ---------------------------------------------------------------- what other programs wrote


@pytest.mark.parametrize("metadata", ["", "what another program wrote", '{"v":1,"a":null}'])
def test_a_commit_of_another_program_comes_back_to_the_byte(world: World, metadata: str) -> None:
    world.deliver(12)
    commit(world, 3, metadata)
    before = committed(world.cluster, world.group)
    config = world.config(world.job(store="kafka-group:"))
    world.plan(config, "--set", f"{world.mirrored}:0=7", "--accept", "skips")
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    assert committed(world.cluster, world.group) != before
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert committed(world.cluster, world.group) == before


def test_a_rollback_does_not_date_a_row_that_had_no_date(world: World) -> None:
    """By the time of the rollback, everything the mirror has brought until then would count as processed."""
    world.deliver(12)
    commit(world, 3, "")
    config = world.config(world.job(store="kafka-group:"), extra='[policy]\nno_anchor = "row-time"')
    assert world.checked(config)[0]["finding"] == "unresolved"
    world.plan(config, "--set", f"{world.mirrored}:0=7", "--accept", "skips")
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    row = world.checked(config)[0]
    assert (row["finding"], row["resume_offset"]) == ("unresolved", None)


def commit(world: World, offset: int, metadata: str) -> None:
    """A commit as another program makes it."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka import TopicPartition as KafkaPartition

    row = KafkaPartition(world.mirrored, 0, offset, metadata)
    asked = [ConsumerGroupTopicPartitions(world.group, [row])]
    (future,) = world.cluster.admin().alter_consumer_group_offsets(asked).values()
    assert all(answer.error is None for answer in future.result().topic_partitions)


# ---------------------------------------------------------------- a store that is gone since the plan


def test_a_store_that_is_gone_or_no_store_writes_nothing(world: World) -> None:
    world.deliver(12)
    world.processed(5)
    config, file = world.config(), world.folder / "offsets.db"
    world.plan(config)
    for content in (None, b"", b"not a database at all" * 100):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        ended = world.run("apply", world.plan_file, "-c", config, "--yes")
        assert (ended.code, str(file) in ended.err) == (6, True), ended.output
        assert (file.read_bytes() if file.exists() else None) == content
        file.touch()
