"""A failover, through the commands, of a job that writes its own manifests; checked byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.world import BASE, CommandResult, World, run_process, source_record

pytestmark = pytest.mark.system


class Manifests:
    """A job's folder of manifests, written and read by plain code."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.folder = world.folder / "offsets" / quote(world.group, safe="")
        self.folder.mkdir(parents=True)

    def line(self, partition: int, number: int, *, anchored: bool = True) -> dict[str, Any]:
        """The job's ranges after record ``number``."""
        record = source_record(number, partition)
        line = {"topic": self.world.topic, "partition": partition, "from": BASE, "until": record.offset + 1}
        if anchored:
            anchor = record.anchor
            line["anchor"] = {
                "offset": anchor.offset,
                "timestamp_ms": anchor.timestamp_ms,
                "id_base64": base64.b64encode(anchor.id or b"").decode(),
                "fingerprint": anchor.fingerprint,
                "cluster_id": anchor.cluster_id,
                "topic_id": anchor.topic_id,
            }
        return line

    def save(self, number: int, *lines: dict[str, Any], torn: int = 0, **header: Any) -> Path:
        head = {"format": "reconciler.ranges/1", "group": self.world.group, **header}
        body = "".join(json.dumps(line) + "\n" for line in (head, *lines)).encode()
        end = json.dumps({"end": len(lines) + 1, "sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"
        file = self.folder / f"{number:020d}.jsonl"
        file.write_bytes((body + end)[: -torn or None])
        return file

    def newest(self) -> tuple[int, list[dict[str, Any]]]:
        """The newest manifest's number and range lines."""
        file = max(self.folder.glob("*.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        body, _, _ = file.read_bytes().rstrip(b"\n").rpartition(b"\n")
        assert lines[-1] == {"end": len(lines) - 1, "sha256": hashlib.sha256(body + b"\n").hexdigest()}
        return int(file.stem), [line for line in lines if "topic" in line]


@pytest.fixture
def world(world: World) -> World:
    """Its store is a folder of files."""
    world.address = f"files:{world.folder / 'offsets'}"
    return world


def exits(ended: CommandResult, code: int) -> CommandResult:
    assert ended.code == code, ended.output
    return ended


@pytest.mark.parametrize("policy", ["default", pytest.param("identity", marks=pytest.mark.thorough)])
def test_a_job_with_manifests_fails_over(world: World, policy: str) -> None:
    there = world.mirrored if policy == "default" else world.topic
    world.deliver(20, 12, topic=there)
    job = Manifests(world)
    job.save(1_700_000_000_000, job.line(0, 2), job.line(1, 3), snapshot=True, written_at_ms=1_700_000_000_000)
    job.save(1_700_000_001_000, job.line(0, 9), written_at_ms=1_700_000_001_000)
    job.save(1_700_000_002_000, job.line(0, 11), torn=30)
    config = world.config(extra=f'[topics]\npolicy = "{policy}"', to="b")
    right = {0: world.offset_of(9, 0, there) + 1, 1: world.offset_of(3, 1, there) + 1}

    told = run_process("check", "-c", config)
    exits(told, 3)
    assert "00000001700000002000.jsonl is ignored: it is torn" in told.err
    rows = world.checked(config)
    assert {number: row["resume_offset"] for number, row in rows.items()} == right
    assert "00000001700000002000.jsonl is torn" in rows[0]["detail"]
    world.plan(config)
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    number, lines = job.newest()
    assert number == 1_700_000_002_001
    assert [(line["topic"], line["partition"], line["until"]) for line in lines] == [
        (there, partition, offset) for partition, offset in right.items()
    ]
    assert {line["anchor"]["cluster_id"] for line in lines} == {world.cluster.cluster_id}
    assert lines[0]["anchor"]["offset"] == right[0] - 1
    assert {line["stay"] for line in lines} == {2}
    exits(world.run("check", "-c", config, "--to", "b"), 0)
    exits(world.run("rollback", "-c", config, "--job", "clicks", "--yes"), 0)
    exits(world.run("check", "-c", config, "--to", "b"), 3)
