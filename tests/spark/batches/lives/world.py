"""A job of range batches into files between two clusters, in memory: its logs, store, output and failovers.

Every call that reads or changes something outside of the process is a step. At a chosen step the run is killed, fails,
or something else happens first: another run of the job, or a hand-over.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

from reconciler.config.file import Config, load_config
from reconciler.core.errors import OutcomeUnknown, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand, Outside
from reconciler.failover.writing.apply import prepare, refuse
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import Plan
from reconciler.ports import Change, OffsetStore, Row, WriteResult
from reconciler.spark.batches import reading, runner
from reconciler.spark.batches.hashed_files import BEGUN, HashNamedFiles, loads
from reconciler.spark.batches.planning import NO_CAPS, Caps, Policy
from reconciler.spark.batches.runner import RangeBatches, exactly_once
from tests.in_memory import write_all
from tests.memory_log import MemoryLog

GROUP, OUT = "clicks", "/out"
BEGIN_MS = 1_700_000_000_000
PARTITIONS = 2

CONFIG = """
[clusters.a]
bootstrap_servers = "a"
[clusters.b]
bootstrap_servers = "b"
{topics}
[[jobs]]
home = "{source}"
name = "clicks"
topics = ["{topic}"]
offsets = "memory:"
"""
_numbers = itertools.count()


At = Callable[[int, str], str | None]


def undisturbed(number: int, name: str) -> None:
    return None


class Killed(BaseException):
    """The run ends here: none of its further steps happens, those of its ``finally`` blocks included."""


class Steps:
    """The steps of one run; what happens at each is ``at``'s choice, by its number and name.

    "kill"; "fail": it does not happen, and its caller gets an error; "lose": it happens, and its caller gets an error.
    """

    def __init__(self, disk: dict[str, Any], at: At) -> None:
        self.disk, self._at = disk, at
        self.number = 0
        self.is_killed = False

    @contextmanager
    def step(self, name: str, error: type[Exception] = Unreachable) -> Iterator[None]:
        if self.is_killed:
            raise Killed
        self.number += 1
        choice = self._at(self.number, name)
        if choice == "kill":
            self.is_killed = True
            raise Killed
        if choice == "fail":
            raise error(f"no answer to: {name}")
        yield
        if choice == "lose":
            raise error(f"no answer to: {name}")


class StepwiseStore:
    def __init__(self, inner: OffsetStore, steps: Steps, taken: set[str]) -> None:
        self._inner, self._steps, self._taken = inner, steps, taken
        self.address, self.capabilities = inner.address, inner.capabilities

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        with self._steps.step("read rows"):
            return self._inner.read(group, topics)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        with self._steps.step(f"write rows: {reason}", OutcomeUnknown):
            written = self._inner.write(group, changes, reason=reason, now_ms=now_ms)
            if not written.conflicts:
                self._taken.add(reason)
            return written

    def create(self) -> None:
        self._inner.create()

    def check_writable(self, group: str) -> None:
        self._inner.check_writable(group)

    def close(self) -> None:
        self._inner.close()


class HadoopFiles:
    """Hadoop's file system as ``Directory`` uses it. Paths are text, and an output file's content is its ids."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._disk = steps, steps.disk

    def _below(self, path: str) -> list[str]:
        return [each for each in self._disk if each == path or each.startswith(f"{path}/")]

    def exists(self, path: str) -> bool:
        with self._steps.step(f"exists {path}"):
            return bool(self._below(path))

    def open(self, path: str) -> Any:
        with self._steps.step(f"open {path}"):
            if path not in self._disk:
                raise FileNotFoundError(path)
            return SimpleNamespace(text=self._disk[path], close=lambda: None)

    def createNewFile(self, path: str) -> bool:  # Hadoop's name
        """The text follows at once: another run between the two would take the record for an incomplete one."""
        return path not in self._disk

    def create(self, path: str, overwrite: bool) -> Any:
        def write(data: bytes) -> None:
            with self._steps.step(f"write {path}"):
                self._disk[path] = data.decode()

        return SimpleNamespace(write=write, close=lambda: None)

    def rename(self, path: str, to: str) -> bool:
        with self._steps.step(f"rename {path}"):
            found = self._below(path)
            if self._below(to):
                to = f"{to}/{path.rpartition('/')[2]}"
            for each in found:
                self._disk[each.replace(path, to, 1)] = self._disk.pop(each)
            return bool(found)

    def delete(self, path: str, recursive: bool) -> None:
        with self._steps.step(f"delete {path}"):
            for each in self._below(path):
                del self._disk[each]


def fake_spark(steps: Steps) -> Any:
    """A session's way to Hadoop."""

    class Path(str):
        def getFileSystem(self, _: Any) -> HadoopFiles:  # Hadoop's name
            return HadoopFiles(steps)

    apache = SimpleNamespace(
        hadoop=SimpleNamespace(fs=SimpleNamespace(Path=Path)),
        commons=SimpleNamespace(io=SimpleNamespace(IOUtils=SimpleNamespace(toString=lambda stream, _: stream.text))),
    )
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=mock.Mock()), steps=steps)


