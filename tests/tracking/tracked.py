"""A world in memory with a source, a store that holds numbers only, and a store of anchors."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.config.streams import Stream
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.failover.outside import Outside
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition, known_of
from reconciler.state.locations import Stamp, first
from reconciler.state.opening import open_state
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import NOTHING, AnchorRows, anchor_of, lacks_anchor, read_kept
from reconciler.stores.paired.rules import by_cluster
from reconciler.stores.paired.store import PairedStore
from reconciler.tracking.asked import ANCHORS, SourceSide
from reconciler.tracking.job import JobReport
from reconciler.tracking.journals import Located, StayJournal
from reconciler.tracking.track import Round, Tracker
from tests.in_memory import GROUP, NOW, Memory, content

EVENTS = TopicPartition("events", 0)
ANCHORED = '[anchors]\nstore = "memory:anchors"\n'


class GroupStore(MemoryStore):
    """A group's commits as an unmodified consumer makes them, at a cluster that a mirror syncs to."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(translated_by_mirror=True)


@dataclass
class Trouble:
    """Errors that stores and logs raise from now on, each so many times; by what is asked."""

    waiting: dict[str, list[Exception]] = field(default_factory=dict)

    def comes(self, what: str, *errors: Exception) -> None:
        self.waiting[what] = list(errors)

    def at(self, what: str) -> None:
        if self.waiting.get(what):
            raise self.waiting[what].pop(0)


class TroubledStore:
    def __init__(self, store: OffsetStore, name: str, trouble: Trouble, closed: list[str]) -> None:
        self._store, self._name, self._trouble, self._closed = store, name, trouble, closed

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._trouble.at(f"read {self._name}")
        return self._store.read(group, topics)

    def write(self, group: str, changes: list[Change], *, reason: str, now_ms: int) -> WriteResult:
        self._trouble.at(f"write {self._name}")
        return self._store.write(group, changes, reason=reason, now_ms=now_ms)

    def close(self) -> None:
        self._closed.append(self._name)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class TroubledLog(MemoryLog):
    """A source that can be away."""

    trouble: Trouble

    def describe(self, topics: Iterable[str]) -> object:
        self.trouble.at("describe")
        return super().describe(topics)

    def read(self, requests: object) -> object:
        self.trouble.at("log")
        return super().read(requests)


