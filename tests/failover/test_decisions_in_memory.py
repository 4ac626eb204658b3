"""A person's word: what an offset set by hand skips, a time for a whole job, and words that fit several jobs."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.verdicts import Finding, Skips, Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.checking.decisions import SeveralJobs
from reconciler.failover.checking.gather import JobPartition, Selected
from reconciler.failover.checking.rows import _row
from reconciler.failover.outside import ByHand, WrongDecision
from reconciler.kafka.engine import SearchResult
from reconciler.plan.costs import outcome
from reconciler.plan.document import PartitionPlan, parse_plan
from reconciler.plan.start import why_stopped
from reconciler.ports import Row, TopicPartition
from reconciler.state.stored import Stored
from tests.in_memory import BASE, GROUP, Memory, anchor, content, found, stored


def stops(memory: Memory, row: PartitionPlan) -> str | None:
    return why_stopped(row, memory.config().policy.start)


def at(offset: int, *, skips: bool = False) -> ByHand:
    return ByHand({("a.events", 0): offset}, skips=skips)


def test_two_offsets_for_one_partition_under_its_two_names_are_refused(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(6)})
    both = r"--set a\.events:0=5 and --set events:0=7 are two offsets for one partition"
    with pytest.raises(WrongDecision, match=both):
        memory.row(by_hand=ByHand({("events", 0): 7, ("a.events", 0): 5}))
    assert found(memory.row(by_hand=ByHand({("events", 0): 5, ("a.events", 0): 5}))) == (Verdict.EXACT, 5)


def test_a_name_that_both_clusters_have_is_the_destinations(memory: Memory) -> None:
    """``events`` is b's own topic, and ``a.events`` that of a: an offset of the one is not set for the other."""
    memory.of_job = 'origins = ["a", "b"]\n'
    memory.log.create("events", 1)
    for topic, partition in (("events", "b.events"), ("a.events", "events")):
        memory.deliver(range(10), topic=topic)
        memory.save({0: stored(6)}, topic=partition)
    job = memory.job('[state]\nstore = "memory:"\n', ByHand({("events", 0): 5}))
    assert {row.topic: (row.resume_offset, row.set_by_hand) for row in job.partitions} == {
        "events": (5, True),
        "a.events": (7, False),
    }


# ---------------------------------------------------------------- what an offset skips


def test_an_offset_beyond_the_proven_one_skips_and_stops_until_that_is_accepted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})  # proven: 4
    row = memory.row(by_hand=at(9))
    assert (found(row), row.set_by_hand, row.skips) == ((Verdict.EXACT, 9), True, Skips(5, 5))
    assert "skips 5 records" in str(stops(memory, row))
    assert "--accept skips" in str(stops(memory, row))
    assert "proven: 4" in row.detail
    accepted = memory.row(by_hand=at(9, skips=True))
    assert (accepted.skips, accepted.skips_accepted, stops(memory, accepted)) == (Skips(5, 5), True, None)


@pytest.mark.parametrize("offset", [0, 3, 4])
def test_an_offset_at_or_before_the_proven_one_skips_nothing(memory: Memory, offset: int) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    row = memory.row(by_hand=at(offset, skips=True))
    assert (row.skips, row.skips_accepted, stops(memory, row)) == (None, False, None)


def test_gaps_are_not_counted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).compact([5, 6, 7])
    memory.save({0: stored(3)})
    assert memory.row(by_hand=at(9)).skips == Skips(2, 2)


def test_nothing_but_gaps_is_no_skip(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).compact([4, 5])
    memory.save({0: stored(3)})
    row = memory.row(by_hand=at(6))
    assert (row.skips, stops(memory, row)) == (None, None)


def test_what_the_budget_does_not_reach_counts_as_skipped_at_most(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    assert memory.row("[search]\nscan_records = 2", at(9)).skips == Skips(0, 5)


def test_records_that_may_be_processed_are_not_surely_skipped(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 9, anchor(5))})  # three records between may be processed; proven: 6
    assert memory.row(by_hand=at(8)).skips == Skips(0, 2)
    assert memory.row(by_hand=at(10)).skips == Skips(1, 4)


def test_where_nothing_is_proven_the_skip_is_unknown_and_bounded_by_the_logs_start(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).delete_before(2)
    memory.save({0: StoredOffset(BASE + 6)})
    row = memory.row(by_hand=at(7))
    assert (found(row), row.skips) == ((Verdict.UNRESOLVED, 7), Skips(0, 5))
    assert "unknown" in str(stops(memory, row))
    assert stops(memory, memory.row(by_hand=at(7, skips=True))) is None
    assert memory.row(by_hand=at(2)).skips is None


def test_where_records_are_lost_already_those_that_are_left_count(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).delete_before(8)
    memory.save({0: stored(2)})
    row = memory.row(by_hand=at(10))
    assert (found(row), row.skips) == ((Verdict.LOST, 10), Skips(2, 2))
    assert stops(memory, row) is not None


def test_accepting_skips_accepts_nothing_else(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).delete_before(8)
    memory.save({0: stored(2)})
    row = memory.row(by_hand=ByHand(skips=True))
    assert (row.set_by_hand, row.skips_accepted) == (False, False)
    assert stops(memory, row) is not None


def test_a_plan_that_skips_is_applied_only_once_that_is_accepted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    memory.apply(by_hand=at(9))
    assert [row.key.topic for row in memory.rows()] == ["events"]
    memory.apply(by_hand=at(9, skips=True))
    assert {row.key.topic: row.stored.offset for row in memory.rows()}["a.events"] == 9