class Frame:
    """Results that are their own writer, as far as ``HashNamedFiles`` asks."""

    def __init__(self, steps: Steps, ids: Sequence[int], split: int) -> None:
        self._steps, self._parts = steps, (ids[:split], ids[split:])

    @property
    def write(self) -> Self:
        return self

    def parquet(self, path: str) -> None:
        for number, ids in enumerate(self._parts):
            with self._steps.step(f"write {path}/{number}"):
                self._steps.disk[f"{path}/{number}"] = ids


class World:
    """Record n has the id n as its value, on whichever cluster. ``side``: where the job runs."""

    def __init__(self, folder: Path, rng: random.Random, *, identity: bool) -> None:
        self.folder, self.rng, self.identity = folder, rng, identity
        self.names = {"a": "events", "b": "events" if identity else "a.events"}
        self.logs = {side: MemoryLog(side, {name: PARTITIONS}) for side, name in self.names.items()}
        self.side = "a"
        self.produced = 0
        self.now_ms = BEGIN_MS
        self.disk: dict[str, Any] = {}
        self.taken: set[str] = set()
        """The reasons of all writes that the store took: which batches were saved."""
        self.applied: tuple[Plan, Path, Config] | None = None
        self._address = f"{folder}/{next(_numbers)}"
        self.store().create()

    def tick(self) -> int:
        self.now_ms += 1_000
        return self.now_ms

    # ------------------------------------------------------------ records

    def produce(self, records: int) -> None:
        for _ in range(records):
            at = self.logs[self.side if self.identity else "a"].partition("events", self.rng.randrange(PARTITIONS))
            at.append(self.tick(), b"k", b"%d" % self.produced)
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

    def store(self) -> OffsetStore:
        return MemoryStore(self._address)

    def run(self, at: At = undisturbed, caps: Caps = NO_CAPS) -> None:
        """A run of the job where it lives, until nothing is left."""
        if self.side == "b" and not self.identity:
            self.mirror()
        steps = Steps(self.disk, at)
        job = RangeBatches(
            fake_spark(steps),
            topics=[self.names[self.side]],
            group=GROUP,
            bootstrap_servers=f"{self.side}:1",
            store=StepwiseStore(self.store(), steps, self.taken),
            caps=caps,
            policy=Policy(),
            now_ms=self.tick,
        )
        job._reader = self.logs[self.side]
        with (
            mock.patch.object(runner, "_require_frame"),
            mock.patch.object(reading, "read", self._frame),
        ):
            job.run(exactly_once(lambda frame, ranges: frame, into=HashNamedFiles(OUT)))

    def _frame(self, spark: Any, ranges: Iterable[Any], servers: str, *_: Any) -> Frame:
        log = self.logs[servers.partition(":")[0]]
        ids = [
            int(record.value or b"")
            for each in ranges
            for record in log.partition(each.topic, each.partition).records
            if each.from_offset <= record.offset < each.until_offset
        ]
        return Frame(spark.steps, ids, self.rng.randrange(len(ids) + 1))

    @property
    def counted(self) -> Counter[int]:
        """What ``spark.read.parquet`` finds."""
        return Counter(number for name, ids in self.disk.items() if "/_" not in name for number in ids)

    def decide(self) -> None:
        """Do what the error for an undecided batch says."""
        begun = loads(self.disk.pop(f"{OUT}/{BEGUN}"), BEGUN)
        assert begun is not None
        if f"batch {begun.name}" not in self.taken:
            HadoopFiles(Steps(self.disk, undisturbed)).delete(f"{OUT}/batch={begun.name}", True)

    # ------------------------------------------------------------ from one cluster to the other

    def _outside(self, side: str) -> Outside:
        return Outside(self.logs[side], lambda _: self.store(), lambda: 0.0, self.tick)

    def _config(self, source: str, destination: str) -> Config:
        """For a failover between them."""
        topics = '[topics]\npolicy = "identity"' if self.identity else ""
        if destination == "a" and not self.identity:
            topics = '[topics.names.a]\n"a.events@b" = "events"'
        path = self.folder / f"{destination}.toml"
        values = {"source": source, "topics": topics, "topic": self.names[source]}
        path.write_text(CONFIG.format(**values))
        config = load_config(path, {})
        return replace(config, jobs=tuple(replace(job, moved=False) for job in config.jobs))  # as its location says

    def move(self) -> None:
        """Check, plan and apply for the other cluster; the job then runs there."""
        to = "b" if self.side == "a" else "a"
        config, outside = self._config(self.side, to), self._outside(to)
        plan = check(config, config.jobs, outside, ByHand(accepted=frozenset({Verdict.NEW}))).plan
        changes = prepare(plan, config, outside)
        for change in changes:
            refuse(change)
        write_all(changes, plan, config, outside)
        self.side = to
