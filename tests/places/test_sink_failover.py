"""Jobs that keep their offsets in their table's transactions fail over: each record is in the table once.

A plain job is started by the hook on both sides; nothing but the job writes to its table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.places.bare_jobs import PROCESSED, RECORDS, BareJob, exits
from tests.places.sink_job import DIED, KINDS, ids_in
from tests.sizes import sampled
from tests.world import CommandResult, World, run_process

pytestmark = pytest.mark.system
USUAL = ("delta commit",)


@dataclass
class Job:
    """The job ``clicks`` of a configuration, of one of ``KINDS``."""

    kind: str
    folder: Path
    config: Path
    group: str
    topics: tuple[str, str]

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def ids(self) -> list[str]:
        return ids_in(self.kind, self.table)

    def start(self, *options: str, last: str = "", code: int = 0, **names: str) -> CommandResult:
        """Start it by the hook, as processes, and wait for its end."""
        program = (sys.executable, "-m", "tests.places.sink_job", self.kind, self.table, *([last] if last else []))
        names |= {"JOB_TOPIC": self.topics[0], "JOB_TOPIC_THERE": self.topics[1], "JOB_GROUP": self.group}
        hook = ("hook", "-c", self.config, "--job", "clicks", "--plans", self.folder / "plans", *options)
        return exits(run_process(*hook, "--", *program, **names), code)


@pytest.mark.parametrize("kind", sampled(KINDS, 0, always=USUAL.__contains__))
def test_a_job_fails_over_with_each_record_once_in_its_table(world: World, clusters: Any, kind: str) -> None:
    world.address = KINDS[kind].format(world.folder / "table")
    bare = BareJob(world, clusters.source)
    config = bare.config(lives="a")
    job = Job(kind, world.folder, config, world.group, (bare.topic, bare.mirrored))
    everything = sorted(f"{part}/{number}" for part, count in enumerate(RECORDS) for number in range(count))

    job.start("--accept", "new", last=",".join(map(str, PROCESSED)))
    assert len(job.ids) == sum(PROCESSED) + 2
    bare.track(config)

    # The source is lost from here on.
    (found,) = world.plan(config)["jobs"]
    assert {row["partition"]: (row["finding"], row["resume_offset"]) for row in found["partitions"]} == {
        partition: ("exact", offset) for partition, offset in bare.right.items()
    }
    said = exits(world.run("plan", "-c", config), 3).out
    assert f"Next: reconciler move -c {config} --to b, then start the jobs by their hooks." in " ".join(said.split())
    exits(world.run("move", "-c", config, "--to", "b", "--yes"), 0)
    exits(world.run("hook", "-c", config, "--plans", world.folder / "plans"), 0)
    assert len(job.ids) == sum(PROCESSED) + 2, "the job has not run"

    moved = job.start(code=DIED, JOB_DIES="yes")
    assert "every offset is right" in moved.err, "the plan has recorded it, though only the job writes it"
    assert sum(PROCESSED) + 2 < len(job.ids) < len(everything)
    job.start()
    assert job.ids == everything
    checked = world.checked(config, "--to", "b")
    assert {row["finding"] for row in checked.values()} == {"exact"}
    assert {part: row["stored_offset"] for part, row in checked.items()} == {
        part: world.offset_of(count - 1, part) + 1 for part, count in enumerate(RECORDS)
    }