class Tracked(Memory):
    """A memory world with a source, a store of bare offsets (or of a group's commits) and a store of anchors."""

    def __init__(self, memory: Memory, store: MemoryStore, partitions: int = 1) -> None:
        super().__init__(memory.log, store, memory.folder)
        self.source = TroubledLog("a", {"events": partitions})
        self.source.trouble = self.trouble = Trouble()
        self.anchors = MemoryStore(f"{store.address}-anchors")
        self.closed: list[str] = []
        self.stopping = False
        self.seconds, self.step = 0.0, 1.0
        state = open_state(f"memory:{uuid.uuid4().hex}")
        state.create()
        self.in_journal = Located(JobState(state, "clicks"), first("a", Stamp("hook", NOW)))
        config = self.config()
        self.journal = StayJournal(config, config.jobs[0], self.in_journal, self.source, lambda: NOW, waits_s=0.0)
        self.compared = 0
        """How often a number's anchor and its entry in a journal were the same."""

    # ------------------------------------------------------------ the source

    def make(self, numbers: Iterable[int], partition: int = 0) -> None:
        for number in numbers:
            self.source.partition("events", partition).append(*content(number, partition))

    def job_stores(self, offset: int | None, partition: int = 0, *, topic: str = "events", group: str = GROUP) -> None:
        key = TopicPartition(topic, partition)
        there = {row.key: row.version for row in self.store.read(group)}
        if offset is not None or key in there:
            new = None if offset is None else StoredOffset(offset)
            assert self.store.write(group, [Change(key, there.get(key), new)], reason="job", now_ms=NOW).written

    # ------------------------------------------------------------ tracking

    def side(self) -> SourceSide:
        def clock() -> float:
            self.seconds += self.step
            return self.seconds

        return SourceSide(
            reader=self.source,
            open_store=lambda address: TroubledStore(self.store, address, self.trouble, self.closed),  # type: ignore[arg-type,return-value]
            open_anchors=lambda: TroubledStore(self.anchors, ANCHORS, self.trouble, self.closed),  # type: ignore[arg-type,return-value]
            monotonic=clock,
            now_ms=lambda: NOW,
            stopping=lambda: self.stopping,
        )

    def tracker(self, extra: str = "", jobs: str = "") -> Tracker:
        config = self.config(ANCHORED + '[search]\ndeadline = "20s"\n' + extra, jobs)
        return Tracker(config, config.jobs, self.side())

    def track(self, tracker: Tracker | None = None) -> JobReport:
        around = self.look(tracker)
        assert not around.troubles
        (job,) = around.jobs
        return job

    def look(self, tracker: Tracker | None = None) -> Round:
        found = (tracker or self.tracker()).round()
        if not found.troubles and isinstance(self.source, TroubledLog):  # else the job is tracked where it was moved
            self._compare()
        return found

    def _compare(self) -> None:
        """Compare the anchors with a journal for which each number is looked up anew."""
        read = [row for row in self.store.read(GROUP, ["events"]) if row.of_stay is None and row.malformed is None]
        rows = {row.key: row for row in sorted(read, key=lambda row: -row.stored.offset)}
        away, self.source.trouble = self.source.trouble, Trouble()
        self.seconds += 1
        self.journal.begin_round(rows, {}, self.store, self.seconds)
        self.journal.look()
        self.journal.append(self.seconds, NOW)
        self.source.trouble = away
        kept = read_kept(self.anchors, GROUP, ["events"])
        self.compared += compared(rows, kept, self.in_journal.state.journal(1), Stream("events", "a"), "a")

    def kept(self, partition: int = 0, topic: str = "events") -> StoredOffset | None:
        key = TopicPartition(topic, partition)
        return next((row.stored for row in self.anchors.read(GROUP) if row.key == key), None)

    # ------------------------------------------------------------ the failover

    @property
    def outside(self) -> Outside:
        rule = {"pairing": by_cluster(lambda: "b")} if self.store.capabilities.translated_by_mirror else {}
        return Outside(
            self.log, lambda _: PairedStore(self.store, self.anchors, **rule), lambda: self.clock, lambda: NOW
        )


def compared(
    rows: Mapping[TopicPartition, Row],
    kept: Mapping[TopicPartition, AnchorRows],
    entries: Sequence[Entry],
    stream: Stream,
    cluster: str,
) -> int:
    """How many bare numbers have one record by their anchor and in the journal. Of none may the two differ.

    What the plan knew is left out, and the first number after the topic was made anew: it may be of before, and so the
    journal has it.
    """
    count, entries = 0, [each for each in entries if not each.run.startswith("plan ")]
    for key, row in rows.items():
        pair = anchor_of(row, kept.get(key, NOTHING)) if lacks_anchor(row) else None
        known = known_of(entries, StreamPartition(*stream, key.partition))
        of_number = [each for each in known if each.number == row.stored.offset and each.processed]
        if pair is None or pair.anchor is None or pair.anchor.cluster_id != cluster or not of_number:
            continue
        record, anchor = (
            None if each is None or each.is_bare else each for each in (of_number[-1].record, pair.anchor)
        )
        if record is None or anchor is None or record.topic_id == anchor.topic_id:
            assert (record, of_number[-1].older) == (anchor, pair.lag), (key, of_number[-1], pair)
            count += 1
    return count


def named(number: int, offset: int | None = None) -> Anchor:
    """The anchor of a record of the source."""
    stamp, key, value = content(number)
    return Anchor(number if offset is None else offset, stamp, None, fingerprint(key, value), "a", "a/events")
