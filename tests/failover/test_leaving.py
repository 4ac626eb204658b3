"""A consumer group's numbers: its commits where its job lives, while that cluster answers; else its journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pytest

from reconciler.config.file import Config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import CommitsLeft, Outside
from reconciler.failover.whereabouts import located
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import PartitionPlan
from reconciler.ports import ReadRequest, Row, TopicPartition
from reconciler.state import locations
from reconciler.state.journal import StreamPartition, opening
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import Known, PlanRow, Stored
from tests.in_memory import BASE, GROUP, Memory, anchor, found, memory, read_back
from tests.kafka.mirror.written import CHECKPOINTS, write_checkpoints
from tests.starting import WHO, placed, state_in_memory

__all__ = ["memory"]

THERE, HERE = TopicPartition("events", 0), TopicPartition("a.events", 0)
STREAM = StreamPartition("events", "a", 0)
RESUMES = 4
"""Where the plan that moved the job here has set it."""


@dataclass
class Group:
    """A group that leaves a, whose commit there is ``commit``; or that lives on b since it was moved there."""

    memory: Memory
    commit: StoredOffset | None = None
    is_lost: bool = False

    def __post_init__(self) -> None:
        self.memory.place = "kafka-group:"
        self.state = state_in_memory(self.memory.config().jobs[0])

    def lives_at_home(self, *journal: int) -> None:
        """``journal``: the last records of the numbers that tracking has noted."""
        placed(self.state, "a")
        self._notes(1, [Known(BASE + number + 1, anchor(number)) for number in journal])

    def was_moved(self) -> None:
        """It lives on b, and has stored nothing there since."""
        here = placed(self.state, "a", to="b").location()
        assert here is not None
        left, own = anchor(RESUMES - 1), self.memory.own(RESUMES).anchor
        row = PlanRow(RESUMES, own, 0, 0, frozenset({None}), Stored(BASE + RESUMES, left, 0, 0))
        number = self.state.add_plan(Numbers("a", 1, "b", {STREAM: Planned(HERE, row)}))
        self.state.move_on(here, locations.writing(here, number, WHO))
        self._notes(locations.stay_of(number), [row.first()])
        writing = self.state.location()
        assert writing is not None
        self.state.move_on(writing, locations.lives(writing, None, WHO))

    def holds(self, offset: int) -> None:
        """At the destination."""
        self.memory.save({0: StoredOffset(offset)}, topic="a.events")

    def _notes(self, stay: int, numbers: Sequence[Known[Anchor]]) -> None:
        for number, each in enumerate(numbers, 1):
            assert self.state.append_journal(stay, number, opening({STREAM: each}, "run", 0))

    @property
    def config(self) -> Config:
        config = self.memory.config()
        return located(config, config.jobs, {"clicks": self.state.location()}, "b", {"clicks": self.state.plans()})

    @property
    def outside(self) -> Outside:
        def commits(group: str, topics: Collection[str]) -> Sequence[Row]:
            assert (group, set(topics)) == (GROUP, {THERE.topic})
            if self.is_lost:
                raise Unreachable("No answer.")
            return [] if self.commit is None else [Row(THERE, self.commit, "1")]

        return replace(self.memory.outside, commits_left=commits, state_of=lambda _: self.state)

    def row(self) -> PartitionPlan:
        config = self.config
        return read_back(check(config, config.jobs, self.outside)).plan.jobs[0].partitions[0]


@pytest.fixture
def group(memory: Memory) -> Group:
    memory.deliver(range(20))
    return Group(memory)


# ---------------------------------------------------------------- a group that leaves


def test_work_since_the_newest_entry_is_counted(group: Group) -> None:
    group.lives_at_home(5)
    group.commit = StoredOffset(BASE + 9)
    row = group.row()
    assert (found(row), row.stored_offset, row.replay_at_most) == ((Verdict.EARLY, 6), BASE + 9, 3)


def test_a_commit_that_is_noted_is_exact(group: Group) -> None:
    group.lives_at_home(5)
    group.commit = StoredOffset(BASE + 6)
    assert found(group.row()) == (Verdict.EXACT, 6)


def test_a_commit_that_names_its_own_record_needs_no_entry(group: Group) -> None:
    group.lives_at_home()
    group.commit = StoredOffset(BASE + 9, anchor(8))
    assert found(group.row()) == (Verdict.EXACT, 9)


def test_where_the_cluster_is_lost_the_journals_newest_entry_counts(group: Group) -> None:
    group.lives_at_home(3, 5)
    group.commit, group.is_lost = StoredOffset(BASE + 9), True
    group.holds(1)
    assert found(group.row()) == (Verdict.EXACT, 6)


def test_of_a_group_of_which_nothing_is_known_the_mirrors_number_is_evidence(group: Group) -> None:
    group.lives_at_home()
    group.is_lost = True
    group.holds(5)
    write_checkpoints(group.memory.log, (BASE + 5, 5), group=GROUP)
    assert found(group.row()) == (Verdict.EARLY, 5)


def test_a_commit_below_what_is_noted_was_set_back(group: Group) -> None:
    group.lives_at_home(5)
    group.commit = StoredOffset(BASE + 3)
    row = group.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert f"The journal of stay 1 on a has offset {BASE + 6:,} of it" in row.detail


def test_a_cluster_that_does_not_answer_is_asked_once() -> None:
    asked = []

    class Lost(MemoryStore):
        def read(self, group: str, topics: object = None) -> list[Row]:
            asked.append(group)
            raise Refused("Not allowed.")

    commits = CommitsLeft(lambda: Lost("lost"))
    for name in ("clicks", "views"):
        with pytest.raises(Unreachable, match="Not allowed"):
            commits(name, ["events"])
    assert asked == ["clicks"]


# ---------------------------------------------------------------- a group that was moved here


def test_a_number_that_the_mirror_commits_over_a_correction_skips_nothing(group: Group) -> None:
    write_checkpoints(group.memory.log, (BASE + 10, 10), group=GROUP)
    group.was_moved()
    group.holds(10)
    row = group.row()
    assert (row.resume_offset, row.replay_at_most) == (RESUMES, 10 - RESUMES)


def test_where_the_checkpoints_cannot_be_read_a_number_beyond_the_correction_is_not_believed(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoints(group.memory.log, (BASE + 3, 3), group=GROUP)
    read = group.memory.log.read

    def refused(requests: Sequence[ReadRequest]) -> object:
        if any(each.partition.topic == CHECKPOINTS for each in requests):
            raise Refused("not authorized.")
        return read(requests)

    monkeypatch.setattr(group.memory.log, "read", refused)
    group.was_moved()
    group.holds(RESUMES)
    assert found(group.row()) == (Verdict.EXACT, RESUMES)
    group.holds(10)
    assert group.row().resume_offset == RESUMES


@pytest.mark.parametrize("mirrors", [(), ((BASE + 3, 3),)], ids=["no checkpoint", "an older checkpoint"])
def test_a_group_that_has_gone_on_from_its_correction_is_left_where_it_is(
    group: Group, mirrors: tuple[tuple[int, int], ...]
) -> None:
    group.memory.log.create(CHECKPOINTS, 1)
    write_checkpoints(group.memory.log, *mirrors, group=GROUP)
    group.was_moved()
    group.holds(10)
    assert found(group.row()) == (Verdict.EXACT, 10)
