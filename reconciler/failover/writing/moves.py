"""The location of a job around the write of its numbers: ``writing`` before it, ``lives`` after it.

A run that is killed in between leaves ``writing``: the next one writes the same partitions again, then ``lives``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile

from reconciler.config.file import Config, Job
from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed
from reconciler.core.visible import command
from reconciler.failover.numbers import read_numbers
from reconciler.failover.outside import Outside
from reconciler.failover.selection import Selected
from reconciler.failover.store_place import StorePlace
from reconciler.failover.writing.reread import anchors_for
from reconciler.formats.plan import PartitionPlan, Plan
from reconciler.ports import TopicPartition
from reconciler.state import journal, locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.moving import NewNumber
from reconciler.state.plans import Numbers, Planned, give_back
from reconciler.state.stored import Found, PlanRow, Stored
from reconciler.stores.registry import traits


@dataclass(frozen=True, slots=True)
class Replaced:
    """What one partition's place held under the key that is written, and the number that counted."""

    under_key: int | None
    left: Stored[Anchor] | None
    record: Anchor | None
    """The record before the new number; None if it was not read."""
    older: int = 0
    """Records between ``record`` and the new number that may be processed."""

    @classmethod
    def nothing(cls, selected: Selected, cluster_id: str) -> Replaced:
        """Of a number that is right as it is, or was written before. ``cluster_id``: the destination's."""
        there, was = selected.replaced, selected.stored
        held = None if there is None or there.malformed is not None else there.stored
        number = None if held is None else held.offset
        if was is not None and was.cluster_id == cluster_id:
            return cls(number, selected.left, was.anchor, max(0, selected.older))
        is_written = held is not None and held.cluster_id == cluster_id
        return cls(number, selected.left, held.anchor if held is not None and is_written else None)


def replaced_in_copy(plan: Plan, config: Config, job: Job, outside: Outside) -> dict[TopicPartition, Replaced]:
    """As ``apply.replaced_by``, for a copy of a checkpoint, which replaces nothing. Raises as ``anchors_for`` does."""
    stored = read_numbers(config, job, outside)
    rows = [row for row in plan.job(job.name).starts.partitions if row.resume_offset is not None]
    reader = outside.patient(config.search)
    cluster = reader.describe({row.topic for row in rows})
    found, to_read = {}, []
    for row in rows:
        selected = stored.selected(row.source_key, row.key, cluster.cluster_id)
        was = Replaced.nothing(selected, cluster.cluster_id)
        if was.record is not None and row.is_right:
            found[row.key] = replace(was, under_key=None)
        else:
            to_read.append((row, selected))
    anchors = anchors_for(job, to_read, cluster, reader)
    return found | {row.key: Replaced(None, selected.left, anchors[row]) for row, selected in to_read}


def begin(
    state: JobState, config: Config, job: Job, numbers: Numbers, stamp: Stamp, *, seen: Location | None = None
) -> Location:
    """Say that the job's numbers are being written, by the plan that is kept with them.

    ``seen``: the location for which the caller has judged; another one by now is no longer its to change. Raises
    Changed for that, and if the job was moved elsewhere meanwhile.
    """
    here = seen or state.location()
    if here is None:
        here = state.move_on(None, locations.first(job.home, stamp))
    if here.cluster not in (numbers.leaves, numbers.to) or here.to not in (None, numbers.to):
        raise Changed(
            f'Job "{job.name}" {_now(here)} since the plan, which is for a move from {numbers.leaves} to {numbers.to}.',
            hint=f"See: {_history_of(state)}",
        )
    if here.phase is Phase.LIVES:
        here = state.move_on(here, locations.moving(here, numbers.to, stamp))
    return state.move_on(here, locations.writing(here, state.add_plan(numbers), stamp))


def finish(state: JobState, here: Location, job: Job, outside: Outside, stamp: Stamp) -> Location:
    """Write what a run that was killed has begun to write, by its plan. ``outside``: of the cluster that it moves to.

    A checkpoint is not written: its copy is made anew. Raises as ``moving.finish`` and the store do.
    """
    with closing(outside.open_store(job.store)) as store:
        place = StorePlace(store, job.group, traits(job.store), job.name, stamp.why, outside.now_ms)
        return moving.finish(state, here, lambda _: place, stamp)


def cancel(state: JobState, here: Location, job: Job, naming: Naming, outside: Outside, stamp: Stamp) -> Location:
    """Give back what a move that is being written has replaced. ``outside``: of the cluster that it leaves.

    Raises as ``moving.cancel`` and the store do.
    """
    assert here.plan is not None, "a location in writing names its plan"
    keys = _keys_left(state.plan(here.plan), naming)
    way = traits(job.store)
    if way.corrected_in_copy:
        return moving.cancel(state, here, keys, lambda _: _Original(), stamp)
    with closing(outside.open_store(job.store)) as store:
        place = StorePlace(store, job.group, way, job.name, stamp.why, outside.now_ms)
        return moving.cancel(state, here, keys, lambda _: place, stamp)


class _Original:
    """A checkpoint that was only read: what it holds is what it held before."""

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        return {}

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        """Nothing is written."""

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> str | None:
        return None


