"""A drill: try the failover of one job against the destination, without touching the job or writing anything.

    from reconciler.jobs.drill import drill

    done = drill(config, config.chosen("clicks")[0], outside, Path("/tmp"))
    print(done.may_start, [(each.row.partition, each.first, each.fault) for each in done.partitions])

A drill takes every step of a failover that leaves no trace: it makes the plan, copies a checkpoint to a temporary
folder, and reads from the anchor's own record to the end of the first batch: the batch must begin right after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Identity, IdOrder, Record, has_fingerprint
from reconciler.core.errors import Changed
from reconciler.core.probes import LogRange
from reconciler.core.verdicts import MatchedBy, Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.checkpoint.clone import clone
from reconciler.failover.outside import Outside
from reconciler.places.checkpoint.log import by_partition
from reconciler.places.checkpoint.restart import END
from reconciler.places.checkpoint.show import Description, describe
from reconciler.places.common import ReadOnlyStore
from reconciler.places.registry import checkpoint_path, traits
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import SinkRow
from reconciler.plan.start import why_stopped
from reconciler.ports import LogReader, OffsetStore, ReadRequest, TopicPartition

FORMAT = "reconciler.drill/1"
RECORDS = 100
"""The most offsets of each partition in the first batch."""
ATTEMPTS = 3
"""How often a checkpoint is copied at most, if a running query changes it meanwhile."""
AGAIN = "Run the drill again. If the result is the same, do not fail over: make a plan and look at the partition."


@dataclass(frozen=True, slots=True)
class Tried:
    """One partition: where its first batch began, the records read, and what they prove (``found``).

    ``starts_at``: None if the partition has no offset, so that nothing was read. ``stopped``: why it needs a decision.
    ``fault``: how the batch differs from the plan.
    """

    row: PartitionPlan
    stopped: str | None
    starts_at: int | None
    read: tuple[Record, ...]
    found: str
    fault: str | None = None

    @property
    def first(self) -> Record | None:
        return self.read[0] if self.read else None


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill's result. ``copy`` describes the temporary copy of the job's checkpoint, if it has one.

    ``stops``: the rows that forbid the start; also a row for the end of a begun batch, which a drill does not try.
    """

    checked: Checked
    partitions: tuple[Tried, ...]
    copy: Description | None
    stops: tuple[PartitionPlan | SinkRow, ...]

    @property
    def plan(self) -> Plan:
        return self.checked.plan

    @property
    def job(self) -> JobPlan:
        return self.plan.job()

    @property
    def may_start(self) -> bool:
        return not self.stops

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{each.row.key}: {each.fault}" for each in self.partitions if each.fault)


def drill(config: Config, job: Job, outside: Outside, place: Path) -> Drill:
    """Try the failover of one job of the configuration; ``place`` is an empty folder for the checkpoint's copy.

    A job that needs a decision is not an error: its partitions say so, and no copy is made. Raises Changed if a query
    is too fast to be copied, Unreachable, Refused, ConfigError.
    """
    outside = _make_read_only(outside)
    checked, copy = _make_plan(config, job, outside, place)
    (planned,) = checked.plan.jobs
    rows = tuple(row for row in planned.partitions if row.position != END)  # the first batch begins at the start
    reader = outside.patient(config.search)
    ranges = _find_ranges(reader, rows, _find_starts(rows, copy))
    behind = _read_from_anchors(reader, rows, ranges)
    policy, identity = config.policy.start, job.identity
    tried = tuple(_try_partition(row, policy, identity, ranges, behind) for row in rows)
    return Drill(checked, tried, copy, tuple(checked.stopped(policy)))


def _make_read_only(outside: Outside) -> Outside:
    def opened(address: str) -> OffsetStore:
        return ReadOnlyStore(outside.open_store(address))

    return replace(outside, open_store=opened)


# ---------------------------------------------------------------- the plan, and the copy


def _make_plan(config: Config, job: Job, outside: Outside, place: Path) -> tuple[Checked, Description | None]:
    """The check, and for a checkpoint its copy: made together, since a running query moves both."""
    for attempt in range(ATTEMPTS):
        checked = check(config, [job], outside)
        planned = checked.plan.job()
        starts_in_place = checked.decided(planned) is not planned
        stops = checked.stopped(config.policy.start)
        if stops or starts_in_place or not traits(job.store).corrected_in_copy:
            return checked, None
        path = place / f"checkpoint-{attempt}"
        try:
            clone(checkpoint_path(job.store), str(path), checked.plan, job=job.name, config=config, outside=outside)
        except Changed:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        return checked, describe(path)
    raise AssertionError("every attempt returns or raises")


def _find_starts(rows: Sequence[PartitionPlan], copy: Description | None) -> dict[TopicPartition, int]:
    """Where the job would begin: at its copied checkpoint's offsets, else at the plan's."""
    copied = by_partition(source.start for source in copy.found.positions) if copy is not None else {}
    starts: dict[TopicPartition, int] = {}
    for row in rows:
        if row.key in copied:
            starts[row.key] = min(copied[row.key])
        elif row.resume_offset is not None:
            starts[row.key] = row.resume_offset
    return starts


