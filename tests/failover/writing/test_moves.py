"""The location of a job around the write of its numbers: killed at every step, and with others in between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest

from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.outside import ByHand
from reconciler.failover.writing.apply import prepare, replaced_by
from reconciler.failover.writing.moves import Copied, begin, carry_out, finish, numbers_of, place_of, roll_back
from reconciler.plan.document import Plan
from reconciler.ports import TopicPartition
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.memory import MemoryState
from reconciler.state.plans import Numbers
from reconciler.state.store import StateStore
from tests.in_memory import BASE, Memory, stored
from tests.starting import placed

HOOK, ANA = Stamp("hook", lambda: 1), Stamp("ana", lambda: 2)
AT = StreamPartition("events", "a", 0)
HERE = TopicPartition("events", 0)
KILLS = [(number, after) for number in range(7) for after in (False, True)][:-1]


class Killed(BaseException):
    """The process is gone."""


class Deadly(MemoryState):
    """Kills the process at the write of this number, from 0; ``after`` it was made, or before."""

    left: int | None = None
    after = False

    def put(self, log: str, number: int, entry: bytes) -> bool:
        if self.left != 0:
            self.left = None if self.left is None else self.left - 1
            return super().put(log, number, entry)
        self.left = None
        if self.after:
            super().put(log, number, entry)
        raise Killed


@dataclass
class Move:
    """A job whose stored 707 is record 4 at the destination, and a plan that says so."""

    memory: Memory
    plan: Plan
    backend: Deadly
    state: JobState

    @property
    def config(self) -> Config:
        return self.memory.config()

    @property
    def job(self) -> Job:
        return self.config.jobs[0]

    def numbers(self) -> Numbers:
        (change,) = prepare(self.plan, self.config, self.memory.outside)
        found = replaced_by(change, self.plan.cluster_id)
        return numbers_of(self.plan, self.job, self.config, 1, found)

    def begin(self, stamp: Stamp = HOOK, *, seen: Location | None = None) -> Location:
        with place_of(self.state, self.job, self.memory.outside, stamp) as place:
            return begin(self.state, self.config, self.job, self.numbers(), place, stamp, seen=seen)

    def run(self, checkpoint: str | None = None) -> Location:
        """A whole run, or the rest of one that was killed. ``checkpoint``: of a query that goes on in this copy."""
        here = self.state.location()
        if here is not None and here.phase is Phase.WRITING:
            return finish(self.state, here, self.job, self.memory.outside, HOOK)
        if checkpoint is None:
            with place_of(self.state, self.job, self.memory.outside, HOOK) as place:
                return carry_out(self.state, self.config, self.job, self.numbers(), place, HOOK)
        copied = Copied(lambda: checkpoint)
        return carry_out(self.state, self.config, self.job, self.numbers(), copied, HOOK)

    def back(self) -> Location:
        naming = self.config.topics.naming
        return roll_back(self.state, location(self.state), self.job, naming, self.memory.outside, ANA)

    def history(self) -> list[tuple[str, str, str | None, int]]:
        return [(each.phase.value, each.cluster, each.to, each.stay) for each in self.state.history()]


@pytest.fixture
def move(memory: Memory) -> Move:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    backend, nonces = Deadly("memory:"), count()
    store = StateStore(backend, new_nonce=lambda: f"n{next(nonces)}")
    store.create()
    return Move(memory, memory.check().plan, backend, JobState(store, "clicks"))


def location(state: JobState) -> Location:
    found = state.location()
    assert found is not None
    return found


# ---------------------------------------------------------------- there


def test_a_move_is_recorded_before_and_after_its_write_with_what_it_replaces(move: Move) -> None:
    placed(move.state, "a", to="b")
    move.run()
    assert move.history() == [
        ("lives", "a", None, 1),
        ("moving", "a", "b", 1),
        ("writing", "a", "b", 1),
        ("lives", "b", None, 2),
    ]
    plan = move.state.plan(1)
    each = plan.rows[AT]
    assert (plan.digest, each.key) == (move.plan.sha256, TopicPartition("a.events", 0))
    assert (each.row.number, each.row.replaced, each.row.left.number) == (4, {None}, BASE + 7)
    assert each.row.left.record == stored(6).anchor
    (opened,) = move.state.newest(2)
    record = opened.numbers[AT].record
    assert (opened.numbers[AT].number, record and record.offset, record and record.cluster_id) == (4, 3, "b")


def test_the_stay_counts_what_a_batch_that_is_repeated_empty_may_have_written(move: Move) -> None:
    (job,) = move.plan.jobs
    (row,) = job.partitions
    end = replace(row, position=Position.END, finding=Verdict.EARLY, replay_at_most=5)
    rows = (replace(row, position=Position.START, replay_at_most=2), end)
    plan = replace(move.plan, jobs=(replace(job, partitions=rows),))
    assert numbers_of(plan, move.job, move.config, 1, {}).rows[AT].row.again == 2 + 5


def test_apply_moves_a_job_that_has_no_location_from_its_home(move: Move) -> None:
    move.run()
    assert [each[0] for each in move.history()] == ["lives", "writing", "lives"]
    assert location(move.state).cluster == "b"


@pytest.mark.parametrize(("number", "after"), KILLS)
def test_a_move_that_is_killed_at_any_write_is_finished_by_the_next_run(move: Move, number: int, after: bool) -> None:
    """Writes: the location at home, the plan, ``writing``, the journal's end, the next one's start (2), ``lives``."""
    move.backend.left, move.backend.after = number, after
    with pytest.raises(Killed):
        move.run()
    assert location_or_none(move) != ("lives", "b"), "its numbers may not be written"
    here = move.run()
    assert (here.phase, here.cluster, here.stay) == (Phase.LIVES, "b", locations.stay_of(here.plan))
    assert {row.key.topic: row.stored.offset for row in move.memory.rows()} == {"events": BASE + 7, "a.events": 4}
    (opened,) = move.state.newest(here.stay)
    assert opened.numbers[AT].number == 4
    assert [each.cluster for each in move.state.history() if each.phase is Phase.LIVES] == ["a", "b"]


def location_or_none(move: Move) -> tuple[str, str] | None:
    here = move.state.location()
    return None if here is None else (here.phase.value, here.cluster)


def test_of_two_runs_of_a_move_one_starts_the_job(move: Move) -> None:
    placed(move.state, "a", to="b")
    first = move.begin()
    with pytest.raises(Changed, match="are being written by another run"):
        move.begin()
    assert move.run().cluster == "b"
    with pytest.raises(Changed, match="Somebody else has moved the job"):
        finish(move.state, first, move.job, move.memory.outside, HOOK)


def test_a_hook_whose_move_was_cancelled_while_it_planned_writes_nothing(move: Move) -> None:
    seen, before = location(placed(move.state, "a", to="b")), move.memory.rows()
    move.state.move_on(seen, locations.cancelled(seen, None, ANA))
    with pytest.raises(Changed, match="Somebody else has moved the job"):
        move.begin(seen=seen)
    assert location(move.state).by == "ana"
    assert move.memory.rows() == before


def test_a_plan_is_not_applied_to_a_job_that_moves_elsewhere_or_lives_elsewhere_by_now(move: Move) -> None:
    placed(move.state, "a", to="c")
    with pytest.raises(Changed, match="is moving from a to c since the plan, which is for a move from a to b"):
        move.begin()
    here = move.state.move_on(
        location(move.state), locations.writing(location(move.state), move.state.add_plan(move.numbers()), ANA)
    )
    here = move.state.move_on(here, locations.lives(here, None, ANA))
    with pytest.raises(Changed, match="lives on c since the plan"):
        move.begin()
    move.state.move_on(here, locations.moving(here, "b", ANA))
    with pytest.raises(Changed, match="is moving from c to b since the plan"):
        move.begin()


def test_a_correction_where_the_job_lives_begins_a_stay_and_is_rolled_back_there(move: Move) -> None:
    here = move.run(checkpoint="/data/clicks-2")
    move.memory.moved = True
    move.plan = move.memory.check(by_hand=ByHand({("a.events", 0): 2})).plan
    again = move.run()
    assert (again.cluster, again.stay, again.checkpoint) == ("b", 3, here.checkpoint)
    assert move.history()[-2:-1] == [("writing", "b", "b", 2)]
    back = move.back()
    assert (back.cluster, back.stay, back.checkpoint) == ("b", 4, "/data/clicks-2")


# ---------------------------------------------------------------- and back


def test_a_rollback_gives_back_what_was_replaced_as_a_new_stay_in_the_checkpoint_before(move: Move) -> None:
    move.state.move_on(None, locations.first("a", ANA, "/data/clicks-2"))
    move.run(checkpoint="/data/clicks-3")
    here = move.back()
    assert (here.cluster, here.stay, here.checkpoint) == ("a", 3, "/data/clicks-2")
    assert here.plan is not None
    each = move.state.plan(here.plan).rows[AT]
    assert (each.key, each.row.number, each.row.record) == (TopicPartition("events", 0), BASE + 7, stored(6).anchor)
    assert each.row.left.number == 4
