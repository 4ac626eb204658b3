"""A job between two real clusters, and its place of offsets as a plain client sees it.

The test writes the job's offsets; this module knows the offsets that a failover there, and the way back, must find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.demo.lab.kafka import KafkaCluster
from tests.sizes import sampled
from tests.world import CommandResult, World

PROCESSED, LATER = (9, 3), (14, 8)
"""The last processed record in each partition: before the failover, and before the way back."""
RECORDS = (20, 12)
POLICIES = sampled(("default", "identity"), keep=0, always=lambda policy: policy == "default")
PATIENT = "timeout=60"
"""For a store's address: no call times out, even on a busy machine."""


class BareJob:
    """``stored`` are the job's next offsets to read by partition, in the source's numbers. ``right`` are those at the
    destination, found by reading it with a plain client. The numbers differ: the source has a marker after every four
    records, the destination after every three."""

    def __init__(self, world: World, source: KafkaCluster, policy: str = "default") -> None:
        self.world = world
        self.policy = policy
        self.topic = world.topic
        self.mirrored = world.mirrored if policy == "default" else world.topic
        self._source = source
        self._at_the_source = World(source, world.folder, world.topic, lambda _: CommandResult(0, "", ""))
        self._at_the_source.deliver(*RECORDS, topic=self.topic)
        world.deliver(*RECORDS, topic=self.mirrored, burst=3)
        self.stored, self.right = self.behind("a", PROCESSED), self.behind("b", PROCESSED)
        assert not set(self.stored.items()) & set(self.right.items())

    def behind(self, cluster: str, numbers: Sequence[int]) -> dict[int, int]:
        """The offsets behind these records on a cluster."""
        log, topic = (self._at_the_source, self.topic) if cluster == "a" else (self.world, self.mirrored)
        return {part: log.offset_of(number, part, topic) + 1 for part, number in enumerate(numbers)}

    def config(self, *, extra: str = "", **where: str) -> Path:
        """The configuration for the job, with a state store. ``where`` it lives: else at home."""
        source = f'bootstrap_servers = "{self._source.bootstrap}"'
        more = f'[topics]\npolicy = "{self.policy}"\n{extra}\n'
        return self.world.config(source=source, extra=more, **{"lives": "a", **where})

    def track(self, config: Path) -> None:
        """Track the job's offsets once, while the source is alive."""
        ended = exits(self.world.run("track", "-c", config, "--once"), 0)
        assert ended.out.splitlines()[1].split()[1:3] == ["2", "2"], ended.output

    def save_anchored(self, config: Path, cluster: str = "a", offsets: Mapping[int, int] | None = None) -> None:
        """The job's offsets with their anchors, which it stores in a place that has room for them."""
        from reconciler.config.file import load_config
        from reconciler.core.anchors import StoredOffset
        from reconciler.jobs.tracking.source import Place, SourceLog
        from reconciler.kafka.reader import KafkaLogReader
        from reconciler.places.registry import open_store
        from reconciler.ports import Change, TopicPartition

        (job,) = load_config(config).jobs
        at, topic = (self._source, self.topic) if cluster == "a" else (self.world.cluster, self.mirrored)
        reader = KafkaLogReader({"bootstrap.servers": at.bootstrap}, timeout_s=30)
        places = {Place(TopicPartition(topic, part), number): None for part, number in (offsets or self.stored).items()}
        found = SourceLog(lambda _: reader, lambda _: False, job.identity).before(places, reader.describe([topic]))
        reader.close()
        rows = {place.at: StoredOffset(place.number, each.kept.anchor) for place, each in found.items() if each.kept}
        with closing(open_store(job.store)) as store:
            versions = {row.key: row.version for row in store.read(job.group)}
            changes = [Change(key, versions.get(key), row) for key, row in rows.items()]
            assert not store.write(job.group, changes, reason="job", now_ms=1).conflicts


def exits(ended: CommandResult, code: int) -> CommandResult:
    assert ended.code == code, ended.output
    return ended


def fail_over(job: BareJob, config: Path, look: Callable[[], Any], expected: Any) -> None:
    """From the first check to the rollback and once more. ``look`` reads the job's store with a plain client: it must
    hold ``expected`` after ``apply``, and its former content after ``rollback``."""
    world = job.world
    before = look()
    exits(world.run("plan", "-c", config), 3)
    plan = world.plan(config)
    (found,) = (each["partitions"] for each in plan["jobs"])
    assert {row["partition"]: (row["finding"], row["resume_offset"], row["replay"]["exact"]) for row in found} == {
        partition: ("exact", offset, 0) for partition, offset in job.right.items()
    }
    assert look() == before
    exits(world.run("apply", world.plan_file, "-c", config, "--dry-run"), 0)
    assert look() == before
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert look() == expected
    again = exits(world.run("plan", "-c", config, "--to", "b", "--format", "json"), 0)
    rows = json.loads(again.out)["jobs"][0]["partitions"]
    assert {row["partition"]: row["stored_offset"] for row in rows} == job.right
    assert {row["finding"] for row in rows} == {"exact"}
    assert "applied before" in exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0).out
    assert look() == expected
    exits(world.run("rollback", "-c", config, "--job", "clicks", "--yes"), 0)
    assert world.offsets(job.topic) == job.stored
    exits(world.run("plan", "-c", config, "--to", "b"), 3)
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert look() == expected


def go_back(job: BareJob, config: Path, look: Callable[[], Any], expected: Any) -> None:
    """By ``move`` and the hook, once the job has stored the offsets behind ``LATER`` at the destination."""
    exits(job.world.run("move", "-c", config, "--to", "a", "--yes"), 0)
    exits(job.world.run("hook", "-c", config, "--job", "clicks", "--plans", job.world.folder / "plans"), 0)
    assert job.world.offsets(job.topic) == job.behind("a", LATER)
    assert look() == expected
