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
from tests.world import BASE, CommandResult, World, environment, free_port, source_record

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


def test_a_partition_that_no_anchor_can_be_made_for_is_named_and_needs_a_person(tracked: Tracked) -> None:
    tracked.make(12, 6)
    tracked.processed(2, 3)
    tracked.source.delete_records(tracked.world.topic, 0, before=8)
    ended = tracked.track()
    assert ended.code == 4
    assert f"  {tracked.world.topic}-0 has no anchor: retention has removed the records around it" in ended.out
    assert len(tracked.kept()) == 1


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (("bootstrap_servers", "# bootstrap_servers"), "[source] bootstrap_servers is missing"),
        (("[anchors]\nstore", "[anchors]\n# store"), "[anchors] store is missing"),
        (("sqlite:///", "bare:///"), "cannot keep the anchors of other stores"),
    ],
)
def test_what_the_configuration_lacks_is_a_matter_of_usage(
    tracked: Tracked, change: tuple[str, str], answer: str
) -> None:
    config = tracked.config()
    config.write_text(config.read_text().replace(*change, 1))
    ended = tracked.track(config)
    assert (ended.code, ended.out) == (2, "")
    assert answer in ended.err


@pytest.mark.parametrize("every", ["0", "-1", "nan", "100000"])
def test_looking_never_or_all_the_time_is_a_matter_of_usage(tracked: Tracked, every: str) -> None:
    ended = tracked.world.run("track", "-c", tracked.config(), "--every", every)
    assert (ended.code, "is not a number of seconds" in ended.err) == (2, True)


def test_what_cannot_be_reached_is_said_after_the_table(tracked: Tracked) -> None:
    ended = tracked.track()
    assert ended.code == 6
    assert ended.out.splitlines()[1].split()[:2] == ["clicks", "-"]
    assert f"There is no offset store at {tracked.world.folder}/table.db" in ended.err
    tracked.make(6)
    tracked.processed(3)
    config = tracked.config(servers=f"127.0.0.1:{free_port()}", extra='[search]\ndeadline = "1s"')
    ended = tracked.track(config)
    assert ended.code == 6
    assert ended.out.splitlines()[1].split()[:6] == ["clicks", "1", "0", "0", "1", "0"]
    assert "the source cluster at" in ended.err


def sick_jobs(tracked: Tracked) -> list[str]:
    """Jobs whose stores are refused, each for a reason of its own."""
    (tracked.world.folder / "torn.db").write_text("no database")
    return [
        tracked.world.job(name, name, store=f"bare:///{tracked.world.folder}/{name}.db", id="key")
        for name in ("gone", "torn")
    ]


def test_each_job_that_cannot_be_tracked_is_said_and_the_others_are_tracked(tracked: Tracked) -> None:
    tracked.make(6)
    tracked.processed(3)
    good = tracked.world.job(store=tracked.address)
    ended = tracked.track(tracked.config(*sick_jobs(tracked), good))
    assert ended.code == 6
    assert [line.split()[:3] for line in ended.out.splitlines()[1:]] == [
        ["gone", "-", "-"],
        ["torn", "-", "-"],
        ["clicks", "1", "1"],
    ]
    assert "There is no offset store at" in ended.err
    assert "torn.db is not" in ended.err


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