def _keys_left(numbers: Numbers, naming: Naming) -> dict[StreamPartition, TopicPartition]:
    """The partitions' keys on the cluster that the plan leaves."""
    return {
        at: TopicPartition(naming.name_on(Stream(at.topic, at.origin), numbers.leaves), at.partition)
        for at in numbers.rows
    }


def done(state: JobState, here: Location, checkpoint: str | None, stamp: Stamp) -> Location:
    """Say that the job lives where its numbers were written, after ``begin`` returned ``here``.

    Raises Changed if another run has said so: that one starts the job.
    """
    assert here.plan is not None, "begin has named the plan"
    numbers = state.plan(here.plan)
    first = {at: each.row.first() for at, each in numbers.rows.items()}
    state.append_journal(locations.stay_of(here.plan), 1, journal.opening(first, f"plan {numbers.number}", stamp.at_ms))
    return state.move_on(here, locations.lives(here, checkpoint, stamp))


def begin_back(state: JobState, config: Config, plan: Plan, stamp: Stamp) -> tuple[Location, str | None]:
    """Say that the numbers before a plan are being put back; with the checkpoint that the job used then.

    Raises Changed if the plan did not begin the stay in which the job lives.
    """
    here = state.location()
    numbers = None if here is None or here.plan is None else state.plan(here.plan)
    if here is not None and here.phase is Phase.WRITING and numbers is not None and numbers.digest == _back_of(plan):
        return here, _checkpoint_before(state, here)  # a rollback that was cut off
    if here is None or numbers is None or numbers.digest != plan.sha256:
        raise Changed(
            f'Job "{state.job}" does not live by this plan any more.',
            hint=f"To take it back now, move it. See: {_history_of(state)}",
        )
    _refuse_begun_otherwise(state, plan)
    has_left = here.phase is not Phase.WRITING
    checkpoint = _checkpoint_before(state, here) if has_left else here.checkpoint
    back = give_back(numbers, here.stay, _keys_left(numbers, config.topics.naming), {})
    back = replace(back, digest=_back_of(plan))
    now = state.move_on(here, locations.giving_back(here, numbers.leaves, state.add_plan(back), stamp))
    return now, checkpoint


def _refuse_begun_otherwise(state: JobState, plan: Plan) -> None:
    """Raise Changed if an earlier plan had begun the move: a run that was killed may have written some rows by it."""
    move = state.history()[::-1]
    if move[0].phase is Phase.LIVES:
        move = move[1:]
    for each in takewhile(lambda each: each.phase is not Phase.LIVES, move):
        if each.phase is Phase.WRITING and each.plan is not None and state.plan(each.plan).digest != plan.sha256:
            raise Changed(
                f'The move of job "{state.job}" was begun by another plan, which may have written some of its offsets.',
                hint=f"Take it back by a move: {command('reconciler', 'move', '--to', plan.source_name)}",
            )


def _back_of(plan: Plan) -> str:
    """The digest of the numbers that undo a plan: they are not the plan's, and are not undone by it again."""
    return f"back of {plan.sha256}"


def _checkpoint_before(state: JobState, here: Location) -> str | None:
    """The checkpoint of the stay before."""
    before = [each for each in state.history() if each.phase is Phase.LIVES and each.stay < here.stay]
    return before[-1].checkpoint if before else None


def _history_of(state: JobState) -> str:
    return command("reconciler", "status", "--job", state.job, "--history")


def _now(here: Location) -> str:
    return f"lives on {here.cluster}" if here.to is None else f"is moving from {here.cluster} to {here.to}"


def numbers_of(plan: Plan, job: Job, config: Config, stay: int, replaced: Mapping[TopicPartition, Replaced]) -> Numbers:
    """The plan's numbers of one job, as the state store keeps them."""
    streams = config.topics.naming.by_name(job.streams, config.there)
    rows = {}
    for row in plan.job(job.name).starts.partitions:
        stream = streams.get(row.topic)
        if row.resume_offset is not None and stream is not None:
            at = StreamPartition(stream.topic, stream.origin, row.partition)
            rows[at] = Planned(row.key, _row(row, replaced.get(row.key), plan.cluster_id))
    leaves = plan.destination_name if job.moved else plan.source_name  # a correction where it lives leaves nothing
    return Numbers(leaves, stay, plan.destination_name, rows, plan.sha256)


def _row(row: PartitionPlan, was: Replaced | None, cluster_id: str) -> PlanRow[Anchor]:
    assert row.resume_offset is not None, "numbers_of leaves out the others"
    was = was or Replaced(row.stored_offset, None, None)
    record, older = was.record, was.older
    if record is None:
        record, older = _named_by(row, cluster_id), 0
    left = was.left or Stored(max(row.stored_offset or 0, 0), None, 0, 0)
    left = replace(left, ahead=max(left.ahead, left.again))
    return PlanRow(row.resume_offset, record, row.replay_at_most or 0, older, frozenset({was.under_key}), left)


def _named_by(row: PartitionPlan, cluster_id: str) -> Anchor:
    """The record before the row's new number, as far as a plan names it; without one, the numbering alone."""
    return Anchor(row.record_offset, fingerprint=row.record_fingerprint, cluster_id=cluster_id, topic_id=row.topic_id)
