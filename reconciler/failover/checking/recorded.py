"""The numbers of a job where it lives: what its place holds, read by what is recorded of its stay.

Theory of operation. The place is read first and then the journal, so that the journal is not the older of the two.
``judge`` is pure. A number means what ``state.stored`` says (N1 to N6). Beside that:

- R1  The anchor in a row counts as a journal entry for exactly the row's number, where the journal has none for it. It
      does not outrank what the plan replaced (N2), nor lift a number that is below the stay's first.
      One that was made for an earlier number, as ``track`` keeps them, counts for that number.
- R2  Where another cluster's number can be under the key, and the row does not name its stay, such an anchor counts
      only if it is in the numbering of this stay's records, and not in that of the cluster that was left. Such a one
      also outranks what the plan replaced there, if it was written with the number.
- R3  In a stay that no plan began, a number of which nothing is recorded counts, not checked: a job that runs already
      is not stopped (A20). In a later stay it counts only if no one but this stay's job can have written it: a
      partition that was added since. In a group it is a mirror's if a mirror has any checkpoint of it.
- R4  A place inside a cluster that does not answer is read as the journal's newest processed entries (A17).
- R5  From ``writing`` until ``lives``, the numbers are the plan's, and the place is not read.
- R6  Where two streams have one name on different clusters, and the plan had no number of the one, the number that it
      left under their key is the other's: nothing is stored of this one.
- R7  A checkpoint has the batch itself that the query has begun. Where it ends is judged beside the numbers (``ends``),
      and is not counted with them.
- R8  A number between an entry's record and its number is the entry's: only a transaction's marker can be between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from reconciler.config.file import Config, Job
from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor, Names
from reconciler.core.errors import Unreachable
from reconciler.places.registry import traits as traits_of
from reconciler.ports import UNKNOWN_PARTITION, Malformed, OffsetReader, Row, TopicPartition, Traits
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition, known_of
from reconciler.state.locations import Location, Phase
from reconciler.state.moving import refuse_later
from reconciler.state.plans import Numbers
from reconciler.state.stored import Doubt, Found, Known, PlanRow, Stored, from_entry, newest, read_number


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job keeps its numbers, on the cluster where it lives.

    ``reader`` None: in its journal. ``names``: the streams by their topics on that cluster; a stream without a topic
    there is left out. ``shared``: the names under which another cluster's number can be.
    """

    reader: OffsetReader | None
    group: str
    traits: Traits
    names: Mapping[str, Stream]
    shared: frozenset[str] = frozenset()
    names_on: Callable[[str], Mapping[str, Stream]] = lambda _: {}
    """The streams by their topics on a cluster that the job has left."""


def shared_names(config: Config, job: Job, cluster: str) -> frozenset[str]:
    """As ``names_shared``; none for a job of which the operator says that only its last driver stores numbers."""
    if job.single_driver:
        return frozenset()
    return names_shared(config.topics.naming, job.streams, cluster, tuple(config.clusters), traits_of(job.store))


def names_shared(
    naming: Naming, streams: Sequence[Stream], cluster: str, clusters: Collection[str], traits: Traits
) -> frozenset[str]:
    """The names on ``cluster`` under which the place can have another cluster's number.

    A group and a checkpoint belong to one cluster, so they have none.
    """
    if traits.holds_commits or traits.corrected_in_copy:
        return frozenset()
    shared = [each for each in streams if naming.is_shared(streams, each, cluster, clusters)]
    return frozenset(naming.name_on(each, cluster) for each in shared)


class Basis(Enum):
    """Why a stored number is believed."""

    JOURNAL = "the journal of this stay"
    PLAN = "the plan that is being written"
    ROW = "the row's own anchor"
    UNSEEN = "the journal's newest entry, as the place does not answer"
    """The job's work since that entry is not counted."""
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A partition's stored number."""

    stored: Stored[Anchor]
    basis: Basis
    is_beyond: bool = False
    """The place holds another number, which is not believed (N3, N6). The records up to it may be processed, and
    nothing but the place says so until a stay begins at this one."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A partition whose number needs a decision: what the place holds, and what the journal says. ``hint``: what to do.

    ``doubt`` None: the row cannot be read.
    """

    why: str
    hint: str
    doubt: Doubt | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """The input of ``judge``. ``rows`` None: the journal counts. ``unseen``: why the place was not read (R4)."""

    here: Location
    place: JobPlace
    plan: Numbers | None
    """The plan that began the stay, or that is being written."""
    was_here: bool
    """True if an earlier stay was on this cluster."""
    rows: Mapping[TopicPartition, Row] | None
    journal: Sequence[Entry] = ()
    unseen: Unreachable | None = None


