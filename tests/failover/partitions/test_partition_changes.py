"""First start, new partitions, unchanged ones and fewer: the same in every store, through the commands.

To add a store, add a function to ``STORES`` that gives its address and, for one with no room for anchors, that of the
store beside it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.registry import open_store, traits
from tests.sizes import sampled
from tests.stores.bare_store import bare_scheme
from tests.stores.postgresql.fixtures import GROUPED, TABLES
from tests.world import World, source_record

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("bare_scheme")]
__all__ = ["bare_scheme"]

Address = Callable[[pytest.FixtureRequest, Path], str]


def in_zookeeper(layout: str) -> Address:
    def address(request: pytest.FixtureRequest, _: Path) -> str:
        hosts = request.getfixturevalue("zookeeper").hosts
        return f"zookeeper://{hosts}/{uuid.uuid4().hex}?layout={layout}&timeout=60"

    return address


def in_hbase(layout: str) -> Address:
    def address(request: pytest.FixtureRequest, _: Path) -> str:
        server = request.getfixturevalue("hbase").address
        return f"hbase://{server}/changes_{uuid.uuid4().hex[:12]}?layout={layout}&timeout=60"

    return address


def table_in_postgresql(request: pytest.FixtureRequest, _: Path) -> str:
    for statement in TABLES:
        request.getfixturevalue("psql").execute(statement)
    return f"{request.getfixturevalue('database')}&{GROUPED}"


STORES: Mapping[str, Address] = {
    "sqlite": lambda _, folder: f"sqlite:///{folder}/offsets.db",
    "table": lambda _, folder: f"bare:///{folder}/table.db",
    "files": lambda _, folder: f"files:{folder}/offsets",
    "kafka-group": lambda *_: "kafka-group:",
    "zookeeper-consumers": in_zookeeper("consumers"),
    "zookeeper-single": in_zookeeper("single"),
    "postgresql": lambda request, _: str(request.getfixturevalue("database")),
    "postgresql-table": table_in_postgresql,
    "hbase-anchored": in_hbase("anchored"),
    "hbase-cloudera": in_hbase("cloudera"),
    "hbase-metrics": in_hbase("cdap-metrics"),
}


@dataclass
class Job:
    """A job at one store. Its topics at the destination exist and are shared: no test writes to them."""

    world: World
    address: str

    def __post_init__(self) -> None:
        self.world.group = f"changes-{uuid.uuid4().hex[:12]}"
        self.anchors = f"sqlite:///{self.world.folder}/anchors.db"
        self.client = {"bootstrap.servers": self.world.cluster.bootstrap}
        self._open().create()

    def _open(self):  # type: ignore[no-untyped-def]
        return open_store(self.address, kafka_client=self.client, anchors=self.anchors)

    def rows(self) -> list[Row]:
        store = self._open()
        try:
            return store.read(self.world.group, [self.world.topic, self.world.mirrored])
        finally:
            store.close()

    def started(self, *partitions: int) -> dict[int, int]:
        """What is stored for new partitions: a group with a reset of its own gets commits, the others need no row."""
        return dict.fromkeys(partitions, 0) if traits(self.address).holds_commits else {}

    def processed(self, numbers: Mapping[int, int]) -> None:
        """The job has now processed these records last, by partition, at the source."""
        store = self._open()
        stored = {part: source_record(number, part).stored for part, number in numbers.items()}
        changes = [
            Change(TopicPartition(self.world.topic, part), None, replace(each, written_at_ms=None))
            for part, each in stored.items()
        ]
        try:
            assert len(
                store.write(self.world.group, changes, reason="job", now_ms=time.time_ns() // 1_000_000).written
            ) == len(changes)
        finally:
            store.close()

    def config(self, new: str | None = None) -> Path:
        extra = f'[anchors]\nstore = "{self.anchors}"'
        return self.world.config(self.world.job(store=self.address, new=new), extra=extra)

    def corrected(self, new: str | None = None) -> tuple[dict[int, dict[str, object]], dict[int, StoredOffset]]:
        """Plan, apply, and check again: the planned partitions, and what is stored for the destination.

        The second time there is nothing to do, and nothing is done.
        """
        config = self.config(new)
        (job,) = self.world.plan(config)["jobs"]
        applied = self.world.run("apply", self.world.plan_file, "-c", config, "--yes")
        assert applied.code == 0, applied.output
        after = self.rows()
        ended = self.world.run("check", "-c", config)
        assert ended.code == 0, ended.output
        assert self.rows() == after
        stored = {row.key.partition: row.stored for row in after if row.key.topic == self.world.mirrored}
        return {row["partition"]: row for row in job["partitions"]}, stored


@pytest.fixture(scope="module")
def topics(clusters) -> dict[str, str]:
    """A topic at the destination that grew by a partition after the job last looked, and one with fewer than stored."""
    grown, fewer = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("grown", "fewer"))
    for name in (grown, fewer):
        world = World(clusters.destination, Path(), name, lambda _: None)  # type: ignore[arg-type,return-value]
        clusters.destination.create_topic(
            name, 3
        )  # a group's commits need their topic: as a mirror from there makes it
        if name == grown:
            world.deliver(15, 15, 0)
            world.append({2: range(30, 33)})
        else:
            world.deliver(15, 15)
    return {"grown": grown, "fewer": fewer}


@pytest.fixture
def world(clusters, world_on: Callable[..., World]) -> World:
    """Its topic is set by the test's job."""
    return world_on(clusters.destination, "")


