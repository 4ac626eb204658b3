"""On the way back under one name, no record that the other cluster never got is passed over."""

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
policy = "identity"
[[jobs]]
name = "clicks"
home = "a"
topics = ["events"]
offsets = "memory:"
"""


def logged(name: str) -> MemoryLog:
    log = MemoryLog(name)
    log.create("events", 1)
    return log


@dataclass
class World:
    """One topic under one name. The job left a at ``left``, and lives on b; the mirror runs from b to a."""

    folder: Path
    a: MemoryLog = field(default_factory=lambda: logged("a"))
    b: MemoryLog = field(default_factory=lambda: logged("b"))
    left: int = 10

    def write(self, log: MemoryLog, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.at(log).append(NOW - 1_000_000 + number, b"k", b"%d" % number)

    def at(self, log: MemoryLog) -> MemoryPartition:
        return log.partition("events", 0)

    def back(self, open_left: Callable[[], MemoryLog] | None = None) -> PartitionPlan:
        """The row of a move to a, of a job that has read all of b."""
        config, outside = self.moving_back(open_left)
        (row,) = check(config, config.jobs, outside).plan.job("clicks").partitions
        return row

    def moving_back(self, open_left: Callable[[], MemoryLog] | None = None) -> tuple[Config, Outside]:
        path = self.folder / "reconciler.toml"
        path.write_text(TEXT)
        config = load_config(path, {}).between("b", "a")
        last = self.at(self.b).records[-1]
        own = RECORD_TIME_ONLY.anchor_of(last, cluster_id="b", topic_id="b/events")
        store = MemoryStore("clicks")
        store.write(GROUP, [Change(EVENTS, None, StoredOffset(last.offset + 1, own, NOW))], reason="", now_ms=NOW)
        job = replace(config.jobs[0], group=GROUP, moved=False, left={EVENTS: Left(self.left, self.left, None)})
        config = replace(config, jobs=(job,))
        outside = Outside(self.a, lambda _: store, lambda: 0.0, lambda: NOW, open_left=open_left or (lambda: self.b))
        return config, outside


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
    def refuse() -> MemoryLog:
        raise Unreachable("No broker of b answers.")

    world.write(world.a, range(100, 120))
    row = world.back(refuse)
    assert resumed(row) == (Verdict.EARLY, 10, 25, 9)
    assert "does not say which it has (No broker of b answers)" in row.detail


def test_a_topic_that_the_other_cluster_has_no_more_tells_nothing(world: World) -> None:
    world.write(world.a, range(100, 120))
    gone = MemoryLog("b")
    assert resumed(world.back(lambda: gone)) == (Verdict.EARLY, 10, 25, 9)


def test_no_more_than_some_records_are_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undelivered, "MOST", 2)
    world.write(world.a, range(100, 120))
    assert resumed(world.back())[:2] == (Verdict.EXACT, 35)


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
