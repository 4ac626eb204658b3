"""A query of the lost source as files: its checkpoint, its sink, and the destination in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, fingerprint
from reconciler.failover.check import Checked, check
from reconciler.failover.checkpoint.clone import Clone, clone
from reconciler.failover.outside import ByHand, Outside
from reconciler.jobs.hook.where import Held
from reconciler.places.registry import open_store
from reconciler.plan.rows import SinkRow
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, Entry, StreamPartition
from reconciler.state.stored import Known
from tests.failover.checkpoint.checkpoint_files import NOW, PLANNED, Files
from tests.in_memory import read_back
from tests.memory_log import MemoryLog
from tests.starting import moved, start_of, state_in_memory

BEFORE = 100
"""The source's number of record 0, which is the destination's first."""
PER_BATCH = 10


@dataclass
class Query:
    """Batch n ends behind record 10·(n+1) - 1 of the one partition; every batch's end has an anchor."""

    folder: Path
    files: Files
    log: MemoryLog
    extra: str = ""
    sinks: Sequence[str] = ()
    topics: Sequence[str] = ("o",)
    ignored: Sequence[str] = ()
    state: JobState | None = None
    """Where the query lives."""

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def config(self, path: Path | None = None) -> Config:
        """The job's configuration, with its checkpoint at ``path``."""
        sinks, topics = json.dumps(list(self.sinks or [f"files:{self.output}"])), json.dumps(list(self.topics))
        file = self.folder / "reconciler.toml"
        file.write_text(
            f'{self.extra}\n[clusters.a]\nbootstrap_servers = "a:9092"\n[clusters.b]\n'
            f'bootstrap_servers = "b:9092"\n'
            f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = {topics}\nsink = {sinks}\n'
            f'offsets = "checkpoint:{path or self.files.path}"\nignore_topics = {json.dumps(list(self.ignored))}\n'
        )
        config, here = load_config(file, {}), None if self.state is None else self.state.location()
        if here is None:
            return config
        (job,) = config.jobs
        return replace(config, jobs=(replace(job, location=here.number, moved=here.cluster == "b"),))

    @property
    def outside(self) -> Outside:
        opener = partial(open_store, kafka_client={})
        outside = Outside(self.log, opener, lambda: 0.0, lambda: NOW)
        return outside if self.state is None else replace(outside, state_of=lambda _: self.state)

    def run(self, numbers: range, files: Files | None = None, topic: str = "o", base: int = BEFORE) -> None:
        """These batches, committed."""
        for number in numbers:
            (files or self.files).batch(number, {topic: {0: base + PER_BATCH * (number + 1)}})

    def begin(self, number: int, files: Files | None = None) -> None:
        """A batch that is planned, and not committed."""
        (files or self.files).planned(number, {"o": {0: BEFORE + PER_BATCH * (number + 1)}})

    def keep_anchor(self, batch: int, *, of_end: bool = False, lag: int = 0) -> None:
        """The record before the end of a batch, as ``track`` records it; or the one so many records before it."""
        end = PER_BATCH * (batch + 1)
        last = end - 1 - lag
        anchor = Anchor(
            BEFORE + last, PLANNED + last, None, fingerprint(b"k%d" % last, b"v%d" % last), "lost", "lost/o"
        )
        self.record("o", Known(BEFORE + end, anchor, older=lag), of_end=of_end)

    def record(self, topic: str, known: Known[Anchor], *, of_end: bool = False) -> None:
        """Append this to the job's journal, of its number or of the end of the batch that it has begun."""
        self.state = self.state or state_in_memory(self.config().jobs[0])
        here, at = self.state.location(), StreamPartition(topic, "a", 0)
        stay = 1 if here is None else here.stay
        entries = self.state.newest(stay)
        numbers = {} if of_end else {at: known}
        begun = {at: replace(known, processed=False)} if of_end else {}
        number = entries[-1].number + 1 if entries else 1
        assert self.state.append_journal(stay, number, Entry(OUTSIDE, NOW, numbers, begun=begun))

    def put_out(self, numbers: range, *, empty: bool = False, compact: bool = True) -> None:
        """Batches in the file sink's log, as Spark writes it."""
        log = self.output / "_spark_metadata"
        log.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            entry = {"path": f"file://{self.output}/{number}.json", "size": 0 if empty else 90, "isDir": False}
            lines = [json.dumps({**entry, "modificationTime": PLANNED, "action": "add"})]
            name = str(number)
            if compact and number % 10 == 9:
                name = f"{number}.compact"
                lines = [line for n in range(max(0, number - 10), number) for line in self._lines(n)] + lines
            (log / name).write_text("\n".join(["v1", *lines]))
            (log / f".{name}.crc").write_bytes(b"crc\0")

    def _lines(self, number: int) -> list[str]:
        file = next((self.output / "_spark_metadata").glob(f"{number}*"))
        return file.read_text().splitlines()[1:]

    # ------------------------------------------------------------ the product

    def check(self, path: Path | None = None, by_hand: ByHand | None = None) -> Checked:
        config = self.config(path)
        return read_back(check(config, config.chosen("clicks"), self.outside, by_hand))

    def sink(self, path: Path | None = None) -> SinkRow:
        """The one sink's row in the plan."""
        (job,) = self.check(path).plan.jobs
        (row,) = job.sinks
        return row

    def clone(self, to: str = "copy", by_hand: ByHand | None = None) -> Clone:
        """A plan, and the copy that it allows."""
        config, plan = self.config(), self.check(by_hand=by_hand).plan
        (job,) = plan.jobs
        known = replace(plan, jobs=(replace(job, sinks=()),))  # the clone looks for itself
        return clone(self.files.path, str(self.folder / to), known, job="clicks", config=config, outside=self.outside)

    def lives_at_destination(self) -> None:
        self.state = state_in_memory(self.config().jobs[0])
        moved(self.state, "a", "b")

    def start_at_destination(self) -> dict[str, str]:
        """The hook's start of the query, which is moved there by the first one."""
        self.state = self.state or state_in_memory(self.config().jobs[0])
        start = start_of(self.config(), self.folder, state=self.state)
        return start.correct(check(start.config, (start.job,), self.outside), self.outside, lambda plan: None)

    def start_at_source(self) -> dict[str, str]:
        """The hook's start of the query on its own checkpoint, of one that was never moved."""
        start = start_of(self.config(), self.folder, to=None)
        return start.as_stored(Held({}), self.outside, may_be_new=True)

    @property
    def copy(self) -> str:
        """The copy that the first start at the destination makes."""
        return f"{self.files.path}-2"

    def copied(self, name: str = "copy") -> Files:
        """A copy of the checkpoint, to run on."""
        shutil.copytree(self.files.path, self.folder / name)
        return Files.at(self.folder / name)


def under_one_name(folder: Path, first: int) -> Query:
    """As ``query``, of a topic with one name on both clusters; ``first``: the destination's first record."""
    numbers = range(first, first + BEFORE + 10 * PER_BATCH)
    return _after_three(folder, "o", numbers, extra='[topics]\npolicy = "identity"')


@pytest.fixture
def query(tmp_path: Path) -> Query:
    """Three committed batches, at the sink too; the destination has all records, and no number of the source's."""
    return made_of(tmp_path, 100)


def made_of(tmp_path: Path, delivered: int) -> Query:
    """As ``query``, with so many records at the destination."""
    return _after_three(tmp_path, "a.o", range(delivered))


def _after_three(folder: Path, topic: str, numbers: range, **more: Any) -> Query:
    """After three batches; the destination's topic has the records of these numbers."""
    log = MemoryLog("b")
    log.create(topic, 1)
    for number in numbers:
        log.partition(topic, 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    made = Query(folder, Files(folder / "checkpoint"), log, **more)
    made.files.began({"o": {0: BEFORE}})
    made.run(range(3))
    made.put_out(range(3))
    made.keep_anchor(2)
    return made
