"""``reconciler track`` on stores that hold bare offsets, through the commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.stores.kafka.group import KafkaGroupStore
from reconciler.stores.registry import open_store
from tests.lab.kafka import KafkaCluster
from tests.stores.bare_store import BareStore, bare_scheme
from tests.waiting import LIMIT_S
from tests.world import CommandResult, World, environment, free_port, source_record

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("bare_scheme")]
__all__ = ["bare_scheme"]


class Tracked:
    """A world whose source is there as well, and whose job keeps numbers in a table."""

    def __init__(self, world: World, source: KafkaCluster) -> None:
        self.world = world
        self.source = source
        self.table = BareStore(str(world.folder / "table.db"))
        self.anchors = f"sqlite:///{world.folder}/anchors.db"
        self.address = f"bare:///{world.folder}/table.db"
        self.at_the_source = World(source, world.folder, world.topic, lambda _: CommandResult(0, "", ""))

    def make(self, *counts: int) -> None:
        """Records at the source, in transactions of four with a marker each."""
        self.at_the_source.deliver(*counts, topic=self.world.topic)

    def job_stores(self, *offsets: int, topic: str | None = None, at_ms: int | None = None) -> None:
        self.table.create()
        there = {row.key: row.version for row in self.table.read(self.world.group)}
        keys = {TopicPartition(topic or self.world.topic, number): offset for number, offset in enumerate(offsets)}
        changes = [Change(key, there.get(key), StoredOffset(offset, None, at_ms)) for key, offset in keys.items()]
        assert not self.table.write(self.world.group, changes, reason="job", now_ms=1).conflicts

    def processed(self, *numbers: int) -> None:
        """The job has processed these records last, one a partition, and stored where the next ones are."""
        places = [self.at_the_source.offset_of(number, part, self.world.topic) for part, number in enumerate(numbers)]
        self.job_stores(*(place + 1 for place in places))

    def config(self, *jobs: str, extra: str = "", servers: str | None = None, kind: str = "") -> Path:
        address = f"{self.address}{kind}"
        source = f'alias = "a"\nbootstrap_servers = "{servers or self.source.bootstrap}"'
        extra = f'[anchors]\nstore = "{self.anchors}"\n{extra}'
        return self.world.config(*(jobs or (self.world.job(store=address),)), source=source, extra=extra)

    def track(self, config: Path | None = None) -> CommandResult:
        return self.world.run("track", "-c", config or self.config(), "--once")

    def kept(self) -> list[tuple[object, ...]]:
        rows = open_store(self.anchors).read(self.world.group)
        return [(row.key, row.stored.offset, row.stored.anchor and row.stored.anchor.id) for row in rows]


@pytest.fixture
def tracked(clusters, world: World) -> Tracked:
    return Tracked(world, clusters.source)


# ---------------------------------------------------------------- one look


def test_one_look_keeps_an_anchor_for_every_stored_offset_and_shows_a_table(tracked: Tracked) -> None:
    tracked.make(12, 6)
    tracked.processed(7, 3)
    world = tracked.world
    ended = tracked.track()
    assert (ended.code, ended.err) == (0, "")
    head, line = ended.out.splitlines()
    assert head.split() == ["JOB", "PARTITIONS", "EXACT", "LAGGING", "WITHOUT", "SAVED", "OLDEST", "LAG", "STORE"]
    assert line.split()[:7] == ["clicks", "2", "2", "0", "0", "2", "-"]
    # Four records and a marker a transaction: number 7 is at offset 8, and behind it a marker.
    keys = [TopicPartition(world.topic, 0), TopicPartition(world.topic, 1)]
    assert tracked.kept() == [(keys[0], 9, source_record(7).id), (keys[1], 4, source_record(3, 1).id)]
    tracked.job_stores(10, 5)  # where a consumer stands that has passed the markers
    assert tracked.track().out.splitlines()[1].split()[:6] == ["clicks", "2", "2", "0", "0", "2"]
    assert tracked.kept() == [(keys[0], 10, source_record(7).id), (keys[1], 5, source_record(3, 1).id)]
    assert tracked.track().out.splitlines()[1].split()[5] == "0"


def sick_jobs(tracked: Tracked) -> list[str]:
    """Jobs whose stores are refused, each for a reason of its own."""
    (tracked.world.folder / "torn.db").write_text("no database")
    return [
        tracked.world.job(name, name, store=f"bare:///{tracked.world.folder}/{name}.db", id="key")
        for name in ("gone", "torn")
    ]


def test_a_job_that_cannot_be_reached_does_not_hide_one_that_needs_a_person(tracked: Tracked) -> None:
    tracked.make(6)
    tracked.job_stores(1_000)
    ended = tracked.track(tracked.config(*sick_jobs(tracked), tracked.world.job(store=tracked.address)))
    assert ended.code == 4
    assert "has no anchor" in ended.out
    assert "There is no offset store at" in ended.err
    assert "torn.db is not" in ended.err


def test_a_groups_commits_are_read_beside_its_live_members_and_without_joining_them(tracked: Tracked) -> None:
    from confluent_kafka import Consumer

    tracked.make(6)
    settings = {"bootstrap.servers": tracked.source.bootstrap, "group.id": tracked.world.group}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([tracked.world.topic])
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        config = tracked.config(tracked.world.job(store="kafka-group:"))
        assert tracked.track(config).code == 0
        assert tracked.kept() == [(TopicPartition(tracked.world.topic, 0), 1, source_record(0).id)]
        following = consumer.poll(60)  # the group was not rebalanced
        assert following is not None
        assert (following.error(), following.offset()) == (None, 1)
    finally:
        consumer.close()
    commits = KafkaGroupStore({"bootstrap.servers": tracked.source.bootstrap})
    assert commits.read(tracked.world.group, ["no-such-topic"]) == []
    assert commits.read(f"nobody in {tracked.world.group}", [tracked.world.topic]) == []
    commits.close()


# ---------------------------------------------------------------- until stopped


def tracking(config: Path) -> subprocess.Popen[str]:
    """The command that tracks until it is stopped, which logs JSON."""
    command = [sys.executable, "-m", "tests.stores.bare_store", "track", "-c", str(config), "--every", "0.1"]
    command += ["--log-format", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_tracking_says_once_that_the_source_is_away_goes_on_and_ends_in_order(
    tracked: Tracked, number: signal.Signals
) -> None:
    tracked.job_stores(5)
    process = tracking(tracked.config(servers=f"127.0.0.1:{free_port()}", extra='[search]\ndeadline = "1s"'))
    assert process.stderr is not None
    lines = [json.loads(process.stderr.readline()) for _ in range(3)]
    tracked.job_stores(5, 5)
    lines += [json.loads(process.stderr.readline()) for _ in range(3)]  # the same, and the other partition's
    began = time.monotonic()
    process.send_signal(number)
    out, rest = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "")
    assert time.monotonic() - began < 30
    lines += [json.loads(line) for line in rest.splitlines()]
    warned = [line["message"] for line in lines if line["level"] == "warning"]
    assert len(warned) == 1
    assert "Trying again every 0.1 s." in warned[0]
    told = [line["message"] for line in lines if line["level"] == "info"]
    assert told[-1] == "stopped"
    assert [line for line in told if "exact" in line] == [
        f"clicks: 0 exact, 0 lagging, {count} without an anchor, 0 saved" for count in (1, 2)
    ]
