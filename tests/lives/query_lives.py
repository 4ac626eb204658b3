"""Lives of a query over several failovers, in memory: two clusters, mirrors, its checkpoint, and its anchors.

A failover is planned, and then the mirror has delivered everything; or the source is lost, and an empty cluster takes
its place. So no cluster holds records that never reach the other one. The mirror may send records again at any time.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from reconciler.checkpoints.reading import read_checkpoint
from reconciler.config.file import Config, load_config
from reconciler.core.errors import NeedsPerson
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.hook.start import Start
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE
from reconciler.stores.registry import open_store
from reconciler.tracking.track import SourceSide, Tracker
from tests.checkpoints.checkpoint_files import PLANNED, Files

OTHER = {"a": "b", "b": "a"}


@dataclass
class Life:
    """``topics``: the topic's name at each cluster. ``events`` is the story so far, for a message."""

    folder: Path
    draw: random.Random
    topics: dict[str, str]
    side: str = "a"
    now_ms: int = PLANNED
    produced: int = 0
    made: int = 0
    mirrored: int = 0
    """Up to which offset of the active cluster the other one has the records."""
    position: int = 0
    batch: int = 0
    begun: int | None = None
    """The end of a batch that is planned, and not committed."""
    logs: dict[str, MemoryLog] = field(default_factory=dict)
    processed: set[bytes] = field(default_factory=set)
    to_repeat: set[bytes] = field(default_factory=set)
    """Processed records that an earlier start has been said to read again."""
    events: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    """How many moves had which verdict."""

    def __post_init__(self) -> None:
        for side in OTHER:
            self.build(side)
        self.files = Files(self.folder / "0")
        self.files.began({self.topics["a"]: {0: 0}})
        self.batch_up_to(self.position)

    # ------------------------------------------------------------ the clusters

    def build(self, side: str) -> None:
        self.made += 1
        self.logs[side] = MemoryLog(f"{side}{self.made}")
        self.logs[side].create(self.topics[side], 1)

    def log_of(self, side: str) -> MemoryPartition:
        return self.logs[side].partition(self.topics[side], 0)

    def produce(self) -> None:
        log = self.log_of(self.side)
        for _ in range(self.draw.randrange(1, 8)):
            if self.draw.random() < 0.1:
                log.append_marker(self.now_ms)
            self.now_ms += self.draw.choice([0, 1_000, 3_000])
            log.append(self.now_ms, b"k%d" % self.produced, b"v%d" % self.produced)
            self.produced += 1

    def mirror(self, up_to: int | None = None) -> None:
        source, destination = self.log_of(self.side), self.log_of(OTHER[self.side])
        end = min(source.end, self.mirrored + self.draw.randrange(1, 9)) if up_to is None else up_to
        for record in source.records:
            if self.mirrored <= record.offset < end:
                destination.append(record.timestamp_ms, record.key, record.value)
        self.mirrored = end

    def restart_mirror(self) -> None:
        self.mirrored = self.draw.randrange(max(0, self.mirrored - 10), self.mirrored + 1)

    # ------------------------------------------------------------ the query

    @property
    def offsets(self) -> dict[str, dict[int, int]]:
        return {self.topics[self.side]: {0: self.position}}

    def batch_up_to(self, end: int) -> None:
        records = (each for each in self.log_of(self.side).records if self.position <= each.offset < end)
        keys = {each.key for each in records if each.key is not None}
        self.processed |= keys
        self.to_repeat -= keys
        self.position = end
        self.files.batch(self.batch, self.offsets)
        self.batch, self.begun = self.batch + 1, None

    def run(self) -> None:
        self.batch_up_to(self.begun if self.begun is not None else self._some_end())

    def plan_batch(self) -> None:
        if self.begun is None:
            self.begun = self._some_end()
            self.files.planned(self.batch, {self.topics[self.side]: {0: self.begun}})

    def _some_end(self) -> int:
        return min(self.log_of(self.side).end, self.position + self.draw.randrange(1, 10))

    # ------------------------------------------------------------ the product

    def config(self, destination: str) -> Config:
        source, anchors = OTHER[destination], f"sqlite:///{self.folder}/anchors.db"
        names = f'[topics.names]\n{self.topics[source]} = "{self.topics[destination]}"\n'
        topics = '[topics]\npolicy = "identity"\n' if len({*self.topics.values()}) == 1 else names
        text = (
            f'[source]\nalias = "{source}"\nbootstrap_servers = "{source}:1"\n{topics}[anchors]\nstore = "{anchors}"\n'
            f'[destination]\nbootstrap_servers = "{destination}:1"\n[[jobs]]\nname = "q"\ngroup = "q"\n'
            f'topics = ["{self.topics[source]}"]\nstore = "checkpoint:{self.files.path}"\n'
        )
        path = self.folder / "reconciler.toml"
        path.write_text(text)
        return load_config(path, {})

    def outside(self, destination: str) -> Outside:
        opener = partial(open_store, kafka_client={}, anchors=f"sqlite:///{self.folder}/anchors.db")
        return Outside(self.logs[destination], opener, lambda: 0.0, lambda: self.now_ms)

    def track(self) -> None:
        config = self.config(OTHER[self.side])
        anchors = partial(open_store, f"sqlite:///{self.folder}/anchors.db")
        here = SourceSide(
            self.logs[self.side], partial(open_store, kafka_client={}), anchors, lambda: 0.0, lambda: self.now_ms
        )
        tracker = Tracker(config, config.jobs, here)
        assert not tracker.round().troubles
        tracker.close()

    def start_again(self) -> None:
        """The hook's start on the cluster to which the query has come: it must change nothing."""
        if self.moves:
            config = self.config(self.side)
            checked = check(config, config.jobs, self.outside(self.side))
            assert not checked.to_write, self.story(checked.plan.to_text())

    @property
    def moves(self) -> int:
        return self.tally.total()

    def fail_over(self) -> bool:
        """Move the query. False: the hook stopped it, since nothing proves its place."""
        is_planned, source, destination = self.draw.random() < 0.5, self.side, OTHER[self.side]
        if self.draw.random() < 0.4:
            self.plan_batch()
        if is_planned:
            self.mirror(self.log_of(source).end)
        config, outside = self.config(destination), self.outside(destination)
        copy = str(self.folder / str(self.moves + 1))
        start = Start.of(config, config.jobs[0], plans=self.folder / "plans", clone_to=copy, config_file=self.folder)
        checked = check(start.config, (start.job,), outside)
        rows = [row for row in checked.plan.job().partitions if row.position != "end"]
        found_here = [(row.verdict.value, row.stored_offset, row.resume_offset, row.replay_at_most) for row in rows]
        self.events.append(f"from {source} to {destination}: {found_here}")
        try:
            found = start.correct(checked, outside, lambda plan: None)
        except NeedsPerson:
            assert checked.stopped(config.policy.start), self.story("stopped without a reason")
            return False
        self.tally[rows[0].verdict.value] += 1
        self._go_on(destination, Path(found[CHECKPOINT_VARIABLE]), sum(row.replay_at_most or 0 for row in rows))
        self.mirrored = self.log_of(destination).end
        if not is_planned:
            self.build(source)
            self.mirrored = 0
        return True

    def _go_on(self, side: str, checkpoint: Path, shown: int) -> None:
        left, left_at = self.log_of(self.side), self.position
        self.files = Files.at(checkpoint)
        known, self.side = read_checkpoint(str(checkpoint)), side
        (position,) = known.positions
        assert position.start is not None
        self.position = position.start[self.topics[side], 0]
        self.begun = position.end[self.topics[side], 0] if known.repeats_a_batch and position.end else None
        front, behind = set(), []
        for record in self.log_of(side).records:
            assert record.key is not None
            if record.offset < self.position:
                front.add(record.key)
            else:
                behind.append(record.key)
        again = [key for key in behind if key in self.processed and key not in self.to_repeat]
        read = [record.key for record in left.records if record.offset < left_at]
        assert front <= self.processed, self.story(f"skipped: {sorted(front - self.processed)}")
        if len({*read}) == len(read):  # in a stretch that was sent again more may be read again than is shown
            assert len(again) <= shown, self.story(f"{shown} shown, and read again: {again}")
        self.to_repeat |= {key for key in again if key not in front}

    # ------------------------------------------------------------ a life

    def live(self) -> None:
        tracks = self.draw.choice([0.3, 2, 4])
        acts = {self.produce: 4, self.mirror: 4, self.run: 4, self.track: tracks, self.restart_mirror: 0.4}
        acts[self.start_again] = 0.5
        for _ in range(self.draw.randrange(2, 5)):
            for act in self.draw.choices([*acts], [*acts.values()], k=self.draw.randrange(4, 14)):
                self.now_ms += 1_000
                act()
                ends = [self.log_of(side).end for side in OTHER]
                self.events.append(f"{self.side} {act.__name__}: at {self.position}, ends {ends}, to {self.mirrored}")
            if not self.fail_over():
                return

    def story(self, end: str) -> str:
        return "\n".join([*self.events, end])