def test_the_whole_says_what_is_skipped(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    said = outcome(memory.check(by_hand=at(9, skips=True)).plan)
    assert said == "at most 1 record will be read again, and 5 records skipped by hand"


def test_a_plan_keeps_its_skips(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    plan = memory.check(by_hand=at(9, skips=True)).plan
    assert parse_plan(plan.to_text()) == plan
    assert plan.to_json()["jobs"][0]["partitions"][0]["skips"] == {"at_least": 5, "at_most": 5, "accepted": True}


# ---------------------------------------------------------------- a time for all partitions


def test_a_time_places_every_partition_at_the_first_record_of_that_time_or_later(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(partition, 10), partition)
    wide.save({partition: stored(7, partition) for partition in range(3)})
    job = wide.job(by_hand=ByHand(time_ms=content(5)[0]))
    assert [row.resume_offset for row in job.partitions] == [5, 4, 3]
    assert all(row.set_by_hand and row.skips is None for row in job.partitions)
    assert all("the first offset of 2023-11-14T22:13:25" in row.detail for row in job.partitions)


def test_a_time_beyond_the_proven_offset_skips_as_an_offset_does(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    row = memory.row(by_hand=ByHand(time_ms=content(6)[0]))
    assert (row.resume_offset, row.skips) == (6, Skips(2, 2))
    assert stops(memory, row) is not None
    end = memory.row(by_hand=ByHand(time_ms=content(60)[0]))
    assert (end.resume_offset, end.skips) == (10, Skips(6, 6))
    assert "no record is of" in end.detail


def test_an_offset_of_its_own_wins_over_the_time(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(10), partition)
    wide.save({partition: stored(7, partition) for partition in range(3)})
    job = wide.job(by_hand=ByHand({("events", 1): 2}, time_ms=content(5)[0]))
    assert [row.resume_offset for row in job.partitions] == [5, 2, 5]


# ---------------------------------------------------------------- several jobs


def two_jobs(memory: Memory, by_hand: ByHand, names: tuple[str, ...] = ("clicks", "views")) -> Checked:
    job = '[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = ["events"]\noffsets = "memory:"\n'
    jobs = job.format(name="clicks", group=GROUP) + job.format(name="views", group="viewers")
    config = memory.config(jobs=jobs)
    return check(config, config.chosen(*names), memory.outside, by_hand)


@pytest.mark.parametrize("topic", ["events", "a.events"])
def test_an_offset_that_fits_two_jobs_is_refused(memory: Memory, topic: str) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(3)})
    memory.save({0: stored(5)}, group="viewers")
    word = ByHand({(topic, 0): 2})
    with pytest.raises(SeveralJobs, match=f"--set {topic}:0=2 fits 2 of the chosen jobs: clicks, views") as caught:
        two_jobs(memory, word)
    assert caught.value.exit_code is ExitCode.USAGE
    (job,) = two_jobs(memory, word, ("views",)).plan.jobs
    assert (job.name, job.partitions[0].resume_offset) == ("views", 2)


def test_a_time_is_for_one_job(memory: Memory) -> None:
    memory.deliver(range(10))
    with pytest.raises(SeveralJobs):
        two_jobs(memory, ByHand(time_ms=0))


def test_a_verdict_that_two_jobs_have_is_accepted_for_one_at_a_time(memory: Memory) -> None:
    memory.deliver(range(4))
    memory.save({0: stored(6)})  # behind
    memory.save({0: stored(3)}, group="viewers")
    word = ByHand(accepted=frozenset({Verdict.BEHIND}))
    clicks, views = two_jobs(memory, word).plan.jobs  # it fits one
    assert [job.partitions[0].set_by_hand for job in (clicks, views)] == [True, False]
    memory.save({0: stored(7)}, group="viewers")
    with pytest.raises(SeveralJobs, match="--accept behind fits 2"):
        two_jobs(memory, word)
    (job,) = two_jobs(memory, word, ("views",)).plan.jobs
    assert job.partitions[0].set_by_hand


def test_jobs_are_chosen_by_name_in_the_configurations_order(memory: Memory) -> None:
    config = memory.config(
        jobs="".join(f'[[jobs]]\nhome = "a"\nname = "{n}"\ntopics = ["t"]\noffsets = "memory:"\n' for n in "abc")
    )
    assert [job.name for job in config.chosen("c", "a", "c")] == ["a", "c"]
    with pytest.raises(ConfigError, match='no job "d"'):
        config.chosen("a", "d")


def test_a_finding_that_is_early_only_by_the_work_of_this_stay_is_accepted_as_early(memory: Memory) -> None:
    """Its anchor is exact; the stay may have processed three more records before its driver was killed."""
    row = Row(TopicPartition("events", 0), stored(6), "1")
    at = JobPartition(
        job=memory.config().jobs[0],
        source=row.key,
        destination=TopicPartition("a.events", 0),
        topic_id=None,
        exists=True,
        selected=Selected(row, None, recorded=Stored(BASE + 7, row.stored.anchor, again=3, ahead=3)),
        compacted=False,
        translated=False,
        own=False,
    )
    exact = SearchResult(Finding(Verdict.EXACT, 7, 0), probes=1, rounds=1)
    accepted = _row(at, exact, None, ByHand(accepted=frozenset({Verdict.EARLY})))
    assert (found(accepted), accepted.replay_at_most, accepted.set_by_hand) == ((Verdict.EARLY, 7), 3, True)
