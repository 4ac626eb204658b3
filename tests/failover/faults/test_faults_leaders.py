"""Three brokers: leaders that move, die and freeze under a search, and one that lacked the end of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.kafka.reader import FETCH_BYTES, KafkaLogReader
from reconciler.plan.document import PartitionPlan
from reconciler.ports import LogReader
from tests.demo.lab.faults.faulty import Acting, Ambush, quiet
from tests.demo.lab.faults.leaders import await_that, elect, in_sync, leaders, prefer
from tests.demo.lab.kafka import KafkaCluster
from tests.failover.faults.numbered import COUNT, KINDS, LAST, Jobs, write, wrong

# In every run test_engine.py has calls that fail and are repeated, and the simulation logs that were cut.
pytestmark = [pytest.mark.system, pytest.mark.thorough]

PARTITIONS = 30
PADDING = 4_000
assert FETCH_BYTES[0] < PADDING * (COUNT - LAST), "one fetch brings a part of what a search reads"
TIMEOUT_S = 3
"""Seconds a call may take. A dead broker is given up by its controller after about as many."""
NAMES = ("by content", "destination's numbers")


@dataclass
class Trio:
    """A cluster of three, and jobs that have read a mirrored topic of many partitions up to record ``LAST``."""

    cluster: KafkaCluster
    jobs: Jobs

    def check(self, acting: LogReader, jobs: Jobs | None = None) -> list[tuple[str, PartitionPlan]]:
        jobs = jobs or self.jobs
        plan = check(jobs.config, jobs.config.jobs, jobs.outside(acting)).plan
        return [(job.name, row) for job in plan.jobs for row in job.partitions]

    def reader(self) -> KafkaLogReader:
        return KafkaLogReader(quiet(self.cluster.bootstrap), timeout_s=TIMEOUT_S)

    def spread(self, turn: int = 0) -> None:
        """Every broker leads a third of the partitions; another one for every ``turn``."""
        prefer(self.cluster, "a.events", {number: (number + turn) % 3 + 1 for number in range(PARTITIONS)})

    def heal(self) -> None:
        """All brokers up and in sync, leaders spread again."""
        for broker in self.cluster.brokers:
            broker.resume()
            if not broker.running:
                self.cluster.restart_broker(broker.number)
        await_that(
            self.cluster, lambda: all(len(each) == 3 for each in in_sync(self.cluster, "a.events").values()), "sync"
        )
        elect(self.cluster, "a.events")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Trio]:
    with KafkaCluster("trio", tmp_path_factory.mktemp("trio"), kafka_jars, brokers=3) as cluster:
        cluster.create_topic("a.events", PARTITIONS, replication_factor=3)
        write(cluster, "a.events", range(COUNT), range(PARTITIONS), padding=PADDING, acks="all")
        kinds = [kind for kind in KINDS if kind.name.endswith(NAMES)]
        made = Trio(cluster, Jobs.of("events", ["events"], kinds, deadline_s=25))
        with closing(made.reader()) as reader:
            made.jobs.save(reader, kinds)
        made.spread()
        yield made


@pytest.fixture
def trio(whole: Trio) -> Iterator[Trio]:
    elect(whole.cluster, "a.events")
    yield whole
    whole.heal()


def all_right(rows: Sequence[tuple[str, PartitionPlan]]) -> bool:
    """True if every partition of both jobs was found to the record."""
    wanted = {job: Verdict.EXACT for job, _ in rows}
    exact = [
        (job, row)
        for job, row in rows
        if (row.finding, row.resume_offset, row.replay_exact) != (wanted[job], LAST + 1, 0)
    ]
    assert not exact
    return len(rows) == 2 * PARTITIONS


# ---------------------------------------------------------------- leaders that move


def test_leaders_that_move_between_any_two_calls_change_nothing(trio: Trio) -> None:
    with closing(trio.reader()) as reader:
        acting = Acting(reader, {})
        assert all_right(trio.check(acting))
    calls = acting.calls
    assert len(calls) > 4
    for moment in range(1, len(calls) + 1):
        trio.spread(moment)
        before = leaders(trio.cluster, "a.events")
        with closing(trio.reader()) as reader:
            acting = Acting(reader, {moment: lambda: elect(trio.cluster, "a.events")})
            assert all_right(trio.check(acting)), f"leaders moved before call {moment} of {acting.calls}"
        assert leaders(trio.cluster, "a.events") != before


# ---------------------------------------------------------------- leaders that die or freeze


@pytest.mark.parametrize("call", ["log_starts", "read"])
def test_where_a_leader_dies_for_good_in_the_middle_of_a_call_a_follower_answers(trio: Trio, call: str) -> None:
    broker = trio.cluster.broker(2)
    assert 2 in leaders(trio.cluster, "a.events").values()
    with closing(trio.reader()) as reader, Ambush(broker, broker.kill) as ambush:
        acting = Acting(reader, {call: ambush})
        assert all_right(trio.check(acting))
    assert ambush.struck
    assert not broker.running
    assert 2 not in leaders(trio.cluster, "a.events").values()


@pytest.mark.parametrize("call", ["log_starts", "read"])
def test_where_a_leader_freezes_a_follower_answers(trio: Trio, call: str) -> None:
    assert 2 in leaders(trio.cluster, "a.events").values()
    with closing(trio.reader()) as reader:
        acting = Acting(reader, {call: trio.cluster.broker(2).pause})
        assert all_right(trio.check(acting))
    assert 2 not in leaders(trio.cluster, "a.events").values()


# ---------------------------------------------------------------- a leader that has not got all of the log

REPLICATED = 20
"""Records that both replicas have; the rest is only where it was written. The last processed one is not among them."""
OTHERS = range(100, 140)
"""Records that are written to the log after it was cut: none of them was processed."""


def test_a_log_that_an_unclean_election_cut_is_never_a_match_for_what_was_read_beyond(trio: Trio) -> None:
    """First the cut falls into the search itself, then others write on, then the old leader follows the new one."""
    cluster, topic = trio.cluster, "a.cut"
    cluster.create_topic(topic, replica_assignment=[[1, 2]])
    write(cluster, topic, range(REPLICATED), acks="all")
    cluster.broker(2).kill()
    await_that(cluster, lambda: in_sync(cluster, topic)[0] == {1}, "the leader to be alone")
    write(cluster, topic, range(REPLICATED, COUNT), acks="1")
    jobs = Jobs.of("cut", ["cut"])

    def look(acting: LogReader, numbers: Sequence[int]) -> dict[str, PartitionPlan]:
        rows = trio.check(acting, jobs)
        assert not [(job, row, why) for job, row in rows if (why := wrong(row, 0, numbers))]
        beyond = [row for _, row in rows if row.resume_offset is None or row.resume_offset > len(numbers)]
        assert not beyond, "an offset that the log does not hold"
        return {job.removeprefix("cut "): row for job, row in rows}

    def cut() -> None:
        cluster.broker(1).kill()
        cluster.restart_broker(2)
        await_that(cluster, lambda: leaders(cluster, topic)[0] == -1, "the partition to be without a leader")
        elect(cluster, topic, unclean=True)

    with closing(trio.reader()) as reader:
        jobs.save(reader)
        whole = look(reader, range(COUNT))
        during = look(Acting(reader, {"read": cut}), range(REPLICATED))
    own = "in the destination's numbers"
    assert (whole[own].finding, whole[own].resume_offset) == (Verdict.EXACT, LAST + 1)
    assert (during[own].finding, during[own].resume_offset) == (Verdict.BEHIND, REPLICATED)
    assert cluster.end_offsets(topic) == {0: REPLICATED}

    write(cluster, topic, OTHERS, acks="1")
    with closing(trio.reader()) as reader:
        after = look(reader, [*range(REPLICATED), *OTHERS])
    assert after[own].finding is not Verdict.EXACT
    assert after[own].resume_offset == REPLICATED

    cluster.restart_broker(1)
    elect(cluster, topic)
    assert leaders(cluster, topic) == {0: 1}
    with closing(trio.reader()) as reader:
        assert {job: row.resume_offset for job, row in look(reader, [*range(REPLICATED), *OTHERS]).items()} == {
            job: row.resume_offset for job, row in after.items()
        }