def gather(
    job: JobState,
    here: Location,
    place: JobPlace,
    rows: Mapping[TopicPartition, Row] | None,
    unseen: Unreachable | None = None,
) -> Gathered:
    """The numbers in a place, whose ``rows`` were read right before, and what is recorded of them.

    Raises what the state store raises, and NeedsPerson for a number of a later stay: the state store is an old copy.
    """
    plans = job.plans()
    plan = None if here.plan is None else plans.get(here.plan) or job.plan(here.plan)
    before = [each for each in plans.values() if plan is not None and each.number < plan.number]
    was_here = any(here.cluster in (each.leaves, each.to) for each in before)
    if here.phase is Phase.WRITING:
        return Gathered(here, place, plan, was_here, {})
    refuse_later(job, here, {key: row.of_stay for key, row in (rows or {}).items()})
    journal = job.journal(here.stay)
    if rows is not None:
        rows = {key: row for key, row in rows.items() if key.topic in place.names}
    return Gathered(here, place, plan, was_here, rows, journal, unseen)


def judge(
    found: Gathered, of_mirror: Collection[tuple[TopicPartition, int]] = frozenset()
) -> dict[StreamPartition, Recorded | Undecided]:
    """Each partition's number. A partition of which the job has no number is left out.

    ``of_mirror``: the numbers that a mirror has committed, by key.
    """
    planned = found.plan.rows if found.plan is not None else {}
    if found.here.phase is Phase.WRITING:
        firsts = {at: each.row.first() for at, each in planned.items()}
        return {at: Recorded(from_entry(first, [first]), Basis.PLAN) for at, first in firsts.items()}
    entries: dict[StreamPartition, list[Entry]] = {}
    for entry in found.journal if not found.place.traits.corrected_in_copy else map(_without_end, found.journal):
        for at in entry.numbers.keys() | entry.begun.keys():
            entries.setdefault(at, []).append(entry)
    topics = {stream: name for name, stream in found.place.names.items()}
    judged: dict[StreamPartition, Recorded | Undecided] = {}
    for at in sorted({*entries, *planned, *_with_rows(found)}):
        name = topics.get(Stream(at.topic, at.origin))
        if name is None:
            continue
        row = planned[at].row if at in planned else None
        one = _Partition(found, TopicPartition(name, at.partition), known_of(entries.get(at, ()), at), row)
        if (number := one.judge(of_mirror)) is not None:
            judged[at] = number
    return judged


def _without_end(entry: Entry) -> Entry:
    """R7."""
    return replace(entry, begun={})


def _with_rows(found: Gathered) -> Iterable[StreamPartition]:
    for key in found.rows or ():
        topic, origin = found.place.names[key.topic]
        yield StreamPartition(topic, origin, key.partition)


def ends(found: Gathered, earlier: Sequence[Entry] = ()) -> dict[StreamPartition, Recorded | Undecided]:
    """Where the batch ends that a query has begun, by the rows of these ends, with what the journals know of each.

    ``earlier``: of earlier stays on this cluster. A move that was cancelled begins a stay within the same batch.
    """
    judged: dict[StreamPartition, Recorded | Undecided] = {}
    for key, row in (found.rows or {}).items():
        at = StreamPartition(*found.place.names[key.topic], key.partition)
        known = [each for each in known_of([*earlier, *found.journal], at) if each.number == row.stored.offset]
        record, lag = (known[-1].record, known[-1].older) if known else (row.stored.anchor, lag_of(row))
        judged[at] = Recorded(Stored(row.stored.offset, record, 0, lag), Basis.JOURNAL if known else Basis.ROW)
    return judged


def unknown_numbers(found: Gathered) -> dict[TopicPartition, int]:
    """The numbers in the place that neither the plan nor the journal has, by their keys."""
    unknown = {}
    for key, row in (found.rows or {}).items():
        if row.malformed is not None or (number := number_in(row)) is None:
            continue
        at = StreamPartition(*found.place.names[key.topic], key.partition)
        planned = found.plan.rows.get(at) if found.plan is not None else None
        written = set() if planned is None else {planned.row.number, *planned.row.replaced}
        recorded = {each.number for each in known_of(found.journal, at) if each.processed}
        if number not in written | recorded:
            unknown[key] = number
    return unknown


