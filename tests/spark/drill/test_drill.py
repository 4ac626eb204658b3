"""``reconciler drill`` on a real cluster: nothing is written, and nothing is left over."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli import context
from reconciler.config.file import load_config
from reconciler.core.anchors import StoredOffset
from reconciler.spark.drill import Drill, FirstRecord, FirstRecords, Ranges, by_client, drill
from tests.waiting import wait_until
from tests.world import BASE, CommandResult, World, environment, source_record

pytestmark = pytest.mark.system


@pytest.fixture
def settled(world: World) -> World:
    """Two partitions behind a failover: record 9 and record 3 were processed last."""
    world.deliver(20, 12)
    world.processed(9, 3)
    return world


def tried(world: World, config: Path, *arguments: object) -> CommandResult:
    """Run a drill with Kafka's client; it must leave nothing in the store or the temporary folder."""
    temp = world.folder / "temp"
    temp.mkdir(exist_ok=True)
    before = world.rows()
    ended = world.run("drill", "-c", config, "--no-spark", "--temp", temp, *arguments)
    assert list(temp.iterdir()) == []
    assert world.rows() == before
    return ended


def test_the_first_batch_is_the_records_after_the_anchors(settled: World) -> None:
    ended = tried(settled, settled.config(), "--format", "json", "--records", "5")
    assert ended.code == 0, ended.output
    found = json.loads(ended.out)
    assert (found["format"], found["may_start"], found["read_with"]) == ("reconciler.drill/1", True, "Kafka's client")
    for partition, last in ((0, 9), (1, 3)):
        row, anchor = found["partitions"][partition], settled.offset_of(last, partition)
        first = {"offset": settled.offset_of(last + 1, partition), "timestamp_ms": source_record(last + 1).timestamp_ms}
        assert (row["first"], row["finding"], row["resume_offset"]) == (first, "exact", anchor + 1)
        assert row["found"] == f"after {anchor:,}"
        assert 1 <= row["read"] <= 5


def test_a_job_that_has_processed_every_record_has_nothing_to_read(world: World) -> None:
    world.deliver(4)
    world.processed(3)
    ended = tried(world, world.config())
    assert ended.code == 0, ended.output
    assert "The job could fail over (there is nothing to read yet)" in ended.out
    (row,) = json.loads(tried(world, world.config(), "--format", "json").out)["partitions"]
    assert (row["read"], row["first"], row["found"]) == (0, None, f"after {world.offset_of(3)}, end of log")


def test_a_partition_that_needs_a_decision_ends_with_4(world: World) -> None:
    world.deliver(8, 8)
    world.save({0: source_record(3).stored, 1: StoredOffset(BASE + 4)})
    ended = tried(world, world.config())
    assert ended.code == 4, ended.output
    assert f"{world.mirrored}-1 must not start" in ended.out
    assert ended.out.splitlines()[-1].startswith("The job could not fail over")
    both = json.loads(tried(world, world.config(), "--format", "json").out)["partitions"]
    assert [(row["read"] > 0, row["stopped"] is None) for row in both] == [(True, True), (False, False)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--records", "0"), "--records 0 is not a number"),
        (("--job", "nobody"), 'no job "nobody"'),
        (("--temp", "/nowhere"), "--temp /nowhere is not a folder"),
        ((), "this command takes one"),
    ],
)
def test_invalid_arguments_end_with_2(world: World, arguments: tuple[str, ...], said: str) -> None:
    config = world.config(world.job("clicks"), world.job("views", "others"))
    ended = world.run("drill", "-c", config, "--no-spark", *arguments)
    assert (ended.code, said in ended.err) == (2, True), ended.output


def drilled(world: World, change: Any) -> Drill:
    """A drill whose first batch differs from the log."""
    config = load_config(world.config())
    with context.outside(config) as outside:

        def batch(ranges: Ranges) -> FirstRecords:
            return {at: change(list(seen)) for at, seen in by_client(outside.reader)(ranges).items()}

        return drill(config, config.jobs[0], outside, world.folder / "place", batch=batch)


@pytest.mark.parametrize(
    "wrong",
    [
        SimpleNamespace(batch=lambda seen: seen[1:], what="skips the first record"),
        SimpleNamespace(batch=lambda seen: [FirstRecord(seen[0].offset, 17), *seen[1:]], what="has another record"),
        SimpleNamespace(batch=lambda seen: [], what="is empty"),
        SimpleNamespace(batch=lambda seen: [*seen, FirstRecord(seen[-1].offset + 1, None)], what="has one too many"),
    ],
    ids=lambda wrong: wrong.what,
)
def test_a_batch_that_does_not_follow_its_anchor_is_a_fault(settled: World, wrong: SimpleNamespace) -> None:
    assert drilled(settled, list).faults == ()
    found = drilled(settled, wrong.batch)
    assert [fault.split(":")[0] for fault in found.faults] == [
        f"{settled.mirrored}-0",
        f"{settled.mirrored}-1",
    ]


def interrupted(config: Path, temp: Path, number: signal.Signals) -> int:
    """A drill as a process of its own that gets a signal once it has its temporary folder; its exit code."""
    command = [sys.executable, "-m", "reconciler", "drill", "-c", str(config), "--no-spark", "--temp", str(temp)]
    before = set(temp.iterdir())
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(
                lambda: set(temp.iterdir()) - before,
                "the drill's temporary folder",
                ended=lambda: running.poll() is not None,
            )
            running.send_signal(number)
            return running.wait(60)
        finally:
            running.kill()


def test_a_terminated_drill_removes_its_temporary_folder(tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    config = tmp_path / "reconciler.toml"
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and never answers
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        config.write_text(
            f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{address}"\n[search]\ndeadline = "60s"\n'
            '[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "memory:"\n'
        )
        assert interrupted(config, temp, signal.SIGTERM) == 143
    assert list(temp.iterdir()) == []