@pytest.fixture(params=sampled(STORES, keep=5))
def job(request, world, topics, tmp_path) -> Callable[[str], Job]:
    """Makes the job of one store, on one of the topics."""

    def of(topic: str) -> Job:
        world.topic = topics[topic]
        return Job(world, STORES[request.param](request, tmp_path))

    return of


def test_first_start_unchanged_and_new_partitions(job) -> None:
    begins = job("grown")
    world = begins.world
    ended = world.run("check", "-c", begins.config())
    assert (ended.code, "must not start: no rows of" in ended.out) == (4, True), ended.output
    ended = world.run("check", "-c", begins.config("earliest"))
    assert (ended.code, "3 new" in ended.out) == (3 if begins.started(0) else 0, True), ended.output
    plan, stored = begins.corrected("earliest")
    assert [(part, row["verdict"], row["resume_offset"]) for part, row in plan.items()] == [
        (part, "new", 0) for part in range(3)
    ]
    assert {part: row.offset for part, row in stored.items()} == begins.started(0, 1, 2)

    begins.processed({0: 5, 1: 7})
    assert world.run("check", "-c", begins.config()).code == 3
    world.plan_file = world.folder / "second.plan.json"
    plan, stored = begins.corrected()
    right = {0: world.offset_of(5, 0) + 1, 1: world.offset_of(7, 1) + 1}
    for part, offset in right.items():
        assert plan[part]["verdict"] in ("moved", "tied")  # tied: a layout that has room for the time alone
        assert int(plan[part]["resume_offset"]) <= offset
        assert int(plan[part]["resume_offset"]) == offset or plan[part]["verdict"] == "tied"
    assert (plan[2]["verdict"], plan[2]["resume_offset"]) == ("match" if begins.started(2) else "new", 0)
    corrected = {part: plan[part]["resume_offset"] for part in right}
    assert {part: row.offset for part, row in stored.items()} == corrected | begins.started(2)


def test_fewer_partitions_resume_by_time(job) -> None:
    begins = job("fewer")
    world = begins.world
    begins.processed({0: 5, 1: 10, 2: 8})
    ended = world.run("check", "-c", begins.config())
    assert (ended.code, "2 remapped" in ended.out) == (3, True), ended.output
    plan, stored = begins.corrected()
    assert set(plan) == {0, 1}
    for part, row in plan.items():
        # The earliest anchor is record 5, and three records share a time: from 3 on, any may be unprocessed.
        assert (row["verdict"], row["resume_offset"]) == ("remapped", world.offset_of(3, part))
    assert {part: row.offset for part, row in stored.items()} == {part: plan[part]["resume_offset"] for part in plan}