def has_record(found: Gathered, key: TopicPartition) -> bool:
    """True if the plan that began the stay, or its journal, has the partition."""
    at = StreamPartition(*found.place.names[key.topic], key.partition)
    planned = found.plan is not None and at in found.plan.rows
    return planned or any(each.processed for each in known_of(found.journal, at))


def malformed(row: Row | None) -> Malformed | None:
    """Why the row cannot be read; None if it can, or there is none."""
    return None if row is None else row.malformed


def _at_number(known: Sequence[Known[Anchor]], number: int | None) -> Sequence[Known[Anchor]]:
    """The entries. One whose record is the last before ``number``, too, has that number (R8)."""
    if number is None:
        return known
    return [replace(each, number=number) if _is_at(each, number) else each for each in known]


def _is_at(entry: Known[Anchor], number: int) -> bool:
    """An anchor without a cluster has no offset in this numbering."""
    last = entry.record
    if last is None or last.cluster_id is None or last.offset is None or last.names is not Names.LAST:
        return False
    return entry.processed and not entry.older and last.offset < number < entry.number


def _with_entry(known: Sequence[Known[Anchor]], own: Known[Anchor]) -> list[Known[Anchor]]:
    """The entries, with one whose age is not known right behind the last entry that is not beyond it."""
    at = max((place for place, each in enumerate(known, 1) if each.number <= own.number), default=0)
    return [*known[:at], own, *known[at:]]


def lag_of(row: Row) -> int:
    """Offsets from behind the anchor's record to the row's number; negative if the record is at or behind the number.

    0 without an anchor, and for one of which only the pair is known.
    """
    anchor = row.stored.anchor
    if row.anchor_lag is not None or anchor is None:
        return row.anchor_lag or 0
    if anchor.offset is None or anchor.names is Names.MAX_TIME:
        return 0
    if anchor.names is Names.NEXT:
        # A gap may part an exact pair: then the record is after the offset. Without a cluster's id it is one of a
        # flowlet, which is written with the offset: the anchor's own is only where a search may begin.
        return max(0, row.stored.offset - anchor.offset) if anchor.cluster_id is not None else 0
    return row.stored.offset - anchor.offset - 1


