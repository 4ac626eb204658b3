"""Logs that change under the search: retention between any two calls, topics deleted and recreated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

import pytest

from reconciler.core.errors import Changed
from reconciler.core.probes import Chunk
from reconciler.failover.check import check
from reconciler.failover.writing.apply import prepare
from reconciler.kafka.reader import KafkaLogReader
from reconciler.plan.document import JobPlan, PartitionPlan, Plan
from reconciler.ports import ReadRequest
from tests.demo.lab.faults.faulty import Act, Acting, Moment
from tests.failover.faults.numbered import COUNT, KINDS, LAST, Jobs, Kind, write, wrong

pytestmark = pytest.mark.system

CUTS = (10, LAST, LAST + 1, LAST + 10, COUNT)
"""Where retention cuts each partition: in front of the anchor, at it, behind it, behind unread records, at the end."""
KEPT = range(LAST // 2, COUNT)
"""The records that a recreated topic gets from the mirror: the source has kept no more. All offsets differ."""


@dataclass
class Trial:
    """A mirrored topic of full partitions, jobs that have read it up to record ``LAST``, and a reader of their own."""

    topic: str
    reader: KafkaLogReader
    jobs: Jobs

    def check(self, acts: Mapping[Moment, Act] | None = None) -> tuple[Plan, list[str]]:
        """The plan, and the calls that were made for it."""
        acting = Acting(self.reader, acts)
        return check(self.jobs.config, self.jobs.config.jobs, self.jobs.outside(acting)).plan, acting.calls

    def prepare(self, plan: Plan, acts: Mapping[Moment, Act] | None = None) -> tuple[list[PartitionPlan], list[str]]:
        """The rows that applying would write, and the calls that were made to find them."""
        acting = Acting(self.reader, acts)
        changes = prepare(plan, self.jobs.config, self.jobs.outside(acting))
        return [item.row for change in changes for item in change.intended], acting.calls


Begin = Callable[..., AbstractContextManager[Trial]]


@pytest.fixture
def trial(clusters, topic_name: str) -> Begin:
    @contextmanager
    def begin(
        number: int, kinds: Sequence[Kind], partitions: int = 1, numbers: Sequence[int] = range(COUNT)
    ) -> Iterator[Trial]:
        cluster, name = clusters.destination, f"{topic_name}-{number}"
        cluster.create_topic(f"a.{name}", partitions)
        write(cluster, f"a.{name}", numbers, range(partitions))
        with closing(KafkaLogReader({"bootstrap.servers": cluster.bootstrap})) as reader:
            jobs = Jobs.of(name, [name], kinds)
            jobs.save(reader, kinds)
            yield Trial(f"a.{name}", reader, jobs)

    return begin


def named(*words: str) -> tuple[Kind, ...]:
    return tuple(kind for kind in KINDS if kind.name.endswith(words))


def faults(rows: Iterable[tuple[str, PartitionPlan]], starts: Sequence[int], numbers: Sequence[int]) -> list[str]:
    """The faults of the rows of jobs, in words. ``starts``: where each partition's log begins."""
    found = [(job, row, wrong(row, starts[row.partition], numbers)) for job, row in rows]
    return [f"{job}-{row.partition}: {row.finding.value} {row.resume_offset} {why}" for job, row, why in found if why]


def rows_of(jobs: Iterable[JobPlan]) -> list[tuple[str, PartitionPlan]]:
    return [(job.name, row) for job in jobs for row in job.partitions]


# ---------------------------------------------------------------- retention


def test_retention_between_any_two_calls_of_a_check_skips_nothing(clusters, trial: Begin) -> None:
    moment, calls = 0, 1
    while moment < calls:
        moment += 1
        with trial(moment, KINDS, len(CUTS)) as made:

            def cut(topic: str = made.topic) -> None:
                for partition, before in enumerate(CUTS):
                    clusters.destination.delete_records(topic, partition, before)

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
    clusters, trial: Begin, kind: Kind, before: int
) -> None:
    refused = []
    moment, calls = 0, 1
    while moment < calls:
        moment += 1
        with trial(moment, [kind]) as made:
            plan, _ = made.check()
            cut: Act = lambda topic=made.topic: clusters.destination.delete_records(topic, 0, before)  # noqa: E731
            try:
                rows, names = made.prepare(plan, {moment: cut})
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

    def __init__(self, reader: KafkaLogReader, number: int) -> None:
        super().__init__(reader)
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


def test_a_log_that_seems_shorter_for_a_moment_is_not_taken_at_its_word(clusters, trial: Begin) -> None:
    """A leader that has just taken over may lag behind its own log (KIP-207 tells of it for lookups, not for reads)."""
    kinds = [kind for kind in KINDS if not kind.own]  # what the mirror sent twice has two numbers here
    with trial(1, kinds, 2, CUT_OFF) as made:
        clusters.destination.delete_records(made.topic, 0, LAST + 1)
        starts, read, wrongs = [LAST + 1, 0], 0, {}
        came = True
        while came:
            read += 1
            early = EndsEarly(made.reader, read)
            plan = check(made.jobs.config, made.jobs.config.jobs, made.jobs.outside(early)).plan
            came = early.came
            wrongs[f"read {read} of {early.calls}"] = faults(rows_of(plan.jobs), starts, CUT_OFF)
    assert not wrongs.popitem()[1], "wrong though every read was answered in full"
    assert read > 5
    assert not any(wrongs.values()), wrongs


# ---------------------------------------------------------------- topics recreated


@pytest.fixture
def recreate(clusters) -> Callable[[str], Act]:
    def of(topic: str) -> Act:
        def make() -> None:
            cluster = clusters.destination
            cluster.admin().delete_topics([topic])[topic].result(30)
            cluster.create_topic(topic)
            write(cluster, topic, KEPT)

        return make

    return of


def test_a_check_of_a_topic_recreated_between_any_two_calls_is_of_the_new_topic_or_of_none(
    trial: Begin, recreate
) -> None:
    kinds = named("by content", "increasing id alone", "by time alone", "destination's numbers")
    moment, calls, wrongs = 0, 1, {}
    while moment < calls:
        moment += 1
        with trial(moment, kinds) as made:
            try:
                plan, names = made.check({moment: recreate(made.topic)})
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
    trial: Begin, recreate, kind: Kind
) -> None:
    """Also where nothing names the record that the offset was checked against."""
    moment, calls, wrongs = 0, 1, {}
    while moment < calls:
        moment += 1
        with trial(moment, [kind]) as made:
            plan, _ = made.check()
            try:
                rows, names = made.prepare(plan, {moment: recreate(made.topic)})
            except Changed:
                calls = moment + 1
                continue
        calls = len(names)
        if moment <= calls:
            wrongs[f"before call {moment} of {names}"] = faults([(kind.name, row) for row in rows], [0], KEPT)
    assert moment > 3
    assert not any(wrongs.values()), wrongs
