"""Carrying out a case in memory, and running the search on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from reconciler.core import bounds, resent, scan, search, timebound
from reconciler.core.probes import Chunk
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import Inquiry, run
from reconciler.ports import ReadRequest
from tests.memory_log import MemoryLog, MemoryPartition, MemoryRecord
from tests.simulation.trial import Meter
from tests.simulation.worlds.cases import AMONG, FAR_AHEAD, LOCAL, PLACE, Case, Made, World

SMALL = {"FIRST_READ": 2, "LARGEST_READ": 4, "PEEK": 2, "PEEK_BACK": 1}


class StingyLog(MemoryLog):
    """Answers a read with fewer records than asked for, as a broker may."""

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return super().read([replace(one, max_records=min(one.max_records, 3)) for one in requests])


def carry_out(case: Case) -> World:
    """Mirror, fail over, write locally, compact, delete; return the destination that the job then finds."""
    log = (StingyLog if case.small_reads else MemoryLog)("destination", {PLACE.topic: 1})
    part = log.partitions[PLACE]
    delivered: dict[int, int] = {}
    aborted: set[int] = set()
    normal = [made.stamp_ms for made in case.source if made.stamp_ms < FAR_AHEAD]
    clock = max(normal, default=0) - case.append_skew_ms
    for made, index, is_aborted in _story(case):
        clock += 1
        for _, time in [marker for marker in case.markers if marker[0] == len(delivered) and not is_aborted]:
            part.append_marker(time)
        stamp = clock if case.append_time else made.stamp_ms
        if is_aborted and not case.reads_aborted:  # takes an offset and answers lookups
            part.append_marker(stamp)
            continue
        headers = () if made.id is None else (("id", made.id),)
        if is_aborted:
            new = MemoryRecord(0, stamp, made.key, made.value, headers, case.append_time)
            (record,) = part.append_batch([new], producer="mirror", transactional=True)
            part.append_marker(stamp, producer="mirror", aborts=True)
            aborted.add(record.offset)
        else:
            record = part.append(stamp, made.key, made.value, headers, append_time=case.append_time)
        delivered[record.offset] = index
    if case.cleaned:
        _clean(part, case.cleaned, case.drops_tombstones)
    part.delete_before(case.deleted)
    held = {record.offset: delivered[record.offset] for record in part.records}
    return World(log, delivered, held, frozenset(aborted))


def _story(case: Case) -> Iterator[tuple[Made, int, bool]]:
    """Everything written to the destination in order: the record, its source index, whether it was aborted."""
    written, among = 0, list(case.among)
    for one in case.runs:
        for index in one.sent:
            while among and among[0][0] <= written:
                yield among.pop(0)[1], AMONG, False
            yield case.source[index], index, False
            written += 1
        for index in one.aborted:
            yield case.source[index], index, True
    for _, made in among:
        yield made, AMONG, False
    for made in case.local:
        yield made, LOCAL, False


def _clean(part: MemoryPartition, count: int, drops_tombstones: bool) -> None:
    """Kafka's cleaner: of the first ``count`` records, the last of each key stays, until a tombstone's time is up."""
    dirty = part.records[:count]
    last = {record.key: record.offset for record in dirty}
    part.compact(
        record.offset
        for record in dirty
        if last[record.key] > record.offset or (record.value is None and drops_tombstones)
    )


def answer(case: Case, world: World, meter: Meter | None = None) -> Finding:
    """Run the search on this world."""
    meter = meter or Meter()
    with reading_little() if case.small_reads else nullcontext():
        inquiry = Inquiry(PLACE, lambda: meter.watch(reconcile(case.question)))
        outcome = run(world.log, {0: inquiry}, clock=lambda: 0.0)
    return outcome.found[0].finding


@contextmanager
def reading_little() -> Iterator[None]:
    """Make searches read a few records at a time, so that a log of forty records takes bisection and many chunks."""
    places = [(module, name) for module in (scan, bounds, search, timebound, resent) for name in SMALL]
    before = [(module, name, getattr(module, name)) for module, name in places if hasattr(module, name)]
    for module, name, _ in before:
        setattr(module, name, SMALL[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
