"""The end of a batch that was begun and not committed: a second position for every partition of a plan.

A restart repeats such a batch, from its start to its end. The start is where everything before was processed; the plan
has it as ever. The end matters to sinks that know a batch by its number: what they have of the batch then is what they
get again. It is looked for as the start is, by its own anchor. ``recording`` lays one aside for it, and ``track`` keeps
one where the configuration has a second job, with a group of its own, with the checkpoint's address and
``?position=end``. Where none was kept, or nothing could be proven, the batch is repeated empty: its records come in the
next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reconciler.core.plan import JobPlan, PartitionPlan, Plan
from reconciler.core.verdicts import STOPS, Verdict
from reconciler.layouts.spark_checkpoint import END, NEXT, START
from reconciler.operations.check import ByHand, Checked, Outside, check
from reconciler.operations.config import Config, Job
from reconciler.operations.gather import StoreOpener
from reconciler.ports import Capabilities, Change, OffsetStore, Row, WriteResult
from reconciler.stores.checkpoint import read_checkpoint
from reconciler.stores.paired import read_kept
from reconciler.stores.paired_rules import by_offset
from reconciler.stores.paired_steps import NOTHING
from reconciler.stores.registry import open_store

SCHEME = "checkpoint:"
ENDS = "?position=end"
"""Behind the address of a checkpoint: its rows are where the batch that a restart repeats ends."""


def check_positions(config: Config, jobs: Sequence[Job], outside: Outside, by_hand: ByHand | None = None) -> Checked:
    """``check``, with rows for ``start`` and ``end`` where a job's checkpoint repeats a batch. Raises what it raises.

    What a person sets by hand is where the next records are read: it sets the start, and the batch is repeated empty.
    """
    checked = check(config, jobs, outside, by_hand)
    repeating = {job.name: job for job in jobs if _repeats(job)}
    if not repeating:
        return checked
    ends = _check_ends(config, list(repeating.values()), outside)
    jobs_now = tuple(both(job, ends[job.name]) if job.name in ends else job for job in checked.plan.jobs)
    return replace(checked, plan=replace(checked.plan, jobs=jobs_now))


def find_ends(config: Config, job: JobPlan, outside: Outside) -> JobPlan:
    """A planned job with the ends that its plan lacks, looked up now. Raises what ``check`` does."""
    (configured,) = config.chosen(job.name)
    if not configured.store.startswith(SCHEME) or any(row.position != NEXT for row in job.partitions):
        return job
    return both(job, _check_ends(config, [configured], outside)[job.name])


def _check_ends(config: Config, jobs: Sequence[Job], outside: Outside) -> dict[str, JobPlan]:
    ending = [replace(ends_of(config, job), name=job.name) for job in jobs]
    at_ends = replace(outside, open_store=ends_opener(config, outside))
    return {job.name: job for job in check(config, ending, at_ends).plan.jobs}


def _repeats(job: Job) -> bool:
    if not job.store.startswith(SCHEME) or job.store.endswith(ENDS):
        return False
    return read_checkpoint(job.store.removeprefix(SCHEME)).repeats_a_batch


def ends_of(config: Config, job: Job) -> Job:
    """The configured job for the ends of another one's checkpoint; that job itself, with this address, if none is."""
    store = job.store + ENDS
    return next((each for each in config.jobs if each.store == store), replace(job, store=store))


class EndRows:
    """The ends of a checkpoint's batch with the anchors that were kept for exactly them. Read only.

    A paired store would take an anchor that lies aside for the end of a batch that runs for one that an interrupted
    write has left, and put it in the place of the start's.
    """

    def __init__(self, bare: OffsetStore, anchors: OffsetStore) -> None:
        self._bare = bare
        self._anchors = anchors

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._bare.capabilities, keeps_anchors=True)

    @property
    def address(self) -> str:
        return self._bare.address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """Ordered by topic and partition. Raises what both stores do."""
        own = self._bare.read(group, topics)
        kept = read_kept(self._anchors, group, sorted({row.key.topic for row in own}))
        rows = [by_offset(row.key, row, kept.get(row.key, NOTHING)) for row in own]
        return [row for row in rows if row is not None]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Refused, as for every checkpoint."""
        return self._bare.write(group, changes, reason=reason, now_ms=now_ms)

    def create(self) -> None:
        """Nothing."""

    def check_writable(self, group: str) -> None:
        """Raise Refused."""
        self._bare.check_writable(group)

    def close(self) -> None:
        try:
            self._bare.close()
        finally:
            self._anchors.close()


def ends_opener(config: Config, outside: Outside) -> StoreOpener:
    """What opens the stores that ``outside`` opens, but those of ends only to be read."""

    def opened(address: str) -> OffsetStore:
        if not address.endswith(ENDS) or config.anchor_store is None:
            return outside.open_store(address)
        return EndRows(open_store(address), outside.open_store(config.anchor_store))

    return opened


def with_ends(plan: Plan, job: JobPlan) -> JobPlan:
    """A job's rows, with those that the plan has of the ends of its checkpoint as another job."""
    ends = [each for each in plan.jobs if each.store == job.store + ENDS]
    if not ends or any(row.position != NEXT for row in job.partitions):
        return job
    return both(job, ends[0])


def both(starts: JobPlan, ends: JobPlan) -> JobPlan:
    """One job's rows for both positions."""
    found = {(row.topic, row.partition): row for row in ends.partitions}
    rows: list[PartitionPlan] = []
    for row in starts.partitions:
        rows.append(replace(row, position=START))
        end = found.get((row.topic, row.partition))
        if end is not None:
            rows.append(_end(row, replace(end, position=END)))
    return replace(starts, partitions=tuple(rows))


def _end(start: PartitionPlan, end: PartitionPlan) -> PartitionPlan:
    """An end that is not proven, or lies in front of the start, is the start: the batch is then repeated empty."""
    if start.resume_offset is None or start.set_by_hand:
        usable = False
    else:
        usable = end.verdict not in STOPS and end.resume_offset is not None and end.resume_offset >= start.resume_offset
    if usable:
        return end
    most = None
    if end.stored_offset is not None:
        most = max(0, end.stored_offset - (start.stored_offset or 0))
    verdict = Verdict.BOUNDED if start.resume_offset is not None else start.verdict
    return replace(
        end,
        verdict=verdict,
        resume_offset=start.resume_offset,
        record_offset=start.record_offset,
        replay_at_most=most,
        replay_exact=None,
        matched_by=None,
        detail=f"the batch is repeated empty, and its records come in the next one; {end.detail}",
        set_by_hand=start.set_by_hand,
    )