# ---------------------------------------------------------------- the first batch


def _find_ranges(
    reader: LogReader, rows: Sequence[PartitionPlan], starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogRange]:
    places = [row.key for row in rows if row.key in starts]
    begins, ends = reader.log_starts(places), reader.log_ends(places)
    for at in places:
        if not begins[at] <= starts[at] <= ends[at]:
            raise Changed(
                f"{at}: the log is now [{begins[at]}, {ends[at]}] and does not hold offset {starts[at]}.",
                hint=AGAIN,
            )
    return {at: LogRange(starts[at], min(ends[at], starts[at] + RECORDS)) for at in places}


def _read_from_anchors(
    reader: LogReader, rows: Sequence[PartitionPlan], ranges: Mapping[TopicPartition, LogRange]
) -> dict[TopicPartition, list[Record]]:
    """The records from each plan row's anchor record on, or from its resume offset if it has none.

    A job that stays on this cluster may have processed any number of records since its anchor: for its rows only the
    anchor's record and the batch are read.
    """
    spans: dict[TopicPartition, LogRange] = {}
    old: dict[TopicPartition, LogRange] = {}
    for row in rows:
        begin = row.resume_offset if row.record_offset is None else row.record_offset
        if row.key not in ranges or begin is None:
            continue
        if row.is_right and row.record_offset is not None:
            old[row.key], spans[row.key] = LogRange(begin, begin + 1), ranges[row.key]
        else:
            spans[row.key] = LogRange(begin, max(ranges[row.key].end, begin + 1))
    following = read_ranges(reader, spans)
    return {**following, **{at: found + following[at] for at, found in read_ranges(reader, old).items()}}


def _try_partition(
    row: PartitionPlan,
    policy: StartPolicy,
    identity: Identity,
    ranges: Mapping[TopicPartition, LogRange],
    behind: Mapping[TopicPartition, Sequence[Record]],
) -> Tried:
    at, stopped = row.key, why_stopped(row, policy)
    if at not in ranges:
        return Tried(row, stopped, None, (), "nothing to read")
    records = behind.get(at, ())
    found, fault = _judge(row, identity, ranges[at], records)
    read = tuple(each for each in records if ranges[at].start <= each.offset < ranges[at].end)
    return Tried(row, stopped, ranges[at].start, read, found, fault)


def _judge(
    row: PartitionPlan, identity: Identity, where: LogRange, records: Sequence[Record]
) -> tuple[str, str | None]:
    """The proof that the batch gives, and its fault."""
    if row.resume_offset != where.start:
        return "", f"the copy of the checkpoint begins at {where.start}, and the plan at {row.resume_offset}"
    has_records = any(record.offset >= where.start for record in records)
    if row.record_offset is None:
        return "first record" if has_records else "end of log", None
    anchor = records[0] if records else None
    if anchor is None or anchor.offset != row.record_offset or not _is_anchor(row, identity, anchor):
        return "", f"the record at {row.record_offset} is not the plan's anchor"
    between = sum(row.record_offset < record.offset < where.start for record in records)
    if between and row.finding is Verdict.EXACT and not row.is_right and identity.id_order is not IdOrder.INCREASING:
        return "", f"{between} records are between the anchor, {row.record_offset}, and the batch"
    return f"after {row.record_offset:,}{'' if has_records else ', end of log'}", None


def _is_anchor(row: PartitionPlan, identity: Identity, record: Record) -> bool:
    """True if the record is the plan's anchor. With increasing ids another record may be the proof."""
    anchor, same = row.anchor, row.names(record)
    if same is not None:
        return same
    if anchor is None or row.set_by_hand or row.finding is not Verdict.EXACT:
        return True
    if row.matched_by == MatchedBy.ID and anchor.id_hash is not None and identity.id_of is not None:
        if identity.id_order is IdOrder.INCREASING:
            return True
        found = identity.id_of(record)
        return found is not None and hashlib.sha256(found).hexdigest()[:16] == anchor.id_hash
    if row.matched_by == MatchedBy.FINGERPRINT:
        return anchor.fingerprint is not None and has_fingerprint(record, anchor.fingerprint)
    return True


Ranges = Mapping[TopicPartition, LogRange]


def read_ranges(reader: LogReader, ranges: Ranges) -> dict[TopicPartition, list[Record]]:
    """All records of the ranges. Raises Changed if one is no longer in the log, and the reader's errors."""
    found: dict[TopicPartition, list[Record]] = {at: [] for at in ranges}
    places = {at: of.start for at, of in ranges.items() if of.start < of.end}
    while places:
        requests = [ReadRequest(at, place, ranges[at].end - place) for at, place in places.items()]
        for request, chunk in zip(requests, reader.read(requests), strict=True):
            at = request.partition
            if chunk.out_of_range:
                raise Changed(
                    f"{at}: offset {request.offset} is no longer in the log.",
                    hint="Run the drill again.",
                )
            found[at] += [record for record in chunk.records if record.offset < ranges[at].end]
            places[at] = chunk.next_offset
            if chunk.next_offset >= ranges[at].end or not chunk.records:
                del places[at]
    return found
