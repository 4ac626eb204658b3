"""``reconciler drill`` on a real cluster: nothing is written, and nothing is left over."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
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
    """Run a drill; it must leave nothing in the store or the temporary folder."""
    temp = world.folder / "temp"
    temp.mkdir(exist_ok=True)
    before = world.rows()
    ended = world.run("drill", "-c", config, "--temp", temp, *arguments)
    assert list(temp.iterdir()) == []
    assert world.rows() == before
    return ended


def test_the_first_batch_is_the_records_after_the_anchors(settled: World) -> None:
    ended = tried(settled, settled.config(), "--format", "json")
    assert ended.code == 0, ended.output
    found = json.loads(ended.out)
    assert (found["format"], found["may_start"]) == ("reconciler.drill/1", True)
    for partition, last in ((0, 9), (1, 3)):
        row, anchor = found["partitions"][partition], settled.offset_of(last, partition)
        first = {"offset": settled.offset_of(last + 1, partition), "timestamp_ms": source_record(last + 1).timestamp_ms}
        assert (row["first"], row["finding"], row["resume_offset"]) == (first, "exact", anchor + 1)
        assert row["found"] == f"after {anchor:,}"
        assert row["read"] >= 1


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
        (("--job", "nobody"), 'no job "nobody"'),
        (("--temp", "/nowhere"), "--temp /nowhere is not a folder"),
        ((), "this command takes one"),
    ],
)
def test_invalid_arguments_end_with_2(world: World, arguments: tuple[str, ...], said: str) -> None:
    config = world.config(world.job("clicks"), world.job("views", "others"))
    ended = world.run("drill", "-c", config, *arguments)
    assert (ended.code, said in ended.err) == (2, True), ended.output


def interrupted(config: Path, temp: Path, number: signal.Signals) -> int:
    """A drill as a process of its own that gets a signal once it has its temporary folder; its exit code."""
    command = [sys.executable, "-m", "reconciler", "drill", "-c", str(config), "--temp", str(temp)]
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
