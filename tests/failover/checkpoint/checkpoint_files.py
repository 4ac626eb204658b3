"""A checkpoint's files as Spark writes them, a destination in memory, plans for them, and copies."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from reconciler.clock import stamp
from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.failover import inputs
from reconciler.failover.check import check
from reconciler.failover.checkpoint.clone import Clone, clone
from reconciler.failover.outside import Outside
from reconciler.places.registry import open_store
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, PlanAnchor, parse_plan
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, Entry, StreamPartition
from reconciler.state.stored import Known
from tests.memory_log import MemoryLog
from tests.starting import state_in_memory

NOW = 1_800_000_000_000
PLANNED = 1_795_301_759_566
QUERY = "86b8d69f-40e2-47bc-acd1-662df118fed0"
METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": PLANNED, "conf": {}, "of": {"a newer": "Spark"}}

Offsets = Mapping[str, Mapping[int, int]]


def text(offsets: Offsets | str) -> str:
    return offsets if isinstance(offsets, str) else json.dumps(offsets, separators=(",", ":"))


class Files:
    """A checkpoint, made file by file, with Hadoop's checksums beside them and some state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put("metadata", f'{{"id":"{QUERY}"}}')

    @classmethod
    def at(cls, path: Path) -> Files:
        """The files of a checkpoint that is there."""
        found = cls.__new__(cls)
        found.path = path
        return found

    def put(self, name: str, content: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        (file.parent / f".{file.name}.crc").write_bytes(b"crc\0")

    def began(self, offsets: Offsets, name: str = "0") -> None:
        self.put(f"sources/{name}/0", f"\0v1\n{text(offsets)}")

    def planned(self, batch: int, *offsets: Offsets | str, version: int = 1) -> None:
        self.put(f"offsets/{batch}", "\n".join((f"v{version}", json.dumps(METADATA), *map(text, offsets))))

    def done(self, batch: int) -> None:
        self.put(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def state(self, batch: int) -> None:
        self.put("state/0/_metadata/metadata", 'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"}}')
        for partition in range(2):
            self.put(f"state/0/{partition}/{batch}.delta", "state")

    def batch(self, number: int, *offsets: Offsets | str) -> None:
        """A committed batch."""
        self.planned(number, *offsets)
        self.done(number)
        self.state(number + 1)

    def content(self, path: Path | None = None) -> dict[str, bytes]:
        root = path or self.path
        return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def row(
    partition: int,
    stored: int | None,
    resume: int | None,
    *,
    topic: str = "o",
    there: str | None = None,
    position: str = "next",
    verdict: Verdict = Verdict.EXACT,
    anchor: PlanAnchor | None = None,
    record: int | None = None,
    by: str | None = None,
    replay: int | None = 0,
    by_hand: bool = False,
) -> PartitionPlan:
    there = there or f"a.{topic}"
    return PartitionPlan(
        source_topic=topic,
        topic=there,
        topic_id=f"b/{there}",
        partition=partition,
        stored_offset=stored,
        anchor=anchor,
        finding=verdict,
        resume_offset=resume,
        replay_at_most=replay,
        replay_exact=replay,
        matched_by=by,
        record_offset=resume - 1 if record is None and resume else record,  # what a plan rests on lies right in front
        probes=1,
        rounds=1,
        detail="",
        position=position,
        set_by_hand=by_hand,
    )


def job(*rows: PartitionPlan, name: str = "clicks", store: str = "checkpoint:/c") -> JobPlan:
    return JobPlan(name, name, store, rows)


def plan(*jobs: JobPlan, lives_ms: int = 1_000_000) -> Plan:
    return Plan("0", stamp(NOW), stamp(NOW + lives_ms), "a", "b", "a", "b:9092", "b", jobs)


def log(**counts: int) -> MemoryLog:
    """A destination whose topics ``a.NAME`` have two partitions with so many records each."""
    made = MemoryLog("b")
    for name, count in counts.items():
        made.create(f"a.{name}", 2)
        for partition in range(2):
            part = made.partition(f"a.{name}", partition)
            for number in range(count):
                part.append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    return made


def anchor_of(number: int) -> PlanAnchor:
    """The anchor that the record ``number`` of ``log`` is."""
    return PlanAnchor(700 + number, PLANNED + number, fingerprint(b"k%d" % number, b"v%d" % number), None)


def outside(log: MemoryLog, now_ms: int = NOW) -> Outside:
    return Outside(log, open_store, lambda: 0.0, lambda: now_ms)


def proven(partition: int, stored: int, resume: int, **more: Any) -> PartitionPlan:
    """A row that the record in front of ``resume`` proves by its fingerprint."""
    of = {"anchor": anchor_of(resume - 1), "record": resume - 1, "by": "fingerprint"}
    return row(partition, stored, resume, **{**of, **more})


PLAN = plan(job(proven(0, 30, 3), proven(1, 31, 4)))


def config_of(path: object, known: Plan, *, moved: bool = False) -> Config:
    """The configuration of the plan's jobs, whose checkpoint is at ``path``."""
    text = '[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:9092"\n'
    for each in known.jobs:
        topics = json.dumps(list(dict.fromkeys(row.source_topic for row in each.partitions)))
        text += f'[[jobs]]\nhome = "a"\nname = "{each.name}"\ntopics = {topics}\noffsets = "checkpoint:{path}"\n'
    with TemporaryDirectory() as folder:
        file = Path(folder) / "reconciler.toml"
        file.write_text(text)
        config = load_config(file, {})
    return replace(config, jobs=tuple(replace(each, moved=moved) for each in config.jobs))


def recorded(config: Config, known: JobPlan) -> JobState:
    """The job's journal, with the anchors that the plan's rows have."""
    numbers: dict[bool, dict[StreamPartition, Known[Anchor]]] = {True: {}, False: {}}
    for row in known.partitions:
        if (of := row.anchor) is not None and row.stored_offset is not None:
            anchor = Anchor(of.offset, of.timestamp_ms, None, of.fingerprint, "a", f"a/{row.source_topic}")
            at, is_end = StreamPartition(row.source_topic, "a", row.partition), row.position == "end"
            numbers[is_end][at] = Known(row.stored_offset, anchor, processed=not is_end)
    state = state_in_memory(config.chosen(known.name)[0])
    assert state.append_journal(1, 1, Entry(OUTSIDE, NOW, numbers[False], begun=numbers[True]))
    return state


def cloned(
    files: Files, to: object = None, *, known: Plan = PLAN, there: MemoryLog | None = None, now_ms: int = NOW
) -> Clone:
    config = config_of(files.path, known)
    world = replace(outside(there or log(o=10), now_ms), state_of=lambda name: recorded(config, known.job(name)))
    return clone(files.path, str(to or new(files)), known, config=config, outside=world)


def cloned_again(path: object, to: object) -> Clone:
    """A copy of a copy, on its own cluster."""
    config, world = config_of(path, PLAN, moved=True), outside(log(o=10))
    return clone(str(path), str(to), check(config, config.jobs, world).plan, config=config, outside=world)


def cloned_by(file: Path, known: Path, path: object, to: object, name: str | None = None) -> Clone:
    """A copy at the offsets of a plan's file, by a configuration's file."""
    the_plan = parse_plan(known.read_bytes())
    config = inputs.for_plan(load_config(file), the_plan)
    with inputs.outside(config) as world:
        return clone(str(path), str(to), the_plan, job=name, config=config, outside=world)


def new(files: Files) -> Path:
    return files.path.with_name("new")


def only_the_original(files: Files, before: dict[str, bytes]) -> bool:
    """True if there is no copy, nothing half done, and the original is as it was."""
    return files.content() == before and os.listdir(files.path.parent) == [files.path.name]


def refused(files: Files, error: type[Exception], match: str, **more: Any) -> None:
    before = files.content()
    with pytest.raises(error, match=match):
        cloned(files, **more)
    assert only_the_original(files, before)


def after_call(monkeypatch: pytest.MonkeyPatch, name: str, do: Any) -> None:
    """Something happens right after the first call of a function of ``copying``."""
    from reconciler.places.checkpoint import copying

    real, calls = getattr(copying, name), []

    def called(*given: Any, **more: Any) -> Any:
        result = real(*given, **more)
        calls.append(name)
        if len(calls) == 1:
            do()
        return result

    monkeypatch.setattr(copying, name, called)


def command(*arguments: object) -> int:
    """``reconciler ARGUMENTS`` in this process."""
    from reconciler.cli.main import main

    return main([str(argument) for argument in arguments])
