"""On the way back, no record that the other cluster never got is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.config.settings import Left
from reconciler.core.anchors import RECORD_TIME_ONLY, StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.checking import undelivered
from reconciler.failover.checking.undelivered import Mark, in_order
from reconciler.failover.mirrored import report
from reconciler.failover.outside import Outside
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Change, TopicPartition
from tests.in_memory import GROUP, NOW
from tests.memory_log import MemoryLog, MemoryPartition, MemoryRecord

EVENTS = TopicPartition("events", 0)
TEXT = """
[clusters.a]
bootstrap_servers = "a"
[clusters.b]
bootstrap_servers = "b"
[topics]
policy = "{policy}"
[[jobs]]
name = "clicks"
home = "a"
topics = ["events"]
offsets = "memory:"
"""


def logged(name: str, topic: str = "events") -> MemoryLog:
    log = MemoryLog(name)
    log.create(topic, 1)
    return log


@dataclass
class World:
    """One topic. The job left a at ``left``, to resume on b at ``began``, where it lives."""

    folder: Path
    policy: str = "identity"
    a: MemoryLog = field(default_factory=lambda: logged("a"))
    b: MemoryLog = field(default_factory=lambda: logged("b"))
    left: int = 10
    furthest: int = 10
    began: int | None = None

    def write(self, log: MemoryLog, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.at(log).append(NOW - 1_000_000 + number, b"k", b"%d" % number)

    def at(self, log: MemoryLog) -> MemoryPartition:
        return log.partition(self.stored_as if log is self.b else "events", 0)

    @property
    def stored_as(self) -> str:
        return "events" if self.policy == "identity" else "a.events"

    def back(self, open_left: Callable[[], MemoryLog] | None = None) -> PartitionPlan:
        """The row of a move to a, of a job that has read all of b."""
        config, outside = self.moving_back(open_left)
        (row,) = check(config, config.jobs, outside).plan.job("clicks").partitions
        return row

    def moving_back(self, open_left: Callable[[], MemoryLog] | None = None) -> tuple[Config, Outside]:
        path = self.folder / "reconciler.toml"
        path.write_text(TEXT.format(policy=self.policy))
        config = load_config(path, {}).between("b", "a")
        last = self.at(self.b).records[-1]
        own = RECORD_TIME_ONLY.anchor_of(last, cluster_id="b", topic_id=f"b/{self.stored_as}")
        store = MemoryStore(str(self.folder))
        stored = StoredOffset(last.offset + 1, own, NOW)
        store.write(GROUP, [Change(TopicPartition(self.stored_as, 0), None, stored)], reason="", now_ms=NOW)
        left = Left(self.left, self.furthest, None, self.began)
        job = replace(config.jobs[0], group=GROUP, moved=False, left={EVENTS: left})
        config = replace(config, jobs=(job,))
        outside = Outside(self.a, lambda _: store, lambda: 0.0, lambda: NOW, open_left=open_left or (lambda: self.b))
        return config, outside


def silent(world: World) -> PartitionPlan:
    def refuse() -> MemoryLog:
        raise Unreachable("No broker of b answers.")

    return world.back(refuse)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """a has failed with the records 10 to 14, of which b has 10 and 11; b has taken 100 to 119 since."""
    made = World(tmp_path)
    made.write(made.a, range(15))
    made.write(made.b, [*range(12), *range(100, 120)])
    return made


def resumed(row: PartitionPlan) -> tuple[Verdict, int | None, int | None, int | None]:
    return row.finding, row.resume_offset, row.replay_at_most, row.record_offset


def test_the_job_resumes_at_the_first_record_that_the_other_cluster_never_got(world: World) -> None:
    world.write(world.a, range(100, 120))
    row = world.back()
    assert resumed(row) == (Verdict.EARLY, 12, 23, 11)
    assert "the cluster that the job leaves does not have record 12, of 20" in row.detail
    assert "23 offsets earlier" in row.detail


def test_the_mirrors_report_says_it_too(world: World) -> None:
    world.write(world.a, range(100, 120))
    config, outside = world.moving_back()
    (told,) = (each for each in report(config, config.jobs, outside).notes if "comes back" in each)
    assert told.startswith("job clicks comes back to events-0 early: ")
    assert "does not have record 12" in told


def test_as_many_new_records_that_the_mirror_left_out_do_not_hide_those_that_it_never_sent(world: World) -> None:
    """Both logs then have the same distance before and behind."""
    world.write(world.a, range(103, 120))
    assert resumed(world.back())[:2] == (Verdict.EARLY, 12)


def test_the_records_may_begin_where_the_job_left(world: World) -> None:
    world.left = 12
    world.write(world.a, range(100, 120))
    assert resumed(world.back()) == (Verdict.EARLY, 12, 23, 11)


@pytest.mark.parametrize("copied", [range(100, 120), [*range(12), *range(100, 120)]], ids=["the new", "everything"])
def test_without_such_records_nothing_comes_again(world: World, copied: Iterable[int]) -> None:
    """Whether the mirror back began at the new records, or at the log's start."""
    world.a = logged("a")
    world.write(world.a, [*range(12), *copied])
    row = world.back()
    assert row.finding is Verdict.EXACT
    assert (row.resume_offset, row.replay_at_most) == (world.at(world.a).end, 0)


def test_records_that_the_mirror_sent_twice_are_there(world: World) -> None:
    world.b = logged("b")
    world.write(world.b, [*range(12), *range(8, 15), *range(100, 120)])
    world.write(world.a, range(100, 120))
    assert resumed(world.back())[:2] == (Verdict.EXACT, 35)


