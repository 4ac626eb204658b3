"""A job of range batches into files between two clusters, in memory: its log, its store, its output, its failovers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from reconciler.config.file import Config, load_config
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand, Outside
from reconciler.failover.writing.apply import prepare, refuse, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.formats.plan import Plan
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Change, OffsetStore, Row, WriteResult
from reconciler.spark.ranges import hashed_files, output, reading, runner
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.planning import Caps, Policy
from reconciler.spark.ranges.runner import RangeBatches, exactly_once
from reconciler.stores.files.store import FilesStore
from reconciler.stores.memory import MemoryStore
from reconciler.stores.sqlite.store import SqliteStore
from tests.spark.ranges.lives.actors import step
from tests.spark.ranges.lives.outputs import Directory, Disk, Frame, MemoryFolder, StepwiseFolder, away, in_doubt

GROUP, OUT = "clicks", "/out"
BEGIN_MS = 1_700_000_000_000
PARTITIONS = 2

DEFAULT = """
[source]
alias = "a"
[destination]
bootstrap_servers = "b"
[[jobs]]
name = "clicks"
group = "clicks"
topics = ["events"]
store = "memory:"
"""
BACK = """
[source]
alias = "b"
[destination]
bootstrap_servers = "a"
[topics.names]
"a.events" = "events"
[[jobs]]
name = "clicks"
group = "clicks"
topics = ["a.events"]
store = "memory:"
"""
_numbers = itertools.count()
IDENTITY = '[topics]\npolicy = "identity"\n'


class StepwiseStore:
    """A store whose calls are steps, for one program."""

    def __init__(self, inner: OffsetStore, saved: set[str], writing: list[str]) -> None:
        self._inner, self._saved, self._writing = inner, saved, writing
        self.address, self.capabilities = inner.address, inner.capabilities

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        with step("read rows", away):
            return self._inner.read(group, topics)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        self._writing.append(reason)
        try:
            with step(f"write rows: {reason}", in_doubt):
                written = self._inner.write(group, changes, reason=reason, now_ms=now_ms)
                if not written.conflicts:
                    self._saved.add(reason)
                return written
        finally:
            self._writing.remove(reason)

    def create(self) -> None:
        self._inner.create()

    def check_writable(self, group: str) -> None:
        self._inner.check_writable(group)

    def close(self) -> None:
        self._inner.close()


class World:
    """Record n has the id n as its value, on whichever cluster. ``side``: where the job runs."""

    def __init__(self, folder: Path, store: str, rng: random.Random, *, identity: bool) -> None:
        self.folder, self.rng, self.identity = folder, rng, identity
        self.names = {"a": "events", "b": "events" if identity else "a.events"}
        self.logs = {side: MemoryLog(side, {name: PARTITIONS}) for side, name in self.names.items()}
        self.side = "a"
        self.produced = 0
        self.now_ms = BEGIN_MS
        self.saved: set[str] = set()
        """The reasons of all writes that were taken: which batches were saved."""
        self.writing: list[str] = []
        """The reasons of the writes that are under way."""
        self.disk, self.catalogue = Disk(), MemoryFolder(f"{OUT}/_batches")
        self.applied: tuple[Plan, Path, Config] | None = None
        self._plans = 0
        self._kind = store
        self._manifests = MemoryFolder("/offsets")
        self._number = next(_numbers)
        self._rows = f"{folder}/{self._number}"
        self.bare_store().create()

    def tick(self) -> int:
        self.now_ms += 1_000
        return self.now_ms

    # ------------------------------------------------------------ records

    def produce(self, records: int) -> None:
        for _ in range(records):
            at = self.logs[self.side if self.identity else "a"]
            name = "events"
            number = self.produced
            at.partition(name, self.rng.randrange(PARTITIONS)).append(self.tick(), b"k", b"%d" % number)
            self.produced += 1

    def mirror(self) -> None:
        """Bring the other cluster up to date, in its own numbers."""
        here, there = ("a", "b") if self.side == "a" or not self.identity else ("b", "a")
        for number in range(PARTITIONS):
            to = self.logs[there].partition(self.names[there], number)
            held = {record.value for record in to.records}
            for record in self.logs[here].partition(self.names[here], number).records:
                if record.value not in held:
                    if not to.records or self.rng.random() < 0.3:
                        to.append_marker(record.timestamp_ms or 0)
                    to.append(record.timestamp_ms, record.key, record.value)

    # ------------------------------------------------------------ the job

    def bare_store(self) -> OffsetStore:
        if self._kind == "memory":
            return MemoryStore(self._rows)
        if self._kind == "sqlite":
            return SqliteStore(f"{self._rows}.db")
        return FilesStore(StepwiseFolder(self._manifests), address="files:/offsets", keep=self.rng.choice([2, 20]))

    def store(self) -> OffsetStore:
        return StepwiseStore(self.bare_store(), self.saved, self.writing)

    def job(self, side: str, caps: Caps, unfinished: Any = "stop") -> Callable[[], object]:
        """A run of the job at ``side``, until nothing is left."""
        spark: Any = object()
        made = RangeBatches(
            spark,
            topics=[self.names[side]],
            group=GROUP,
            bootstrap_servers=f"{side}:1",
            store=self.store(),
            caps=caps,
            policy=Policy(),
            now_ms=self.tick,
        )
        made._reader = self.logs[side]
        sink = HashNamedFiles(OUT, unfinished=unfinished)
        return lambda: made.run(exactly_once(lambda frame, ranges: frame, into=sink))

    def _frame(self, spark: Any, ranges: Iterable[Any], servers: str, *_: Any) -> Frame:
        log = self.logs[servers.partition(":")[0]]
        ids = [
            int(record.value or b"")
            for each in ranges
            for record in log.partition(each.topic, each.partition).records
            if each.from_offset <= record.offset < each.until_offset
        ]
        split = self.rng.randrange(len(ids) + 1)
        return Frame(self.disk, OUT, [part for part in (ids[:split], ids[split:]) if part])

    def counted(self) -> Counter[int]:
        names = [name.removeprefix(f"{OUT}/") for name in output.files(OUT)]
        gone = [name for name in names if name not in self.disk.files]
        assert not gone, f"files that count are not there: {gone}"
        return Counter(number for name in names for number in self.disk.files[name])

    @contextmanager
    def patched(self) -> Iterator[None]:
        folder = StepwiseFolder(self.catalogue)
        with (
            mock.patch.object(hashed_files, "Directory", lambda spark, path: Directory(self.disk, path)),
            mock.patch.object(hashed_files, "open_folder", return_value=folder),
            mock.patch.object(output, "open_folder", return_value=folder),
            mock.patch.object(runner, "_require_frame"),
            mock.patch.object(reading, "read", self._frame),
        ):
            yield

    # ------------------------------------------------------------ from one cluster to the other

    def outside(self, side: str) -> Outside:
        return Outside(self.logs[side], lambda _: self.store(), lambda: 0.0, self.tick)

    def config(self, side: str) -> Config:
        """For a failover to ``side``."""
        text = DEFAULT if side == "b" else BACK
        if self.identity:
            text = DEFAULT.replace('"b"', f'"{side}"').replace('"a"', '"b"' if side == "a" else '"a"') + IDENTITY
        path = self.folder / f"{side}.toml"
        path.write_text(text)
        return load_config(path, {})

    def move(self) -> None:
        """Check, plan and apply for the other cluster; the job then runs there."""
        to = "b" if self.side == "a" else "a"
        config, outside = self.config(to), self.outside(to)
        plan = check(config, config.jobs, outside, ByHand(accepted=frozenset({Verdict.NEW}))).plan
        self._plans += 1
        path = self.folder / f"{self._number}-{self._plans}.plan.json"
        path.write_text(plan.to_text())
        changes = prepare(plan, config, outside)
        for change in changes:
            refuse(change)
        write(changes, plan, path, outside)
        self.side, self.applied = to, (plan, path, config)

    def move_back(self) -> None:
        """Roll the last move back."""
        assert self.applied is not None
        plan, path, config = self.applied
        outside = self.outside(self.side)
        back = prepare_rollback(plan, path, config, outside)
        write_rollback(back, plan, path, config, outside)
        self.side, self.applied = ("b" if self.side == "a" else "a"), None
