"""Keep anchors for jobs that store bare offsets, from outside of the jobs, while the source is alive.

Theory of operation. A round reads a job's stored offsets, then their kept anchors, then, on the source, the last record
before each offset that has no anchor yet; and saves that record as the anchor made for the offset.

No step has to be undisturbed. A saved anchor states a fact about the source's log alone: "the last record before offset
X of this partition is this one". It stays true whatever the job does meanwhile, and is used only together with the
stored offset X, or as older than a later one (``stores.paired.rules``). So if a store moves on between the read and the
save, the only cost is lag. Four rules all the same:

- A save is a compare-and-set on the anchor that was read. Of two trackers, or a tracker and an ``apply``, one loses.
- Where the kept anchor is another cluster's, the job was handed over, and its number may be that cluster's (one topic
  name on both sides): it is not looked up here. Offsets are read before anchors, so an ``apply`` in between shows.
- A row there without an anchor is a job's own offset, not an anchor: it is never replaced. The [anchors] store may be
  that job's store, under an address that does not look like it.
- A row that an interrupted write left (``stores.paired``) is removed once the job has gone on. If it is of another
  cluster than the row that it was to replace, the job's number may be either's: it is not looked up, and the row stays,
  until a person says where the job runs. The same holds for the row of a rollback that put such a number back.

``kafka-group:`` jobs: their commits at the source are lost with it, so the row itself is kept. An anchor in a commit's
metadata is kept as it is. A number that a mirror may have put over a correction is not looked up (``overwritten``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reconciler import written
from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.config.places import one_store
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import (
    Changed,
    ConfigError,
    OutcomeUnknown,
    ReconcilerError,
    Unreachable,
    as_sentence,
    together,
)
from reconciler.engine import EngineSettings, Inquiry, run
from reconciler.failover.apart import STORE_FAILURES, Fuse
from reconciler.failover.no_rows import no_rows
from reconciler.failover.outside import StoreOpener
from reconciler.failover.positions import tracked_ends
from reconciler.failover.unlisted import Unlisted, find_unlisted
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores.paired import (
    AnchorRows,
    lacks_anchor,
    of_anchors,
    read_kept,
    refuse_unable,
    without_aside,
)
from reconciler.stores.registry import is_end_of_batch
from reconciler.tracking.asked import ANCHORS, Asked, SourceSide
from reconciler.tracking.job import JobReport, TrackedJob
from reconciler.tracking.journals import StayJournal, can_keep, read_ends
from reconciler.tracking.lookback import LookbackResult, look_back
from reconciler.tracking.overwritten import put_by_mirror
from reconciler.tracking.source import Place
from reconciler.tracking.trackable import refuse_shared, why_not

log = logging.getLogger(__name__)

UNLISTED_S = 60.0
SOURCE, STATE = "the source cluster", "the state store"


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over all jobs. ``troubles``: errors, by what could not be reached or which job could not be tracked."""

    jobs: tuple[JobReport, ...]
    troubles: Mapping[str, ReconcilerError]


