"""Carries out a change of a job's numbers, so that a kill between any two writes is finished by the next run.

Theory of operation. The order is fixed: the plan, ``writing``, the last entry of the journal of the stay that is left,
the first one of the new stay's, the numbers, ``lives``. Each step is repeated without harm: a journal that has ended
already, an append under a number that holds the same plan's entry, a compare-and-set whose key holds the new number
already, a copy in a folder of its own. So a run that finds ``writing`` begins at the journals.

- M1  Nothing is written before the plan is stored, and nothing by the plan before ``writing`` names it. ``writing`` is
      appended only while the place holds what the plan replaces: a driver that still runs may have continued.
- M2  A place is only compared while ``writing``: it holds the new number, what the plan replaced, or is refused. The
      location is read between the rows and their compare-and-set. So a run that was held up does not write over the
      number of a job that another run has started, even where that number is equal to one replaced.
- M3  Only a run whose ``lives`` was appended starts the job.
- M4  A cancel, and a rollback, are carried out in the same way: their plan gives back what the other one replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed, NeedsPerson
from reconciler.ports import TopicPartition
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.plans import Numbers, give_back
from reconciler.state.stored import Found, Stored


@dataclass(frozen=True, slots=True)
class NewNumber:
    """A number for one key. ``replaced``: what the key may hold now, beside ``number`` itself."""

    number: int
    replaced: frozenset[int | None]
    record: Anchor | None
    stay: int
    left: Stored[Anchor]
    """The stored number from which the new one was found."""


class Place(Protocol):
    """Where a job keeps its numbers, by the topics' names on one cluster."""

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """The content of the keys; empty keys are left out."""

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        """Raise Changed if ``replace`` would, for the current content of the keys."""

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> str | None:
        """Write the numbers by compare-and-set. Returns the path of the copy, for a checkpoint.

        A place that only its job writes does nothing. ``still_writing`` raises Changed if the numbers are no longer
        being written: it is called after the rows are read, before each write (M2). Raises Changed if a key holds
        neither its number nor one of those replaced, and OutcomeUnknown if some may be written: the same call finishes
        it.
        """


PlaceOn = Callable[[str], Place]
"""The job's place on a cluster."""


def begin(job: JobState, here: Location, plan: Numbers, place_on: PlaceOn, stamp: Stamp) -> Location:
    """Store the plan, and say that its numbers are being written.

    Raises Changed if the job was moved meanwhile, or its place holds other numbers than when the plan was made;
    NeedsPerson if it holds one of a later stay than the newest location.
    """
    number, place = job.add_plan(plan), place_on(plan.to)
    numbers = new_numbers(plan, locations.stay_of(number))
    refuse_later(job, here, {key: found.of_stay for key, found in place.read(numbers).items()})
    place.check(numbers)
    return job.move_on(here, locations.writing(here, number, stamp))


def refuse_later(job: JobState, here: Location, stays: Mapping[TopicPartition, int | None]) -> None:
    """Raise NeedsPerson if a number in the job's place is of a later stay than the newest location.

    Raises Changed if the job was moved since ``here`` was read.
    """
    for key, stay in stays.items():
        if stay is not None and stay > here.stay:
            now = job.location()
            if now is not None and now.number != here.number:
                raise Changed(f'Job "{job.job}" was moved just now.', hint="Run this again.")
            raise NeedsPerson(
                f'{key} of job "{job.job}" was stored in stay {stay}, and the newest location in {job.store.shown} '
                f"is of stay {here.stay}: this is another state store, or an old copy of it.",
                hint="Restore the newest one.",
            )


def new_numbers(plan: Numbers, stay: int) -> dict[TopicPartition, NewNumber]:
    """The plan's numbers by the keys of its place, for the stay that it begins."""
    rows = [(each.key, each.row) for each in plan.rows.values()]
    return {key: NewNumber(row.number, row.replaced, row.record, stay, row.left) for key, row in rows}


def finish(job: JobState, here: Location, place_on: PlaceOn, stamp: Stamp) -> Location:
    """From ``writing`` to ``lives``; raises Changed if another run has finished it, or it was cancelled."""
    if here.phase is not Phase.WRITING or here.plan is None:
        raise Changed("The job's numbers are not being written.", hint=f"See: {job.command('status')}")
    plan, stay = job.plan(here.plan), locations.stay_of(here.plan)
    run = f"plan {plan.number}"
    job.close_journal(here.stay, here.number, run, stamp.at_ms)
    first = journal.opening({at: each.row.first() for at, each in plan.rows.items()}, run, stamp.at_ms)
    job.append_journal(stay, 1, first)  # False: an earlier run of this plan has opened it

    def still_writing() -> None:
        now = job.location()
        if now is None or now.number != here.number:
            raise Changed(
                "Another run has finished this, or it was cancelled.",
                hint=f"See: {job.command('status', '--history')}",
            )

    checkpoint = place_on(plan.to).replace(new_numbers(plan, stay), still_writing)
    return job.move_on(here, locations.lives(here, checkpoint or here.checkpoint, stamp))


def cancel(
    job: JobState, here: Location, keys: Mapping[StreamPartition, TopicPartition], place_on: PlaceOn, stamp: Stamp
) -> Location:
    """Take a move back. ``keys``: the partitions' keys on the cluster that the job leaves."""
    if here.phase is Phase.MOVING:
        before = [each for each in job.history() if each.phase is Phase.LIVES]
        return job.move_on(here, locations.cancelled(here, before[-1].plan, stamp))
    if here.phase is Phase.LIVES or here.plan is None:
        raise Changed("The job is not moving.", hint=f"See: {job.command('status')}")
    return _give_back(job, here, keys, place_on, here.checkpoint, stamp)


def roll_back(
    job: JobState, here: Location, keys: Mapping[StreamPartition, TopicPartition], place_on: PlaceOn, stamp: Stamp
) -> Location:
    """Give back the numbers of the stay before. The caller has made sure that this stay has processed nothing."""
    if here.phase is not Phase.LIVES or here.plan is None:
        raise Changed(
            "No plan began this stay, so there is nothing to roll back.", hint=f"See: {job.command('status')}"
        )
    before = [each for each in job.history() if each.phase is Phase.LIVES and each.stay < here.stay]
    return _give_back(job, here, keys, place_on, before[-1].checkpoint, stamp)


def _give_back(
    job: JobState,
    here: Location,
    keys: Mapping[StreamPartition, TopicPartition],
    place_on: PlaceOn,
    checkpoint: str | None,
    stamp: Stamp,
) -> Location:
    plan = job.plan(here.plan or 0)
    held = {key: found.number for key, found in place_on(plan.leaves).read(keys.values()).items()}
    back = give_back(plan, here.stay, keys, {key: number for key, number in held.items() if number is not None})
    number = job.add_plan(back)
    writing = job.move_on(here, locations.giving_back(here, plan.leaves, number, checkpoint, stamp))
    return finish(job, writing, place_on, stamp)
