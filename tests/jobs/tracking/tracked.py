"""A world in memory with a cluster where a job lives, a store that holds its numbers, and a state store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reconciler.config.file import Config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.failover.outside import Outside
from reconciler.jobs.tracking.journals import JobReport, Located
from reconciler.jobs.tracking.track import Round, SourceSide, Tracker
from reconciler.places.memory import MemoryStore
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, groups_of
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition
from reconciler.state.locations import Location, Stamp
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import open_state
from reconciler.state.stored import Known, PlanRow, Stored
from tests.in_memory import GROUP, NOW, Memory, content
from tests.memory_log import MemoryLog

EVENTS = TopicPartition("events", 0)
STREAM = StreamPartition("events", "a", 0)
ANA = Stamp("ana", lambda: NOW)


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

    def groups(self) -> list[str]:
        return groups_of(self._store) or []

    def close(self) -> None:
        self._closed.append(self._name)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class TroubledState(JobState):
    """A job's logs in a state store that can be away."""

    trouble: Trouble

    def journal(self, stay: int) -> list[Entry]:
        self.trouble.at(f"read {self.job}'s journal")
        return super().journal(stay)

    def append_journal(self, stay: int, number: int, entry: Entry) -> bool:
        self.trouble.at(f"append to {self.job}'s journal")
        return super().append_journal(stay, number, entry)


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
    """A memory world whose jobs live on a, with a store of bare offsets (or of a group's commits)."""

    def __init__(self, memory: Memory, store: MemoryStore, partitions: int = 1) -> None:
        super().__init__(memory.log, store, memory.folder)
        self.source = TroubledLog("a", {"events": partitions})
        self.source.trouble = self.trouble = Trouble()
        self.closed: list[str] = []
        self.stopping = False
        self.seconds, self.step = 0.0, 1.0
        self.logs = open_state(f"memory:{uuid.uuid4().hex}")
        self.logs.create()
        self.job_state = self.state_of("clicks")
        self.here = locations.first("a", ANA)

    def state_of(self, job: str) -> JobState:
        found = TroubledState(self.logs, job)
        found.trouble = self.trouble
        return found

    # ------------------------------------------------------------ the source

    def make(self, numbers: Iterable[int], partition: int = 0) -> None:
        for number in numbers:
            self.source.partition("events", partition).append(*content(number, partition))

    def job_stores(self, offset: int | None, partition: int = 0, *, topic: str = "events", group: str = GROUP) -> None:
        key = TopicPartition(topic, partition)
        if offset is None:
            self.store._shared.rows[group].pop(key, None)
            return
        there = {row.key: row.version for row in self.store.read(group)}
        change = Change(key, there.get(key), StoredOffset(offset))
        assert self.store.write(group, [change], reason="job", now_ms=NOW).written

    # ------------------------------------------------------------ tracking

    def side(self, config: Config) -> SourceSide:
        def clock() -> float:
            self.seconds += self.step
            return self.seconds

        return SourceSide(
            reader=self.source,
            open_store=lambda address: TroubledStore(self.store, address, self.trouble, self.closed),  # type: ignore[arg-type,return-value]
            monotonic=clock,
            now_ms=lambda: NOW,
            located={job.name: Located(self.state_of(job.name), self.here) for job in config.jobs},
            stopping=lambda: self.stopping,
        )

    def tracker(self, extra: str = "", jobs: str = "") -> Tracker:
        config = self.config('[search]\ndeadline = "20s"\n' + extra, jobs)
        return Tracker(config, config.jobs, self.side(config))

    def track(self, tracker: Tracker | None = None) -> JobReport:
        around = self.look(tracker)
        assert not around.troubles
        (job,) = around.jobs
        return job

    def look(self, tracker: Tracker | None = None) -> Round:
        return (tracker or self.tracker()).round()

    # ------------------------------------------------------------ the journal

    def came_back(self, number: int, replaced: int | None) -> None:
        """A plan has moved the job here from b: it begins stay 2 at ``number``."""
        left = Stored(3, named(2), 0, 0)
        row = PlanRow(number, named(number - 1), 0, 0, frozenset({replaced}), left)
        plan = self.job_state.add_plan(Numbers("b", 1, "a", {STREAM: Planned(EVENTS, row)}))
        first = journal.opening({STREAM: row.first()}, f"plan {plan}", NOW)
        assert self.job_state.append_journal(2, 1, first)
        self.here = Location(locations.Phase.LIVES, "a", 2, "ana", NOW, plan=plan)

    def entries(self) -> list[Entry]:
        return self.job_state.newest(self.here.stay)

    def kept(self, partition: int = 0) -> Known[Anchor] | None:
        """What the journal knows last of a partition."""
        return journal.latest(self.entries()).get(STREAM._replace(partition=partition))

    # ------------------------------------------------------------ the failover

    @property
    def outside(self) -> Outside:
        return replace(super().outside, state_of=self.state_of)


def named(number: int, offset: int | None = None) -> Anchor:
    """The anchor of a record of the source."""
    stamp, key, value = content(number)
    return Anchor(number if offset is None else offset, stamp, None, fingerprint(key, value), "a", "a/events")