def test_without_an_answer_of_the_other_cluster_the_job_resumes_where_it_left(world: World) -> None:
    world.write(world.a, range(100, 120))
    row = silent(world)
    assert resumed(row) == (Verdict.EARLY, 10, 25, 9)
    assert "does not say which it has (No broker of b answers)" in row.detail


@pytest.mark.parametrize(("furthest", "again"), [(14, 25), (40, 30)])
def test_what_an_earlier_stay_may_have_processed_there_is_counted_once(world: World, furthest: int, again: int) -> None:
    """It may have processed all before ``furthest``; the job has come as far as 35 since."""
    world.furthest = furthest
    world.write(world.a, range(100, 120))
    row = silent(world)
    assert (row.resume_offset, row.replay_at_most) == (10, again)


def test_a_topic_that_the_other_cluster_has_no_more_tells_nothing(world: World) -> None:
    world.write(world.a, range(100, 120))
    gone = MemoryLog("b")
    assert resumed(world.back(lambda: gone)) == (Verdict.EARLY, 10, 25, 9)


def test_no_more_than_some_records_are_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undelivered, "MOST", 2)
    world.write(world.a, range(100, 120))
    assert resumed(world.back())[:2] == (Verdict.EXACT, 35)


@pytest.fixture
def named(tmp_path: Path) -> World:
    """With the mirror's own names: the job left a with 10 records read, and began on b behind as many copies."""
    return World(tmp_path, "default", b=logged("b", "a.events"), began=10)


def test_the_job_resumes_at_the_first_record_that_the_mirror_skipped(named: World) -> None:
    named.write(named.a, range(20))
    named.write(named.b, [*range(12), *range(15, 20)])
    row = named.back()
    assert resumed(row) == (Verdict.EARLY, 12, 8, 11)
    assert "the cluster that the job leaves does not have record 12, of 20" in row.detail


def test_as_many_copies_as_records_end_the_comparison(named: World) -> None:
    """Whatever the other cluster says, or keeps."""

    def refuse() -> MemoryLog:
        pytest.fail("the other cluster is asked")

    named.write(named.a, range(20))
    named.write(named.b, range(20))
    assert resumed(named.back(refuse))[:3] == (Verdict.EXACT, 20, 0)


def test_skipped_records_are_found_among_ones_that_were_sent_twice(named: World) -> None:
    named.write(named.a, range(20))
    named.write(named.b, [*range(12), *range(4, 14), *range(15, 20)])
    assert resumed(named.back())[:2] == (Verdict.EARLY, 14)


def retained(world: World) -> PartitionPlan:
    world.at(world.b).delete_before(15)
    return world.back()


@pytest.mark.parametrize("asked", [silent, retained])
def test_copies_that_the_other_cluster_does_not_show_are_counted(
    named: World, asked: Callable[[World], PartitionPlan]
) -> None:
    """Markers of transactions are no records."""
    named.write(named.a, range(15))
    named.at(named.a).append_marker(NOW - 999_986)
    named.write(named.a, range(15, 20))
    named.write(named.b, range(20))
    assert resumed(asked(named))[:3] == (Verdict.EXACT, 21, 0)


@pytest.mark.parametrize("asked", [silent, retained])
def test_too_few_of_them_mean_that_all_may_be_unread(named: World, asked: Callable[[World], PartitionPlan]) -> None:
    named.write(named.a, range(20))
    named.write(named.b, [*range(12), *range(15, 20)])
    row = asked(named)
    assert resumed(row) == (Verdict.EARLY, 10, 10, 9)
    assert "the job has read 7 copies, of more records, since it left at 10" in row.detail


def test_copies_that_were_all_compared_are_not_counted(named: World) -> None:
    """A person has set the number on b behind two of them."""
    named.write(named.a, range(20))
    named.write(named.b, range(20))
    named.began = 12
    assert resumed(named.back())[:3] == (Verdict.EXACT, 20, 0)


@pytest.mark.parametrize(("sent", "begins"), [(range(100), 100), ([*range(50), *range(60, 100)], 15)])
def test_the_many_records_behind_those_that_are_compared_are_counted(
    named: World, sent: Iterable[int], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undelivered, "MOST", 5)
    named.write(named.a, range(100))
    named.write(named.b, sent)
    assert named.back().resume_offset == begins


def test_half_of_their_numbers_can_be_markers(named: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undelivered, "MOST", 5)
    for number in range(100):
        named.write(named.a, [number])
        named.at(named.a).append_marker(NOW - 1_000_000 + number)
    named.left = 20
    named.write(named.b, range(100))
    assert named.back().finding is Verdict.EXACT


def mark(number: int, *, append_time: bool = False) -> Mark:
    record = MemoryRecord(number, number, None, b"%d" % (number % 5), append_time=append_time)
    return Mark.of(record, (RECORD_TIME_ONLY, "a", None))


def test_copies_are_in_order_and_of_the_same_time() -> None:
    marks = [mark(number) for number in (1, 2, 3)]
    assert in_order(marks, [mark(number) for number in (1, 2, 1, 2, 3)]) == 3
    assert in_order(marks, [mark(number) for number in (2, 1, 3)]) == 1
    assert in_order(marks, [mark(number) for number in (1, 7, 3)]) == 1
    assert in_order(marks, [mark(1), mark(7, append_time=True), mark(3)]) == 3, "the broker's own time says nothing"
    assert in_order(marks, []) == 0
