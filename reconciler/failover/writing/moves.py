"""A change of a job's numbers: recorded as a plan, written to its place, and then the location where the job lives.

A run that is killed in between leaves ``writing``: the next one writes the same numbers, then ``lives``.

In an offset store, numbers are replaced by compare-and-set, and read back. A key that holds its new number is done,
also if another process wrote it; a key that holds what the plan replaces is written. So of two hooks at once, each
finds the other's numbers as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from reconciler import written
from reconciler.config.file import Config, Job
from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, NotCreated, OutcomeUnknown, ReconcilerError
from reconciler.core.text import counted
from reconciler.core.verdicts import Position
from reconciler.failover.checking.gather import Selected
from reconciler.failover.checking.numbers import read_numbers
from reconciler.failover.checking.recorded import malformed, number_in
from reconciler.failover.outside import Outside
from reconciler.failover.writing.plan_checks import anchors_for
from reconciler.places.registry import traits
from reconciler.plan.costs import records_of_batch
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.ports import UNKNOWN_PARTITION, Change, OffsetStore, Row, TopicPartition, Traits
from reconciler.state import locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.moving import NewNumber, Place
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import Found, PlanRow, Stored


@dataclass(frozen=True, slots=True)
class Replaced:
    """The number under the key that is written, and the number that counted, of one partition."""

    under_key: int | None
    left: Stored[Anchor] | None
    record: Anchor | None
    """The record before the new number; None if it was not read."""
    older: int = 0
    """Records between ``record`` and the new number that may be processed."""

    @classmethod
    def nothing(cls, selected: Selected, cluster_id: str) -> Replaced:
        """For a number that is right already, or was written before. ``cluster_id``: the destination's."""
        there, was = selected.replaced, selected.stored
        held = None if there is None or there.malformed is not None else there.stored
        number = None if held is None or held.is_sentinel else held.offset
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


def carry_out(
    state: JobState,
    config: Config,
    job: Job,
    numbers: Numbers,
    place: Place,
    stamp: Stamp,
    *,
    seen: Location | None = None,
) -> Location:
    """Begin a stay with these numbers: the location afterwards. Raises as ``begin`` and ``moving.finish`` do."""
    here = begin(state, config, job, numbers, place, stamp, seen=seen)
    return moving.finish(state, here, lambda _: place, stamp)


def begin(
    state: JobState,
    config: Config,
    job: Job,
    numbers: Numbers,
    place: Place,
    stamp: Stamp,
    *,
    seen: Location | None = None,
) -> Location:
    """Say that the job's numbers are being written, by the plan that is kept with them.

    ``seen``: the location for which the caller has judged; another one by now is no longer its to change. Raises
    Changed for that, if the job was moved elsewhere meanwhile, or is being written by another plan, and as
    ``moving.begin``.
    """
    here = seen or state.location()
    if here is None:
        place.check(moving.new_numbers(numbers, locations.stay_of(1)))
        here = state.move_on(None, locations.first(job.home, stamp))
    if here.cluster not in (numbers.leaves, numbers.to) or here.to not in (None, numbers.to):
        raise Changed(
            f'Job "{job.name}" {_now(here)} since the plan, which is for a move from {numbers.leaves} to {numbers.to}.',
            hint=f"See: {state.command('status', '--history')}",
        )
    if here.phase is Phase.WRITING and not traits(job.store).corrected_in_copy:  # a copy is made again, by any plan
        raise Changed(
            f'The offsets of job "{job.name}" are being written by another run.',
            hint="Run this again: it finishes that.",
        )
    if here.phase is Phase.LIVES:
        here = replace(locations.moving(here, numbers.to, stamp), number=here.number)
    return moving.begin(state, here, numbers, lambda _: place, stamp)


def finish(state: JobState, here: Location, job: Job, outside: Outside, stamp: Stamp) -> Location:
    """Write what a run that was killed has begun to write, by its plan. ``outside``: of the cluster that it moves to.

    A checkpoint has nothing to write where a plan gives back; else its copy is made again, not here. Raises as
    ``moving.finish`` and the store do.
    """
    with place_of(state, job, outside, stamp) as place:
        return moving.finish(state, here, lambda _: place, stamp)


def cancel(state: JobState, here: Location, job: Job, naming: Naming, outside: Outside, stamp: Stamp) -> Location:
    """Give back what a move that is being written has replaced. ``outside``: of the cluster that it leaves.

    Raises as ``moving.cancel`` and the store do.
    """
    with place_of(state, job, outside, stamp) as place:
        return moving.cancel(state, here, _keys_left(state, here, naming), lambda _: place, stamp)