def number_in(row: Row | None) -> int | None:
    """The number in a row; None if it says that nothing was processed. Raises Refused for one that cannot be read."""
    return None if row is None or row.stored.is_sentinel else row.stored.offset


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition, with what the journal knows of it, oldest first, and its row of the plan."""

    found: Gathered
    key: TopicPartition
    known: Sequence[Known[Anchor]]
    planned: PlanRow[Anchor] | None

    def judge(self, of_mirror: Collection[tuple[TopicPartition, int]]) -> Recorded | Undecided | None:
        rows, processed = self.found.rows, any(each.processed for each in self.known)
        if rows is None:
            basis = Basis.JOURNAL if self.found.unseen is None else Basis.UNSEEN
            return Recorded(newest(self._known()), basis) if processed or self.planned is not None else None
        row = rows.get(self.key)
        of_topic = rows.get(TopicPartition(self.key.topic, UNKNOWN_PARTITION))
        if (bad := malformed(of_topic if row is None else row)) is not None:
            return Undecided(f"{bad.message} {self._journal_has()}", bad.hint)
        number = number_in(row)
        of_stay = row.of_stay if row is not None else None
        held = Found(number, of_stay, self._is_shared(), (self.key, number) in of_mirror)
        if not processed and self.planned is None:
            return self._unrecorded(row, held)
        return self._recorded(row, held)

    def _known(self) -> Sequence[Known[Anchor]]:
        """The number at which the stay began comes first (N2), also where the journal has been pruned."""
        if self.planned is None:
            return self.known
        return [self.planned.first(), *self.known]

    def _is_shared(self) -> bool:
        """Also if the plan began a new stay on this cluster: the former numbers were under the same key."""
        plan, traits = self.found.plan, self.found.place.traits
        if traits.holds_commits or traits.corrected_in_copy:
            return False
        return self.key.topic in self.found.place.shared or (plan is not None and plan.leaves == plan.to)

    def _unrecorded(self, row: Row | None, held: Found) -> Recorded | Undecided | None:
        """R3."""
        if row is None or held.number is None:
            return None
        if self._is_left_over(held.number):
            return None
        stay = self.found.here.stay
        others = held.shared or (self.found.was_here and not self.found.place.traits.holds_commits)
        is_own = held.of_stay == stay if held.of_stay is not None else self.found.plan is None or not others
        is_own = is_own or (held.of_stay is None and self._is_numbered_here(row.stored.anchor))
        if held.of_mirror or not is_own:
            return self._undecided(held, Doubt.UNKNOWN if held.of_stay in (None, stay) else Doubt.ANOTHER_STAY)
        basis = Basis.NOT_CHECKED if row.stored.anchor is None else Basis.ROW
        return Recorded(Stored(held.number, row.stored.anchor, 0, lag_of(row)), basis)

    def _is_left_over(self, number: int) -> bool:
        """R6."""
        plan = self.found.plan
        stream = None if plan is None else self.found.place.names_on(plan.leaves).get(self.key.topic)
        if plan is None or stream is None or stream == self.found.place.names.get(self.key.topic):
            return False
        other = plan.rows.get(StreamPartition(stream.topic, stream.origin, self.key.partition))
        return other is not None and other.row.left.number == number

    def _recorded(self, row: Row | None, held: Found) -> Recorded | Undecided:
        """N1 to N6, with the row's own anchor (R1, R2)."""
        known, stay = _at_number(self._known(), held.number), self.found.here.stay
        own = self._entry_of(row, held, known)
        read = read_number(held, known if own is None else _with_entry(known, own), self.planned, stay)
        if isinstance(read, Doubt):
            return self._undecided(held, read)
        basis = Basis.JOURNAL if own is None or read.record is not own.record else Basis.ROW
        return Recorded(read, basis, is_beyond=held.number != read.number and not self._is_replaced(held.number))

    def _is_replaced(self, number: int | None) -> bool:
        """N2."""
        return self.planned is not None and (number is None or number in self.planned.replaced)

    def _entry_of(self, row: Row | None, held: Found, known: Sequence[Known[Anchor]]) -> Known[Anchor] | None:
        """The row's anchor as an entry, where it counts as one."""
        number, stay = held.number, self.found.here.stay
        if row is None or number is None or row.stored.anchor is None or held.of_mirror:
            return None
        is_named = self._is_numbered_here(row.stored.anchor)
        if stay > 1 and held.shared and held.of_stay is None and not is_named:
            return None
        lag = lag_of(row)
        if row.anchor_lag is not None and lag > 0:
            number, lag = number - lag, 0
        processed = [each.number for each in known if each.processed]
        is_replaced = self._is_replaced(held.number)
        is_replaced = is_replaced and not (is_named and row.anchor_lag is None and self._came_from_elsewhere)
        is_below = stay > 1 and number < min(processed)
        if is_replaced or is_below or number in processed:
            return None
        return Known(number, row.stored.anchor, older=lag)

    @property
    def _came_from_elsewhere(self) -> bool:
        """True if the plan moved the job here from another cluster."""
        plan = self.found.plan
        return plan is not None and plan.leaves != plan.to

    def _is_numbered_here(self, anchor: Anchor | None) -> bool:
        """R2, by the clusters' and the topic's ids."""
        rows = [] if self.found.plan is None else [each.row for each in self.found.plan.rows.values()]
        here = {each.cluster_id for row in rows if (each := row.record) is not None}
        left = {each.cluster_id for row in rows if (each := row.left.record) is not None}
        others = left if self._came_from_elsewhere else set()
        if anchor is None or anchor.cluster_id is None or anchor.cluster_id not in here - others:
            return False
        record = None if self.planned is None else self.planned.record
        return record is None or record.numbered_by(anchor.cluster_id, anchor.topic_id)

    def _undecided(self, held: Found, doubt: Doubt) -> Undecided:
        reader = self.found.place.reader
        place = reader.address if reader is not None else "The journal"
        holds = f"{place} holds {'no offset' if held.number is None else f'offset {held.number:,}'} for {self.key}"
        if held.of_stay not in (None, self.found.here.stay):
            holds += f", stored in stay {held.of_stay}"
        elif held.of_mirror:
            holds += ", which a mirror has committed"
        hint = "Find out what has written it, or set the offset: --set TOPIC:PARTITION=OFFSET."
        return Undecided(f"{holds}. {self._journal_has()}", hint, doubt)

    def _journal_has(self) -> str:
        numbers = [each.number for each in self._known() if each.processed]
        low, high = min(numbers, default=0), max(numbers, default=0)
        has = "none" if not numbers else f"offset {low:,}" if low == high else f"offsets {low:,} to {high:,}"
        return f"The journal of stay {self.found.here.stay} on {self.found.here.cluster} has {has} of it."
