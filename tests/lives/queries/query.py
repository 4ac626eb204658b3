"""A query as its checkpoint's files have it: where it reads, what it has read, and the state that it keeps.

The state holds which records were read, so that it can be compared with the story. Versions are written as Spark's
HDFS-backed store does: a change for each batch, a snapshot now and then, the oldest files removed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.places.checkpoint.reading import read_checkpoint
from tests.failover.checkpoint.checkpoint_files import Files
from tests.lives.clusters import Clusters, Place, number_of
from tests.lives.queries.sink import FileSink

STORES = 2


@dataclass
class Query:
    """``side``: the cluster that it reads. ``sources``: the topics of each of its sources, by their numbers."""

    clusters: Clusters
    draw: random.Random
    files: Files
    side: str
    sources: list[list[int]]
    at: dict[Place, int] = field(default_factory=dict)
    batch: int = 0
    begun: dict[Place, int] | None = None
    """The end of a batch that is planned, and not committed."""
    read: Counter[int] = field(default_factory=Counter)
    """How often each record is in the state."""
    to_repeat: set[int] = field(default_factory=set)
    """Records read that an earlier start has been said to read again."""
    batches_here: int = 0
    has_planned: bool = False
    """It has begun a batch of its own here, in this checkpoint."""
    sink: FileSink | None = None

    @classmethod
    def first(
        cls, clusters: Clusters, draw: random.Random, path: Path, sources: list[list[int]], sink: FileSink | None
    ) -> Query:
        made = cls(clusters, draw, Files(path), "a", sources, sink=sink)
        made.at = dict.fromkeys(clusters.places("a"), 0)
        for number, lines in enumerate(made.lines(made.at)):
            made.files.began(json.loads(lines), str(number))
        made.run()
        return made

    def copied(self, path: Path, side: str) -> Query:
        """The query as it goes on in a copy of its checkpoint on another cluster."""
        return Query(
            self.clusters,
            self.draw,
            Files.at(path),
            side,
            self.sources,
            batch=self.batch,
            read=self.read.copy(),
            to_repeat=set(self.to_repeat),
            sink=self.sink,
        ).restarted()

    def restarted(self) -> Query:
        """Where a restart goes on, by the files."""
        known = read_checkpoint(str(self.files.path))
        names = self.clusters.names[self.side]
        ends: dict[Place, int] = {}
        self.at, self.begun = {}, None
        for position in known.positions:
            for offsets, into in ((position.start or {}, self.at), (position.end or {}, ends)):
                for (topic, partition), offset in offsets.items():
                    into[names.index(topic), partition] = offset
        assert known.next_batch == self.batch, (known.next_batch, self.batch)
        if known.repeats_a_batch:
            self.begun = ends
        return self

    def lines(self, offsets: dict[Place, int]) -> list[str]:
        """The offsets of each source, as its line in the log."""
        found: list[str] = []
        for topics in self.sources:
            of: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in sorted(offsets.items()):
                if topic in topics:
                    of.setdefault(self.clusters.names[self.side][topic], {})[str(partition)] = offset
            found.append(json.dumps(of, separators=(",", ":")))
        return found

    # ------------------------------------------------------------ batches

    def plan_batch(self) -> None:
        if self.begun is not None:
            return
        self.begun, self.has_planned = self._some_end(), True
        self.files.planned(self.batch, *self.lines(self.begun))
        if self.sink is not None and self.draw.random() < 0.5:
            self.sink.take(self.batch, self._numbers(self.begun))
        if self.draw.random() < 0.5:  # its state was written, in part
            for store in range(self.draw.randrange(STORES + 1)):
                self._put(store, "delta", self._numbers(self.begun))
                if self.draw.random() < 0.3:
                    self._put(store, "snapshot", (self.read + Counter(self._numbers(self.begun))).elements())

    def run(self) -> None:
        end = self.begun if self.begun is not None else self._some_end()
        numbers = self._numbers(end)
        if self.begun is None:
            self.files.planned(self.batch, *self.lines(end))
        if self.sink is not None:
            self.sink.take(self.batch, numbers)
        self.read.update(numbers)
        self.to_repeat.difference_update(numbers)
        for store in range(STORES):
            self._put(store, "delta", numbers)
            if self.draw.random() < 0.25:
                self._put(store, "snapshot", self.read.elements())
            self._clean(store)
        self.files.done(self.batch)
        self.at, self.begun = end, None
        self.batch, self.batches_here = self.batch + 1, self.batches_here + 1

    def _some_end(self) -> dict[Place, int]:
        end: dict[Place, int] = {}
        for place in self.clusters.places(self.side):
            log = self.clusters.log(self.side, place)
            first = self.at.get(place, log.start)
            more = self.draw.randrange(0, 9) if self.draw.random() < 0.7 else 0
            end[place] = max(first, min(log.end, first + more))
        return {**{place: offset for place, offset in self.at.items() if place not in end}, **end}

    def _numbers(self, end: dict[Place, int]) -> list[int]:
        found: list[int] = []
        for place, upto in end.items():
            if place in self.clusters.places(self.side):
                log = self.clusters.log(self.side, place)
                first = self.at.get(place, log.start)
                found += [number_of(each) for each in log.records if first <= each.offset < upto]
        return found

    # ------------------------------------------------------------ state

    def _put(self, store: int, kind: str, numbers: object) -> None:
        mine = sorted(each for each in numbers if each % STORES == store)  # type: ignore[attr-defined]
        name = f"{self.batch + 1}.{kind}"
        for each in (name, f".{name}.crc"):  # never into a file that a copy may share
            (self.files.path / "state/0" / str(store) / each).unlink(missing_ok=True)
        self.files.put(f"state/0/{store}/{name}", json.dumps(mine))

    def _clean(self, store: int) -> None:
        """Remove what lies before the last but two of the snapshots."""
        folder = self.files.path / "state/0" / str(store)
        snapshots = sorted(int(each.stem) for each in folder.glob("*.snapshot"))
        for file in [*folder.glob("[0-9]*"), *folder.glob(".[0-9]*.crc")]:
            version = int(file.name.lstrip(".").partition(".")[0])
            if len(snapshots) > 3 and version < snapshots[-3]:
                file.unlink()

    def state(self) -> Counter[int]:
        """What the next batch finds: the newest snapshot at or before its number, and every change since."""
        found: Counter[int] = Counter()
        for store in range(STORES):
            folder = self.files.path / "state/0" / str(store)
            whole = [int(each.stem) for each in folder.glob("*.snapshot") if int(each.stem) <= self.batch]
            newest = max(whole, default=0)
            if newest:
                found.update(json.loads((folder / f"{newest}.snapshot").read_text()))
            for version in range(newest + 1, self.batch + 1):
                found.update(json.loads((folder / f"{version}.delta").read_text()))
        return found

    # ------------------------------------------------------------ a comparison

    def in_front_and_behind(self) -> tuple[set[int], list[int]]:
        """The records of its cluster in front of where it goes on, and those behind."""
        front: set[int] = set()
        behind: list[int] = []
        for place in self.clusters.places(self.side):
            log = self.clusters.log(self.side, place)
            at = self.at.get(place, log.start)
            front |= {number_of(each) for each in log.records if each.offset < at}
            behind += [number_of(each) for each in log.records if each.offset >= at]
        return front, behind