def roll_back(state: JobState, here: Location, job: Job, naming: Naming, outside: Outside, stamp: Stamp) -> Location:
    """Give back what the plan of this stay has replaced, as ``cancel``. The stay has processed nothing."""
    with place_of(state, job, outside, stamp) as place:
        return moving.roll_back(state, here, _keys_left(state, here, naming), lambda _: place, stamp)


@contextmanager
def place_of(state: JobState, job: Job, outside: Outside, stamp: Stamp) -> Iterator[Place]:
    """The job's place, which is open within the block. A checkpoint is not written there, and does not change."""
    way = traits(job.store)
    if way.corrected_in_copy:
        yield Copied(lambda: None)
        return
    with closing(outside.open_store(job.store)) as store:
        yield StorePlace(store, job.group, way, state, stamp.why, outside.now_ms)


@dataclass(frozen=True, slots=True)
class Copied:
    """A checkpoint as a place: it is only read. ``make`` makes the copy that the job continues in, and returns its
    path; None if the job continues where it was."""

    make: Callable[[], str | None]

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        return {}

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        """Nothing is written."""

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> str | None:
        still_writing()
        return self.make()


def _keys_left(state: JobState, here: Location, naming: Naming) -> dict[StreamPartition, TopicPartition]:
    """The partitions' keys on the cluster that the location's plan leaves."""
    assert here.plan is not None, "a plan is being written, or has begun the stay"
    numbers = state.plan(here.plan)
    return keys_left(numbers, naming)


def keys_left(numbers: Numbers, naming: Naming) -> dict[StreamPartition, TopicPartition]:
    """The partitions' keys on the cluster that the plan leaves."""
    return {
        at: TopicPartition(naming.name_on(Stream(at.topic, at.origin), numbers.leaves), at.partition)
        for at in numbers.rows
    }


def _now(here: Location) -> str:
    return f"lives on {here.cluster}" if here.to is None else f"is moving from {here.cluster} to {here.to}"


def numbers_of(plan: Plan, job: Job, config: Config, stay: int, replaced: Mapping[TopicPartition, Replaced]) -> Numbers:
    """The plan's numbers of one job, as the state store keeps them.

    What a begun batch may have written comes again behind the number, too: the stay's bound has both.
    """
    streams, planned = config.topics.naming.by_name(job.streams, config.there), plan.job(job.name)
    of_batch = {row.key: records_of_batch(row) for row in planned.partitions if row.position == Position.END}
    rows = {}
    for row in planned.starts.partitions:
        stream = streams.get(row.topic)
        if row.resume_offset is not None and stream is not None:
            at = StreamPartition(stream.topic, stream.origin, row.partition)
            rows[at] = Planned(row.key, _row(row, of_batch.get(row.key, 0), replaced.get(row.key), plan.cluster_id))
    leaves = plan.destination_name if job.moved else plan.source_name  # a correction where it lives leaves nothing
    return Numbers(leaves, stay, plan.destination_name, rows, plan.sha256)


def _row(row: PartitionPlan, of_batch: int, was: Replaced | None, cluster_id: str) -> PlanRow[Anchor]:
    assert row.resume_offset is not None, "numbers_of leaves out the others"
    was = was or Replaced(row.stored_offset, None, None)
    record, older = was.record, was.older
    if record is None:
        record, older = _named_by(row, cluster_id), 0
    left = was.left or Stored(max(row.stored_offset or 0, 0), None, 0, 0)
    left = replace(left, ahead=max(left.ahead, left.again))
    again = (row.replay_at_most or 0) + of_batch
    return PlanRow(row.resume_offset, record, again, older, frozenset({was.under_key}), left)


def _named_by(row: PartitionPlan, cluster_id: str) -> Anchor:
    """The record before the row's new number, as far as a plan names it; without one, the numbering alone."""
    return Anchor(row.record_offset, fingerprint=row.record_fingerprint, cluster_id=cluster_id, topic_id=row.topic_id)