def test_tracking_begins_beside_jobs_that_are_refused_and_not_with_those_alone(tracked: Tracked) -> None:
    tracked.make(6)
    tracked.processed(3)
    sick = sick_jobs(tracked)
    process = tracking(tracked.config(*sick, tracked.world.job(store=tracked.address)))
    assert process.stderr is not None
    lines = [json.loads(process.stderr.readline()) for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    warned = [line["message"] for line in lines if line["level"] == "warning"]
    assert [("no offset store" in text, "torn.db is not" in text) for text in warned] == [(True, False), (False, True)]
    told = [line["message"] for line in lines if line["level"] == "info"]
    assert told == [
        "gone: not known",
        "torn: not known",
        "clicks: 1 exact, 0 lagging, 0 without an anchor, 1 saved",
    ]
    assert tracked.kept()

    process = tracking(tracked.config(*sick))
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 6
    assert [json.loads(line)["level"] for line in err.splitlines()] == ["error", "error"]


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


# ---------------------------------------------------------------- the failover, and the way back


def test_a_tracked_table_is_corrected_checked_and_put_back(tracked: Tracked) -> None:
    world = tracked.world
    tracked.make(12)
    tracked.processed(7)
    assert tracked.track().code == 0
    world.deliver(12, burst=3)
    config = tracked.config()
    assert world.run("check", "-c", config).code == 3
    (row,) = world.plan(config)["jobs"][0]["partitions"]
    right = world.offset_of(7) + 1
    assert (row["verdict"], row["stored_offset"], row["resume_offset"]) == ("moved", 9, right)
    assert row["replay"] == {"at_most": 0, "exact": 0}
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 0, applied.output
    assert [row.stored.offset for row in tracked.table.read(world.group)] == [right, 9]
    assert world.run("check", "-c", config).code == 0
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert [row.stored.offset for row in tracked.table.read(world.group)] == [9]
    assert tracked.kept() == [(TopicPartition(world.topic, 0), 9, source_record(7).id)]
    assert world.run("check", "-c", config).code == 3


def test_an_untouched_checkpoint_gets_its_plan_and_is_not_written(tracked: Tracked) -> None:
    world = tracked.world
    tracked.make(12)
    checkpoint = world.folder / "checkpoint"
    after = tracked.at_the_source.offset_of(7, 0, world.topic) + 1
    content = {
        "metadata": '{"id":"2986e998-0c26-4cbc-9b5b-5b0b5f4fd8a3"}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'
        + json.dumps({world.topic: {"0": after}}),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in content.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    config = tracked.config(world.job(store=f"checkpoint:{checkpoint}"))
    assert tracked.track(config).code == 0
    world.deliver(12, burst=3)
    world.plan(config)
    shown = world.run("show", world.plan_file, "--starting-offsets")
    assert json.loads(shown.out) == {world.mirrored: {"0": world.offset_of(7) + 1}}
    before = tracked.kept()
    ended = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert ended.code == 4
    assert "a checkpoint is only read, and corrected in a copy" in ended.err
    assert tracked.kept() == before
    assert {name: (checkpoint / name).read_text() for name in content} == content


def test_a_store_that_was_reset_since_is_told_from_one_that_was_never_tracked(tracked: Tracked) -> None:
    world = tracked.world
    tracked.make(12, 12)
    tracked.processed(7, 7)
    tracked.track()
    tracked.job_stores(4)
    world.deliver(12, 12, 6)
    tracked.job_stores(4, 9, 3)
    ended = world.run("check", "-c", tracked.config())
    assert ended.code == 4
    assert f"{world.mirrored}-0 must not start: stored without an anchor" in ended.out
    assert "its anchor was made for the later offset 9: the stored offset went back since." in ended.out
    assert f"{world.mirrored}-2 must not start: stored without an anchor" in ended.out
    assert f"{world.mirrored}-1 must not start" not in ended.out


# ---------------------------------------------------------------- rows from before anything was tracked


def test_legacy_rows_are_named_one_by_one_and_go_by_their_own_time_where_that_is_allowed(tracked: Tracked) -> None:
    world = tracked.world
    world.deliver(12, 12)
    tracked.job_stores(BASE + 10, BASE + 10, at_ms=source_record(9).timestamp_ms)
    open_store(tracked.anchors).create()
    ended = world.run("check", "-c", tracked.config(kind="?dated"))
    assert ended.code == 4
    assert f"{world.mirrored}-0, {world.mirrored}-1 must not start: stored without an anchor" in ended.out
    policy = '[policy]\nno_anchor = "row-time"\n[search]\nmax_disorder = "{}"'
    for disorder, first in (("0s", 9), ("2s", 3)):
        rows = world.checked(tracked.config(kind="?dated", extra=policy.format(disorder)))
        for partition, row in rows.items():
            assert (row["verdict"], row["resume_offset"]) == ("bounded", world.offset_of(first, partition))
            assert row["replay"]["exact"] is None
            assert "by the time the row was written" in row["detail"]
    rows = world.checked(tracked.config(extra=policy.format("0s")))
    assert {row["verdict"] for row in rows.values()} == {"unresolved"}
    assert "the row's own time is not known" in rows[0]["detail"]
