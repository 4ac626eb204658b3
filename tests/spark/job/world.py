"""A job that lives on a cluster in memory, and the checkpoints of its query."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from reconciler.config.streams import Stream
from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.core.probes import Chunk
from reconciler.failover.writing.moves import Copied
from reconciler.jobs.tracking.recorder import Positions, StayRecorder, positions_of
from reconciler.jobs.tracking.source import SourceLog
from reconciler.places.checkpoint import restart
from reconciler.places.checkpoint.log import OffsetEntry, SourceOffset
from reconciler.ports import ReadRequest, TopicPartition
from reconciler.state import locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition
from reconciler.state.locations import Location, Stamp
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import open_state
from reconciler.state.stored import PlanRow, Stored
from tests.memory_log import MemoryLog

NOW = 1_800_000_000_000
ANA = Stamp("ana", lambda: 1_790_000_000_000, "a burns")
EVENTS = StreamPartition("events", "a", 0)


class CountingLog(MemoryLog):
    """Counts the reads, and knows whether it is closed."""

    reads = 0
    closed = False

    def read(self, requests: Iterable[ReadRequest]) -> list[Chunk]:  # type: ignore[override]
        self.reads += 1
        return list(super().read(list(requests)))

    def close(self) -> None:
        self.closed = True


class World:
    """The job ``clicks`` in its first stay, on cluster a, with two partitions of ten records."""

    def __init__(self) -> None:
        self.log = CountingLog("a", {"events": 2})
        self.produce(10)
        self.produce(10, partition=1)
        store = open_state(f"memory:{uuid.uuid4().hex}")
        store.create()
        self.job = JobState(store, "clicks")
        self.home = self.job.move_on(None, locations.first("a", Stamp("hook", lambda: NOW), "/checkpoints/clicks"))

    def produce(self, records: int, partition: int = 0) -> None:
        log = self.log.partition("events", partition)
        for number in range(log.end, log.end + records):
            log.append(NOW + number, b"k%d" % number, b"v%d" % number)

    def recorder(self, run: str = "first driver", stay: int = 1) -> StayRecorder:
        source = SourceLog(lambda _: self.log, lambda _: False, RECORD_TIME_ONLY)
        return StayRecorder(self.job, stay, {"events": Stream("events", "a")}, source, run)

    def entries(self) -> list[Entry]:
        return self.job.newest(1)

    def move_to_b(self) -> Location:
        """The job lives on b, in stay 2."""
        here = self.job.move_on(self.home, locations.moving(self.home, "b", ANA))
        row = PlanRow(3, None, 0, 0, frozenset({None}), Stored(4, None, 0, 0))
        plan = Numbers("a", 1, "b", {EVENTS: Planned(TopicPartition("a.events", 0), row)})
        copy = Copied(lambda: "/checkpoints/clicks-2")
        here = moving.begin(self.job, here, plan, lambda _: copy, ANA)
        return moving.finish(self.job, here, lambda _: copy, ANA)


def committed(ends: Mapping[int, int]) -> Positions:
    """Batch 7 has ended at these offsets."""
    return positions_of(restart.checkpoint("id", _entry(7, ends), _entry(6, ends), committed=True, initial={}))


def running(starts: Mapping[int, int], ends: Mapping[int, int]) -> Positions:
    """Batch 8 has begun."""
    return positions_of(restart.checkpoint("id", _entry(8, ends), _entry(7, starts), committed=False, initial={}))


def _entry(batch: int, offsets: Mapping[int, int]) -> OffsetEntry:
    kafka = {("events", partition): offset for partition, offset in offsets.items()}
    return OffsetEntry(batch, 1, "{}", (SourceOffset("0", "{}", kafka),))