ATTEMPTS = 5
"""How often a write is repeated if rows change, but not their numbers."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A job's rows in ``store`` as a ``moving.Place``. ``now_ms``: epoch ms; ``reason`` goes into the store's history.

    A checkpoint is copied, not written: it is another place.
    """

    store: OffsetStore
    group: str
    traits: Traits
    state: JobState
    reason: str
    now_ms: Callable[[], int]

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """The numbers under the keys. Raises as the store does, and Refused for a row that cannot be read."""
        found = {}
        for key, row in self._rows(keys).items():
            if (number := number_in(row)) is not None:
                found[key] = Found(number, row.of_stay)
        return found

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        """Raise Changed if ``replace`` would, for what the keys hold now, and Refused if the store refuses a write."""
        if not self.traits.corrected_by_job and self._changes(numbers):
            self.store.check_writable(self.group)

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> None:
        """Write the numbers, as ``moving.Place`` says. Writes nothing where only the job writes."""
        if self.traits.corrected_by_job:
            return
        with written.writing(f'job "{self.state.job}" ({counted(len(numbers), "offset")})'):
            self._replace(numbers, still_writing)

    def _replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> None:
        begun = False
        for _ in range(ATTEMPTS):
            try:
                changes = self._changes(numbers, begun=begun)
                if not changes:
                    return
                still_writing()
                begun = self._write(changes, numbers) or begun
            except ReconcilerError as error:
                if not begun or isinstance(error, OutcomeUnknown):
                    raise
                raise OutcomeUnknown(
                    f'Offsets of job "{self.state.job}" were written, then: {error.message}', hint="Run this again."
                ) from error
        raise (OutcomeUnknown if begun else Changed)(
            f'The rows of job "{self.state.job}" in {self.store.address} changed each of {ATTEMPTS} times they were '
            "written.",
            hint="Stop what writes them, then run this again.",
        )

    def _write(self, changes: Sequence[Change], numbers: Mapping[TopicPartition, NewNumber]) -> bool:
        """True if any was written. If the store's answer is lost, reading back decides."""
        try:
            result = self.store.write(self.group, changes, reason=self.reason, now_ms=self.now_ms())
            return bool(result.written)
        except OutcomeUnknown as unknown:
            try:
                left = self._changes(numbers, begun=True)
            except ReconcilerError as error:
                raise unknown from error
            if left:
                raise
            return True

    def _changes(self, numbers: Mapping[TopicPartition, NewNumber], *, begun: bool = False) -> Sequence[Change]:
        """The changes that are left. Raises Changed for a key that holds what the plan does not know.

        ``begun``: this run has written; then a row that has the right number is done.
        """
        rows = self._rows(numbers)
        changes = []
        for key, new in numbers.items():
            row = rows.get(key)
            held = self._held(key, row, new)
            if held == new.number and (begun or self._is_of_stay(row, new)):
                continue
            # A mirror commits to a group whose job does not run; with members in it, the store refuses.
            if held not in (new.number, *new.replaced) and not self.traits.holds_commits:
                raise self._changed(key, f"holds {_words(held)}", new)
            record = new.record if self.store.capabilities.keeps_anchors else None
            left = StoredOffset(new.left.number, new.left.record)
            version = row.version if row is not None else None
            changes.append(Change(key, version, StoredOffset(new.number, record), found_from=left, stay=new.stay))
        return changes

    def _held(self, key: TopicPartition, row: Row | None, new: NewNumber) -> int | None:
        if (bad := malformed(row)) is not None:
            raise self._changed(key, f"cannot be read ({bad.message})", new)
        return number_in(row)

    def _is_of_stay(self, row: Row | None, new: NewNumber) -> bool:
        """True if the row names the new stay, or has no room for it: then the number alone counts.

        A row that was right before the move gets the new stay, and the anchor in its numbering: range batches read from
        no other. A group takes no commit of others once its consumers have started.
        """
        has_room = self.store.capabilities.keeps_anchors and not self.traits.holds_commits
        return not has_room or (row is not None and row.of_stay == new.stay)

    def _changed(self, key: TopicPartition, holds: str, new: NewNumber) -> Changed:
        known = " or ".join(
            _words(each) for each in sorted(new.replaced, key=lambda each: -1 if each is None else each)
        )
        return Changed(
            f'{key} of job "{self.state.job}" {holds} in {self.store.address}. The plan of stay {new.stay} replaces '
            f"{known} by offset {new.number:,}.",
            hint="Find out what has written it. To give the numbers back: " + self.state.command("move", "--cancel"),
        )

    def _rows(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Row]:
        """The rows of the keys. A row without a partition's number may be any of its topic's."""
        wanted = list(keys)
        try:
            rows = {row.key: row for row in self.store.read(self.group, sorted({key.topic for key in wanted}))}
        except NotCreated:
            return {}
        of_any = {key.topic: row for key, row in rows.items() if key.partition == UNKNOWN_PARTITION}
        found = {key: rows.get(key, of_any.get(key.topic)) for key in wanted}
        return {key: row for key, row in found.items() if row is not None}


def _words(number: int | None) -> str:
    return "no offset" if number is None else f"offset {number:,}"