class Tracker:
    """Tracks the rows of ``jobs`` that have no anchor of their own; ``left_out`` are the other jobs, and why.

    A job whose store cannot be opened is in every round's troubles. Raises ConfigError if the configuration does not
    say where to keep anchors, if no job's store can be opened, and if there is nothing to track.
    """

    def __init__(self, config: Config, jobs: Sequence[Job], side: SourceSide) -> None:
        self._config = config
        located = {job.name for job in jobs if can_keep(config, job, side.located.get(job.name))}
        if config.anchor_store is None and (homeless := [job.name for job in jobs if job.name not in located]):
            raise ConfigError(
                "[anchors] store is missing: track has nowhere to keep anchors.",
                hint=f"No journal in the state store can be kept of {', '.join(homeless)}: start each by its hook. "
                'Or add an anchor store, for example: store = "sqlite:////srv/anchors.db".',
            )
        self._unlisted: dict[str, tuple[float, Unlisted]] = {}
        self._deadline_s = config.search.deadline_s
        self._separators = dict.fromkeys((config.topics.separator, "."))
        self._side = side
        self._asked = Asked(side)
        stores, self._unusable = _open_each(jobs, side.open_store)
        jobs = [job for job in jobs if job.name in stores]
        self._bare = {job.name for job in jobs if stores[job.name].capabilities.needs_tracking}
        unkept = {job.name: why for job in jobs if job.name not in self._bare and (why := why_not(config, job))}
        self.left_out = {name: why for name, why in unkept.items() if name not in located}
        self._jobs = tuple(job for job in jobs if job.name not in self.left_out)
        self._anchored = {job.name for job in jobs if job.name not in unkept and config.anchor_store is not None}
        self._journals = {job.name: self._journal(job) for job in jobs if job.name in located}
        self._certain = {job.name for job in jobs if stores[job.name].capabilities.translated_by_mirror}
        self._addresses = {name: store.address for name, store in stores.items()}
        for store in stores.values():
            store.close()
        if not self._jobs:
            nothing = ConfigError(
                f"There is nothing to track: {'; '.join(f'{name}: {why}' for name, why in self.left_out.items())}.",
                hint="track is for jobs that store bare offsets.",
            )
            raise together([nothing, *(error for _, error in self._unusable)])
        self._one_name = {topic for job in jobs for topic in job.topics if config.topics.destination_of(topic) == topic}
        self._ends: set[str] = set()
        if self._anchored:
            self._begin_anchors([job for job in self._jobs if job.name in self._bare], config.anchor_store or "")
        self._anchors_fuse = self._new_fuse()

    def _begin_anchors(self, bare: Sequence[Job], address: str) -> None:
        """Raises ConfigError for jobs that cannot share the [anchors] store, and for a store that can keep none."""
        ends = tracked_ends(self._config, bare)
        refuse_shared([*bare, *(job for job in self._config.jobs if one_store(job.store, address))])
        anchors = self._side.open_anchors()
        refuse_unable(anchors)
        anchors.close()
        self._jobs += tuple(ends)
        self._ends = {job.name for job in ends}
        self._bare |= self._ends
        self._anchored |= self._ends
        self._addresses |= {job.name: self._side.open_store(job.store).address for job in ends}

    def _journal(self, job: Job) -> StayJournal:
        side = self._side
        return StayJournal(self._config, job, side.located[job.name], side.reader, side.now_ms, waits_s=side.waits_s)

    def round(self) -> Round:
        """Look at every job once. Waits up to the deadline for a cluster or store that is away, then leaves it out."""
        self._asked.gives_up_at = self._side.monotonic() + self._deadline_s
        self._anchors_fuse = self._new_fuse()
        troubles = {f'job "{job.name}"': error for job, error in self._unusable}
        reports = [JobReport(job.name, without_secrets(job.store), known=False) for job, _ in self._unusable]
        for job in self._jobs:
            if self._side.stopping():
                break
            try:
                reports.append(self._look_at(job, troubles))
            except Exception as error:  # any failure of one job must leave the others alone
                log.debug('job "%s" was not tracked', job.name, exc_info=error)
                troubles[f'job "{job.name}"'] = as_sentence(error)
                reports.append(JobReport(job.name, self._addresses[job.name], known=False))
        return Round(tuple(reports), troubles)

    def close(self) -> None:
        self._asked.close()

    # ------------------------------------------------------------ one job

    def _look_at(self, job: Job, troubles: dict[str, ReconcilerError]) -> JobReport:
        at, place = JobReport(job.name, self._addresses[job.name]), f'the store of job "{job.name}"'
        try:
            rows = self._asked.ask(place, lambda: self._asked.store(place, job).read(job.group, job.topics))
            if rows or job.new is not None:
                at = replace(at, unlisted=self._look_for_unlisted(job, place))
            if not rows and job.new is None and not is_end_of_batch(job.store):  # no batch is running
                at = replace(at, no_rows=no_rows(self._asked.store(place, job), job.group, *job.topics))
            journal = self._journals.get(job.name)
            ends = read_ends(job, _lowest_of_each(rows)) if journal is not None else {}
        except (Unreachable, OutcomeUnknown) as error:
            self._note(error, place, job, troubles)
            return replace(at, known=False)
        given: Mapping[Place, StoredOffset] = {}
        if job.name in self._anchored:
            anchored, given = self._keep_anchors(job, rows, at, troubles)
            if journal is None:
                return anchored
        return self._keep_journal(job, rows, ends, given, at, troubles)

    def _keep_anchors(
        self, job: Job, rows: Sequence[Row], at: JobReport, troubles: dict[str, ReconcilerError]
    ) -> tuple[JobReport, Mapping[Place, StoredOffset]]:
        """Save the anchors of a job's rows. The report, and what is known of the records before the numbers."""
        place = ANCHORS
        try:
            if job.name not in self._bare:
                rest = [row for row in rows if row.malformed is not None or row.stored.anchor is None]
                at, rows = replace(at, own=len(rows) - len(rest)), rest
                if not any(map(lacks_anchor, rows)):
                    unread = {row.key: str(row.malformed.refused) for row in rows if row.malformed is not None}
                    return replace(at, exact=len(rows) - len(unread), without=unread, followed=True), {}
            if place in troubles:
                return replace(at, known=False), {}
            kept = self._asked.ask(place, lambda: read_kept(self._asked.anchors(), job.group, job.topics))
        except (Unreachable, OutcomeUnknown) as error:
            self._note(error, place, job, troubles)
            return replace(at, known=False), {}
        faults = {row.key: row.malformed for each in kept.values() for row in each.rows if row.malformed}
        faults |= {row.key: row.malformed for row in rows if row.malformed}
        faults = {without_aside(key): fault for key, fault in faults.items()}
        sound = [row for row in rows if row.key not in faults]
        kept = {key: each for key, each in kept.items() if key not in faults}
        is_end = job.name in self._ends
        if is_end:
            kept = {key: AnchorRows(each.aside) for key, each in kept.items()}
        tracked = TrackedJob(
            job,
            _lowest_of_each(sound),
            kept,
            aside=is_end,
            one_name=self._one_name,
            certain=job.name in self._certain,
        )
        at = replace(at, without={key: str(fault.refused) for key, fault in faults.items()})
        followed = SOURCE not in troubles and self._follow(tracked, troubles)
        return tracked.report(replace(at, followed=followed), self._side.now_ms()), tracked.exact_anchors()

    def _keep_journal(
        self,
        job: Job,
        rows: Sequence[Row],
        ends: Mapping[TopicPartition, int],
        given: Mapping[Place, StoredOffset],
        at: JobReport,
        troubles: dict[str, ReconcilerError],
    ) -> JobReport:
        """Append what the job's journal lacks of its rows. ``given``: what is known of the records before some."""
        if STATE in troubles:
            return replace(at, known=False)
        journal, place, saved, is_away = self._journals[job.name], STATE, 0, SOURCE in troubles
        try:
            store = self._asked.store(f'the store of job "{job.name}"', job)
            journal.begin_round(_lowest_of_each(rows), ends, store, self._side.monotonic())
            place = SOURCE
            if not is_away and not self._side.stopping():
                journal.look(given)
            place = STATE
            saved = journal.append(self._side.monotonic(), self._side.now_ms())
        except (Unreachable, Changed, OutcomeUnknown) as error:
            self._note(error, place, job, troubles)
            is_away = True
            if place == STATE:
                return replace(at, known=False)
        return replace(journal.report(at, self._side.now_ms(), given), saved=saved, followed=not is_away)

    def _look_for_unlisted(self, job: Job, place: str) -> Unlisted:
        """The last answer for ``UNLISTED_S`` seconds: Kafka is asked for every partition of the cluster."""
        looked_at, found = self._unlisted.get(job.name, (-math.inf, Unlisted()))
        now = self._side.monotonic()
        if now - looked_at >= UNLISTED_S:
            found = find_unlisted(self._config, job, self._asked.store(place, job))
            self._unlisted[job.name] = now, found
        return found

    def _follow(self, tracked: TrackedJob, troubles: dict[str, ReconcilerError]) -> bool:
        """Find the missing anchors on the source, and save them. False if there is trouble."""
        place = SOURCE
        try:
            tracked.cluster = self._asked.ask(place, lambda: self._side.reader.describe(tracked.job.topics))
            tracked.of_mirror = put_by_mirror(tracked, self._side.reader, self._separators)
            tracked.looked.update(self._look_up(tracked))
            place = ANCHORS
            self._save(tracked)
            self._anchors_fuse.worked()
            return True
        except (Unreachable, Changed, OutcomeUnknown) as error:
            self._note(error, place, tracked.job, troubles)
            return False

    def _note(self, error: ReconcilerError, place: str, job: Job, troubles: dict[str, ReconcilerError]) -> None:
        """Enter a job's error. Later jobs skip the source or the anchor store only if that itself is away.

        A refusal, a missing topic, a partition without leader or a damaged manifest is the trouble of one job.
        """
        away = None
        if error.retryable and place == SOURCE:
            away = self._source_error()
        elif error.retryable and place == ANCHORS:
            self._anchors_fuse.failed(error, self._side.monotonic())
            away = self._anchors_fuse.blown(self._side.monotonic())
        elif error.retryable and place == STATE:
            away = error
        if away is not None:
            troubles[place] = away
        else:
            troubles[f'{place}, for job "{job.name}"' if place in (SOURCE, ANCHORS, STATE) else place] = error

    def _source_error(self) -> ReconcilerError | None:
        """Why the source does not answer at all; None if it does, or if nothing is waited for any more."""
        if self._side.stopping():
            return None
        try:
            self._asked.ask(SOURCE, lambda: self._side.reader.describe(()))
        except ReconcilerError as error:
            return error
        return None

    def _new_fuse(self) -> Fuse:
        """The anchor store's, for one round. A single job among several may be why the store fails."""
        return Fuse(min(STORE_FAILURES, len(self._jobs)), math.inf)

    def _look_up(self, tracked: TrackedJob) -> Mapping[TopicPartition, LookbackResult]:
        places = tracked.missing(self._side.now_ms())
        asked = {key: Inquiry(key, partial(look_back, place, tracked.job.identity)) for key, place in places.items()}
        if not asked or self._side.stopping():
            return {}
        settings = EngineSettings(max(0.0, self._asked.gives_up_at - self._side.monotonic()))
        found = run(self._side.reader, asked, clock=self._asked.clock, settings=settings).found
        return {key: answer.finding for key, answer in found.items()}

    def _save(self, tracked: TrackedJob) -> None:
        changes = tracked.changes()
        if not changes:
            return
        with of_anchors(), written.writing(f'anchors of job "{tracked.job.name}"'):
            try:
                result = self._put(tracked.job.group, changes)
            except ReconcilerError:
                self._asked.drop(ANCHORS)
                raise
        tracked.saved(result.written)

    def _put(self, group: str, changes: Sequence[Change]) -> WriteResult:
        if not changes:
            return WriteResult()
        result = self._asked.anchors().write(group, changes, reason="track", now_ms=self._side.now_ms())
        if result.conflicts and not result.written and len(changes) > 1:
            # All or none, and another program wrote one of them: the others can still be saved.
            good = [change for change in changes if change.key not in result.conflicts]
            saved = self._asked.anchors().write(group, good, reason="track", now_ms=self._side.now_ms())
            return WriteResult(saved.written, saved.conflicts + result.conflicts)
        return result


def _open_each(
    jobs: Sequence[Job], opener: StoreOpener
) -> tuple[dict[str, OffsetStore], list[tuple[Job, ReconcilerError]]]:
    """The jobs' stores by the jobs' names, and the jobs whose stores cannot be opened. Raises if that is so of all."""
    stores: dict[str, OffsetStore] = {}
    unusable: list[tuple[Job, ReconcilerError]] = []
    for job in jobs:
        try:
            stores[job.name] = opener(job.store)
        except ReconcilerError as error:
            unusable.append((job, error))
    if jobs and not stores:
        raise together(error for _, error in unusable)
    return stores, unusable


def _lowest_of_each(rows: Iterable[Row]) -> dict[TopicPartition, Row]:
    """The rows by partition: of two positions, the lower one. One that cannot be read comes before any other."""
    found: dict[TopicPartition, Row] = {}
    for row in rows:
        other = found.get(row.key)
        if other is None or row.malformed or (not other.malformed and row.stored.offset < other.stored.offset):
            found[row.key] = row
    return found
