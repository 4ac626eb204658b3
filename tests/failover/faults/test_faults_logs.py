"""Logs that change under the search: retention between any two calls, topics deleted and recreated. In memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from reconciler.core.errors import Changed
from reconciler.core.probes import Chunk
from reconciler.failover.check import check
from reconciler.failover.writing.apply import prepare
from reconciler.plan.document import JobPlan, PartitionPlan, Plan
from reconciler.ports import ReadRequest
from tests.demo.lab.faults.faulty import Act, Acting, Moment
from tests.failover.faults.numbered import COUNT, KINDS, LAST, Jobs, Kind, Numbered, wrong
from tests.memory_log import MemoryLog

TOPIC = "a.events"
CUTS = (10, LAST, LAST + 1, LAST + 10, COUNT)
"""Where retention cuts each partition: in front of the anchor, at it, behind it, behind unread records, at the end."""
KEPT = range(LAST // 2, COUNT)
"""The records that a recreated topic gets from the mirror: the source has kept no more. All offsets differ."""


@dataclass
class Trial:
    """A mirrored topic of full partitions, and jobs that have read it up to record ``LAST``."""

    log: MemoryLog
    jobs: Jobs

    @classmethod
    def of(
        cls, kinds: Sequence[Kind], partitions: int = 1, numbers: Iterable[int] = range(COUNT), name: str = "events"
    ) -> Trial:
        log = MemoryLog("b", {TOPIC: partitions})
        write(log, numbers)
        jobs = Jobs.of(name, ["events"], kinds)
        jobs.save(log, kinds)
        return cls(log, jobs)

    def check(self, acts: Mapping[Moment, Act] | None = None) -> tuple[Plan, list[str]]:
        """The plan, and the calls that were made for it."""
        acting = Acting(self.log, acts)
        return check(self.jobs.config, self.jobs.config.jobs, self.jobs.outside(acting)).plan, acting.calls

    def prepare(self, plan: Plan, acts: Mapping[Moment, Act] | None = None) -> tuple[list[PartitionPlan], list[str]]:
        """The rows that applying would write, and the calls that were made to find them."""
        acting = Acting(self.log, acts)
        changes = prepare(plan, self.jobs.config, self.jobs.outside(acting))
        return [item.row for change in changes for item in change.intended], acting.calls


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Callable[..., Trial]:
    return partial(Trial.of, name=request.node.nodeid)


def write(log: MemoryLog, numbers: Iterable[int]) -> None:
    """These records, in this order, in each partition."""
    for number in numbers:
        record = Numbered(number)
        for partition in log.partitions.values():
            partition.append(record.time, record.key, record.value)


def named(*words: str) -> tuple[Kind, ...]:
    return tuple(kind for kind in KINDS if kind.name.endswith(words))


def faults(rows: Iterable[tuple[str, PartitionPlan]], starts: Sequence[int], numbers: Sequence[int]) -> list[str]:
    """The faults of the rows of jobs, in words. ``starts``: where each partition's log begins."""
    found = [(job, row, wrong(row, starts[row.partition], numbers)) for job, row in rows]
    return [f"{job}-{row.partition}: {row.finding.value} {row.resume_offset} {why}" for job, row, why in found if why]


def rows_of(jobs: Iterable[JobPlan]) -> list[tuple[str, PartitionPlan]]:
    return [(job.name, row) for job in jobs for row in job.partitions]


# ---------------------------------------------------------------- retention


def test_retention_between_any_two_calls_of_a_check_skips_nothing(trial: Callable[..., Trial]) -> None:
    moment, calls = 0, 1
    while moment < calls:
        moment += 1
        made = trial(KINDS, len(CUTS))

        def cut(made: Trial = made) -> None:
            for partition, before in enumerate(CUTS):
                made.log.partition(TOPIC, partition).delete_before(before)

        plan, names = made.check({moment: cut})
        calls = len(names)
        starts = CUTS if moment <= calls else [0] * len(CUTS)
        rows = rows_of(plan.jobs)
        assert len(rows) == len(KINDS) * len(CUTS)
        assert not faults(rows, starts, range(COUNT)), f"retention before call {moment} of {names}"
    assert moment > 10


