"""The journal of a job that has a location, from outside of it: which of its stored numbers are noted, and a report.

Theory of operation. A round reads the place, after the location that it is read for. So the place is not older than the
location: at worst, its numbers are of a later stay, and the journal of the one that is over is closed.

A job without a location is read as living at its home, in stay 1: that is every job's first location (``first``).
So its journal is there before its hook has started it. Entries that name another cluster's records stop it: its home,
or that cluster, was another one when they were made.

A number is noted only if what is recorded says that it is the job's (``failover.checking.recorded``). So an entry adds
the record before a number, and never changes what the number means: of a number that a mirror has committed, that a
table has been put back to, or that a driver on another cluster may have written, it lifts no doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.config.file import Config, Job
from reconciler.core.errors import NeedsPerson
from reconciler.failover.checking.recorded import (
    Gathered,
    JobPlace,
    Recorded,
    Undecided,
    gather,
    has_record,
    judge,
    lag_of,
    number_in,
    shared_names,
)
from reconciler.failover.unlisted import Unlisted
from reconciler.jobs.tracking.beside import OutsideRecorder
from reconciler.jobs.tracking.recorder import Position, positions_of
from reconciler.jobs.tracking.source import Place, SourceLog
from reconciler.kafka.mirror.reading import mirrors_to, of_any_mirror
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.places.registry import checkpoint_path, traits
from reconciler.ports import ClusterInfo, LogReader, OffsetReader, Row, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, first
from reconciler.state.moving import refuse_later

OTHERS = "its anchor is another cluster's: a mirror has translated the offset, or it was imported and not corrected yet"
ELSEWHERE = (
    "another cluster's number can be under this name, and the row does not say its stay: only the job's driver can "
    "record it (track(query))"
)


@dataclass(frozen=True, slots=True)
class Located:
    """A job's entries in the state store, and where it lives by them."""

    state: JobState
    here: Location


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job's stored numbers beside its journal after a round, by partition.

    ``lagging`` have an entry for an older number, ``without`` have none, each with the reason if it is known.
    ``age_ms``: the age of the oldest lagging entry, by its record's timestamp. ``saved``: the partitions in this
    round's entry. ``known`` False: the store or the journal could not be read. ``followed``: no trouble kept missing
    records from being looked up and appended. ``no_rows``: a sentence, if the store has no row of any of the job's
    topics and the configuration does not call the job new. ``unlisted``: topics of the job's group that it does not
    list. ``driver``: which run of the job's driver records its journal.
    """

    job: str
    store: str
    exact: int = 0
    lagging: Mapping[TopicPartition, str] = field(default_factory=dict)
    without: Mapping[TopicPartition, str] = field(default_factory=dict)
    saved: int = 0
    age_ms: int | None = None
    known: bool = True
    followed: bool = False
    no_rows: str = ""
    unlisted: Unlisted = field(default_factory=Unlisted)
    driver: str = ""

    @property
    def partitions(self) -> int:
        return self.exact + len(self.lagging) + len(self.without)


def why_not(config: Config, job: Job, located: Located) -> str:
    """Why no journal of a job is kept on the cluster that is read; empty if one is."""
    if located.here.phase is Phase.WRITING:
        return f"it is being moved to {located.here.to} now"
    return "" if located.here.cluster == config.here else f"it lives on {located.here.cluster}"


def read_ends(job: Job, rows: Mapping[TopicPartition, Row]) -> dict[TopicPartition, int]:
    """The ends of the batch that a query has begun after these rows; empty for other jobs. Raises as stores do."""
    if not traits(job.store).corrected_in_copy or not rows:
        return {}
    starts = {key: number_in(row) for key, row in rows.items() if row.malformed is None}
    found = positions_of(read_checkpoint(checkpoint_path(job.store)))
    return {at: each.end for at, each in found.items() if each.end is not None and each.start == starts.get(at)}


class StayJournal:
    """One job's journal, round by round. ``reader`` reads the cluster where it lives. Times are monotonic, in seconds.

    The methods are called in their order here.
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        located: Located,
        reader: LogReader,
        *,
        waits_s: float,
    ) -> None:
        naming, own = config.topics.naming, traits(job.store)
        self._job, self._located, self._reader = job, located, reader
        self._names = naming.by_name(job.streams, config.here)
        self._mirrors = mirrors_to(config.here, config)
        self._source = SourceLog(lambda _: reader, lambda _: False, job.identity)
        self._recorder = OutsideRecorder(located.state, located.here.stay, self._names, self._source, waits_s)
        shared = shared_names(config, job, config.here)
        named = partial(naming.by_name, job.streams)
        self._place = JobPlace(None, job.group, own, self._names, shared, names_on=named)
        self._gathered: Gathered | None = None
        self._positions: dict[TopicPartition, Position] = {}
        self._may_note = False
        self._why: dict[TopicPartition, str] = {}
        """Numbers that are not noted, and why. ``_mirrored``: those that may be a mirror's."""
        self._mirrored: dict[TopicPartition, str] = {}

    def begin_round(
        self, rows: Mapping[TopicPartition, Row], ends: Mapping[TopicPartition, int], store: OffsetReader, now_s: float
    ) -> None:
        """Take what the place holds now, and where a query's batch ends that has begun.

        Raises what the state store raises, and NeedsPerson for an old copy of it.
        """
        self._why, self._mirrored = {}, {}
        place = replace(self._place, reader=store)
        state, here = self._located.state, self._located.here
        if self._gathered is None:
            self._gathered = gather(state, here, place, rows)
            self._recorder.begin(self._gathered.journal)
        else:
            refuse_later(state, here, {key: row.of_stay for key, row in rows.items()})
            held = {key: row for key, row in rows.items() if key.topic in self._names}
            self._gathered = replace(self._gathered, place=place, rows=held)
        self._positions = {key: Position(number, ends.get(key)) for key, number in self._numbers().items()}
        lacks = any(self._recorder.lacks(*each) for each in self._positions.items())
        self._may_note = self._recorder.may_note(now_s, lacks=lacks) and lacks

    def look(self) -> None:
        """Note the job's numbers. Raises what the log raises."""
        if not self._may_note:
            return
        lacking = {key: each.start for key, each in self._positions.items() if self._recorder.lacks(key, each)}
        cluster, rows = self._source.describe(self._names), self._rows
        self._refuse_other_home(cluster.cluster_id)
        self._why = {key: OTHERS for key in lacking if _is_of_another(rows[key], cluster.cluster_id)}
        self._mirrored = self._of_mirror({key: number for key, number in lacking.items() if number is not None})
        self._why |= self._mirrored
        judged = self._judge()
        noted = {
            key: each
            for key, each in self._positions.items()
            if key not in lacking or (key not in self._why and _is_own(judged.get(self._at(key)), each.start))
        }
        own = {Place(key, row.stored.offset): row.stored for key, row in rows.items() if _names_last(row, cluster)}
        self._recorder.look(noted, own)

    def append(self, now_s: float, now_ms: int) -> int:
        """Append what was noted; the number of partitions in it. Raises what the state store raises."""
        return self._recorder.append_at(now_s, now_ms)

    def report(self, at: JobReport, now_ms: int) -> JobReport:
        """The counts of this round: what the journal has of the numbers in the place."""
        exact, oldest_ms = 0, now_ms
        lagging: dict[TopicPartition, str] = {}
        without: dict[TopicPartition, str] = {}
        judged = self._judge()
        for key in sorted(self._rows):
            found, number = judged.get(self._at(key)), self._positions[key].start if key in self._positions else None
            if isinstance(found, Undecided):
                without[key] = self._why.get(key) or found.why.rstrip(".")
            elif found is None or number is None or (number == 0 and found.stored.record is None):
                exact += 1  # nothing was processed
            elif found.stored.record is None or (key in self._why and key not in self._mirrored):
                without[key] = self._why.get(key) or self._recorder.why(key, number) or "not looked up yet"
            elif found.stored.number == number and found.stored.older == 0:
                exact += 1
            elif self._is_replaced(key, number) and found.stored.older == 0:
                exact += 1  # only its job writes there: it has stored nothing in this stay
            else:
                same = found.stored.number == number
                lagging[key] = self._why.get(key) or self._recorder.why(key, number) or ("" if same else ELSEWHERE)
                oldest_ms = min(oldest_ms, found.stored.record.timestamp_ms or oldest_ms)
        driver = self._recorder.driver if self._recorder.is_left_to_driver else ""
        age_ms = now_ms - oldest_ms if lagging else None
        counted = replace(at, exact=exact, lagging=lagging, without=without)
        return replace(counted, age_ms=age_ms, driver=driver or "")

    def _refuse_other_home(self, cluster_id: str) -> None:
        """Raise NeedsPerson if the job has no location, and its journal is of another cluster's records."""
        here = self._located.here
        records = [known.record for known in self._recorder.entries()[-1].numbers.values() if known.record is not None]
        if here == first(here.cluster) and any(each.cluster_id not in (None, cluster_id) for each in records):
            raise NeedsPerson(
                f'The journal of job "{self._job.name}" is of another cluster than its home, {here.cluster}, is now.',
                hint="Correct its home. If it is right, let its offsets be found again: "
                + self._located.state.command("move", "--to", here.cluster),
            )

    # ------------------------------------------------------------ what the place holds

    @property
    def _rows(self) -> Mapping[TopicPartition, Row]:
        return (self._gathered.rows if self._gathered is not None else None) or {}

    def _numbers(self) -> dict[TopicPartition, int]:
        sound = {key: number_in(row) for key, row in self._rows.items() if row.malformed is None}
        return {key: number for key, number in sound.items() if number is not None}

    def _of_mirror(self, numbers: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Those that a mirror's group sync may have committed: of a group, beside where its records are produced."""
        here = self._located.here
        asked = {
            key: number
            for key, number in numbers.items()
            if key not in self._why and (here.stay > 1 or self._names[key.topic].origin != here.cluster)
        }
        if not asked or not self._place.traits.holds_commits:
            return {}
        assert self._gathered is not None
        found = replace(self._gathered, journal=self._recorder.entries())
        judged = {key: number if here.stay == 1 or has_record(found, key) else None for key, number in asked.items()}
        return of_any_mirror(judged, self._job.group_names, self._reader, self._mirrors)

    def _judge(self) -> Mapping[StreamPartition, Recorded | Undecided]:
        assert self._gathered is not None
        mirrored = {(key, number) for key, number in self._numbers().items() if key in self._mirrored}
        return judge(replace(self._gathered, journal=self._recorder.entries()), mirrored)

    def _is_replaced(self, key: TopicPartition, number: int) -> bool:
        plan = self._gathered.plan if self._gathered is not None else None
        row = plan.rows.get(self._at(key)) if plan is not None else None
        return row is not None and number in row.row.replaced

    def _at(self, key: TopicPartition) -> StreamPartition:
        return StreamPartition(*self._names[key.topic], key.partition)


def _is_own(found: Recorded | Undecided | None, number: int | None) -> bool:
    return isinstance(found, Recorded) and found.stored.number == number


def _is_of_another(row: Row, cluster_id: str) -> bool:
    return row.stored.cluster_id not in (None, cluster_id)


def _names_last(row: Row, cluster: ClusterInfo) -> bool:
    """True if the row's own anchor is the record before its number, on this cluster."""
    if row.malformed is not None or row.numbered_by is not None or row.stored.anchor is None:
        return False
    anchor, topic_id = row.stored.anchor, cluster.topic_id(row.key.topic)
    return anchor.names_a_record and lag_of(row) == 0 and anchor.numbered_by(cluster.cluster_id, topic_id)
