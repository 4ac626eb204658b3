"""Records that take a thousand times their size in memory, on a real broker: other partitions are judged."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from tests.kafka.bombs import MIB, plant
from tests.sizes import sampled
from tests.waiting import LIMIT_S
from tests.world import World, environment

pytestmark = pytest.mark.system

LIMIT = "[search]\nmemory_mib = 128"
COUNT, LAST = 40, 19


@pytest.fixture
def bombed(world: World) -> World:
    """Three partitions; the job stopped in the middle of each. ``plant`` makes the second one a bomb behind that."""
    world.deliver(COUNT, COUNT, COUNT)
    world.processed(LAST, LAST, LAST)
    return world


def at_most(kind: int, size: int) -> None:
    resource.setrlimit(kind, (size, size))


@pytest.mark.parametrize("codec", sampled(["zstd", "gzip", "lz4"], keep=0, always="zstd".__eq__))
def test_the_bombed_partition_alone_is_unresolved_whatever_packed_it(bombed: World, codec: str) -> None:
    plant(bombed.cluster.bootstrap, bombed.mirrored, 1, codec, each_mib=50, count=4)
    command = [sys.executable, "-m", "reconciler", "plan", "-c", str(bombed.config(extra=LIMIT)), "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment(), check=False)
    assert ended.returncode == 4, ended.stderr
    (job,) = json.loads(ended.stdout)["jobs"]
    rows = {row["partition"]: row for row in job["partitions"]}
    assert [rows[number]["finding"] for number in range(3)] == ["exact", "unresolved", "exact"]
    assert f"{bombed.mirrored}-1 could not be read from offset" in rows[1]["detail"]
    assert "more than 128 MiB ([search] memory_mib)" in rows[1]["detail"]
    assert rows[1]["resume_offset"] is None


@pytest.mark.thorough
def test_a_limit_of_the_system_ends_no_command(bombed: World) -> None:
    plant(bombed.cluster.bootstrap, bombed.mirrored, 1, "zstd", each_mib=400)
    command = [
        sys.executable,
        "-m",
        "reconciler",
        "plan",
        "-c",
        str(bombed.config(extra="[search]\nmemory_mib = 4096")),
    ]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment(),
        check=False,
        preexec_fn=lambda: at_most(resource.RLIMIT_AS, 1_200 * MIB),
    )
    assert ended.returncode == 4, ended.stderr
    assert "could not be read from offset" in ended.stdout