@pytest.mark.parametrize("before", [LAST, LAST + 1, LAST + 10])
@pytest.mark.parametrize("kind", named("by content", "by time alone"), ids=lambda kind: kind.name)
def test_retention_between_any_two_calls_of_an_apply_writes_nothing_wrong(
    trial: Callable[..., Trial], kind: Kind, before: int
) -> None:
    refused = []
    moment, calls = 0, 1
    while moment < calls:
        moment += 1
        made = trial([kind])
        plan, _ = made.check()
        try:
            rows, names = made.prepare(plan, {moment: partial(made.log.partition(TOPIC, 0).delete_before, before)})
        except Changed:
            refused.append(moment)
            calls = moment + 1
            continue
        calls = len(names)
        start = before if moment <= calls else 0
        assert not faults([(kind.name, row) for row in rows], [start], range(COUNT)), f"before call {moment} of {names}"
    assert refused == list(range(1, len(refused) + 1)), "what was noticed later must be noticed earlier"
    assert refused or before == LAST
    assert moment > 3


# ---------------------------------------------------------------- a log that is shorter for a moment


class EndsEarly(Acting):
    """One read, of all, finds the end of the log where it begins, as behind a leader that does not know better yet."""

    def __init__(self, log: MemoryLog, number: int) -> None:
        super().__init__(log)
        self._number = number

    @property
    def came(self) -> bool:
        return self.calls.count("read") >= self._number

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        chunks = super().read(requests)
        if self.calls.count("read") != self._number:
            return chunks
        return [Chunk((), request.offset) for request in requests]


CUT_OFF = [*range(COUNT), LAST - 1, LAST, LAST + 1]
"""The mirror sent three records again. Of the first ones retention leaves nothing up to the anchor."""


def test_a_log_that_seems_shorter_for_a_moment_is_not_taken_at_its_word(trial: Callable[..., Trial]) -> None:
    """A leader that has just taken over may lag behind its own log (KIP-207 tells of it for lookups, not for reads)."""
    kinds = [kind for kind in KINDS if not kind.own]  # what the mirror sent twice has two numbers here
    made = trial(kinds, 2, CUT_OFF)
    made.log.partition(TOPIC, 0).delete_before(LAST + 1)
    starts, read, wrongs = [LAST + 1, 0], 0, {}
    came = True
    while came:
        read += 1
        early = EndsEarly(made.log, read)
        plan = check(made.jobs.config, made.jobs.config.jobs, made.jobs.outside(early)).plan
        came = early.came
        wrongs[f"read {read} of {early.calls}"] = faults(rows_of(plan.jobs), starts, CUT_OFF)
    assert not wrongs.popitem()[1], "wrong though every read was answered in full"
    assert read > 5
    assert not any(wrongs.values()), wrongs


# ---------------------------------------------------------------- topics recreated


def recreate(log: MemoryLog) -> None:
    log.create(TOPIC, 1, topic_id="another")
    write(log, KEPT)


def test_a_check_of_a_topic_recreated_between_any_two_calls_is_of_the_new_topic_or_of_none(
    trial: Callable[..., Trial],
) -> None:
    kinds = named("by content", "increasing id alone", "by time alone", "destination's numbers")
    moment, calls, wrongs = 0, 1, {}
    while moment < calls:
        moment += 1
        made = trial(kinds)
        try:
            plan, names = made.check({moment: partial(recreate, made.log)})
        except Changed:
            calls = moment + 1
            continue
        calls = len(names)
        if moment <= calls:
            wrongs[f"before call {moment} of {names}"] = faults(rows_of(plan.jobs), [0], KEPT)
    assert moment > 8
    assert not any(wrongs.values()), wrongs


@pytest.mark.parametrize("kind", named("by content", "by time alone"), ids=lambda kind: kind.name)
def test_a_topic_recreated_between_any_two_calls_of_an_apply_gets_no_offset_of_the_old_one(
    trial: Callable[..., Trial], kind: Kind
) -> None:
    """Also where nothing names the record that the offset was checked against."""
    moment, calls, wrongs = 0, 1, {}
    while moment < calls:
        moment += 1
        made = trial([kind])
        plan, _ = made.check()
        try:
            rows, names = made.prepare(plan, {moment: partial(recreate, made.log)})
        except Changed:
            calls = moment + 1
            continue
        calls = len(names)
        if moment <= calls:
            wrongs[f"before call {moment} of {names}"] = faults([(kind.name, row) for row in rows], [0], KEPT)
    assert moment > 3
    assert not any(wrongs.values()), wrongs
