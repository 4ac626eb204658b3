"""Follow jobs' stored numbers from outside of the jobs, each in its journal, while the cluster where they live answers.

Theory of operation. A round reads a job's stored numbers, then, on that cluster, the record before each number that its
journal lacks; and appends both (``journals``, ``beside``).

No step has to be undisturbed. An entry states a fact about the cluster's log alone: "the last record before offset X of
this partition is this one". It stays true whatever the job does meanwhile. So if a place moves on between the read and
the append, the only cost is lag. An append is exclusive: of two trackers, or a tracker and a driver, one loses.

A job whose store, cluster or journal does not answer costs the others nothing: it is in the round's troubles.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, OutcomeUnknown, ReconcilerError, Unreachable, as_sentence, together
from reconciler.failover.outside import StoreOpener
from reconciler.failover.unlisted import Unlisted, find_unlisted, no_rows
from reconciler.jobs.tracking.beside import WAITS_S
from reconciler.jobs.tracking.journals import JobReport, Located, StayJournal, read_ends, why_not
from reconciler.ports import LogReader, OffsetStore, Row, TopicPartition
from reconciler.retry import insist

log = logging.getLogger(__name__)

UNLISTED_S = 60.0
SOURCE, STATE = "the source cluster", "the state store"


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over all jobs. ``troubles``: errors, by what could not be reached or which job could not be tracked."""

    jobs: tuple[JobReport, ...]
    troubles: Mapping[str, ReconcilerError]


class Tracker:
    """Tracks ``jobs``, which live on one cluster; ``left_out``: the jobs that cannot be tracked now, and why.

    A job whose store cannot be opened is in every round's troubles. Raises ConfigError if no job's store can be opened.
    """

    def __init__(self, config: Config, jobs: Sequence[Job], side: SourceSide) -> None:
        self._config = config
        self._side = side
        self._stores = OpenStores(side)
        self._unlisted: dict[str, tuple[float, Unlisted]] = {}
        self._deadline_s = config.search.deadline_s
        self.left_out = {job.name: why for job in jobs if (why := why_not(config, job, side.located[job.name]))}
        stores, self._unusable = _open_each([job for job in jobs if job.name not in self.left_out], side.open_store)
        self._jobs = tuple(job for job in jobs if job.name in stores)
        self._journals = {job.name: self._journal(job) for job in self._jobs}
        self._addresses = {name: store.address for name, store in stores.items()}
        for store in stores.values():
            store.close()

    def _journal(self, job: Job) -> StayJournal:
        side = self._side
        return StayJournal(self._config, job, side.located[job.name], side.reader, waits_s=side.waits_s)

    def round(self) -> Round:
        """Look at every job once. Waits up to the deadline for an unreachable cluster or store, then leaves it out."""
        self._stores.gives_up_at = self._side.monotonic() + self._deadline_s
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
        self._stores.close()

    # ------------------------------------------------------------ one job

    def _look_at(self, job: Job, troubles: dict[str, ReconcilerError]) -> JobReport:
        at, place = JobReport(job.name, self._addresses[job.name]), f'the store of job "{job.name}"'
        try:
            read = self._stores.ask(place, lambda: self._stores.store(place, job).read(job.group, job.topics))
            if read or job.new is not None:
                at = replace(at, unlisted=self._look_for_unlisted(job, place))
            else:
                at = replace(at, no_rows=no_rows(self._stores.store(place, job), job.group, *job.topics))
            rows = _lowest_of_each(read)
            ends = read_ends(job, rows)
        except (Unreachable, OutcomeUnknown) as error:
            self._note(error, place, job, troubles)
            return replace(at, known=False)
        return self._keep_journal(job, rows, ends, at, troubles)

    def _keep_journal(
        self,
        job: Job,
        rows: Mapping[TopicPartition, Row],
        ends: Mapping[TopicPartition, int],
        at: JobReport,
        troubles: dict[str, ReconcilerError],
    ) -> JobReport:
        """Append what the job's journal lacks of its rows."""
        if STATE in troubles:
            return replace(at, known=False)
        journal, place, saved, is_away = self._journals[job.name], STATE, 0, SOURCE in troubles
        try:
            store = self._stores.store(f'the store of job "{job.name}"', job)
            journal.begin_round(rows, ends, store, self._side.monotonic())
            place = SOURCE
            if not is_away and not self._side.stopping():
                self._stores.repeat(journal.look)
            place = STATE
            saved = journal.append(self._side.monotonic(), self._side.now_ms())
        except (Unreachable, Changed, OutcomeUnknown) as error:
            self._note(error, place, job, troubles)
            is_away = True
            if place == STATE:
                return replace(at, known=False)
        return replace(journal.report(at, self._side.now_ms()), saved=saved, followed=not is_away)

    def _look_for_unlisted(self, job: Job, place: str) -> Unlisted:
        """The last answer for ``UNLISTED_S`` seconds: Kafka is asked for every partition of the cluster."""
        looked_at, found = self._unlisted.get(job.name, (-math.inf, Unlisted()))
        now = self._side.monotonic()
        if now - looked_at >= UNLISTED_S:
            found = find_unlisted(self._config, job, self._stores.store(place, job))
            self._unlisted[job.name] = now, found
        return found

    def _note(self, error: ReconcilerError, place: str, job: Job, troubles: dict[str, ReconcilerError]) -> None:
        """Enter a job's error. Later jobs skip the cluster or the state store only if that itself is unreachable.

        A refusal, a missing topic, a partition without leader or a damaged manifest is the trouble of one job.
        """
        away = None
        if error.retryable and place == SOURCE:
            away = self._source_error()
        elif error.retryable and place == STATE and not isinstance(error, OutcomeUnknown):
            away = error
        if away is not None:
            troubles[place] = away
        else:
            troubles[f'{place}, for job "{job.name}"' if place in (SOURCE, STATE) else place] = error

    def _source_error(self) -> ReconcilerError | None:
        """Why the source does not answer at all; None if it does, or if there are no more waits."""
        if self._side.stopping():
            return None
        try:
            self._stores.ask(SOURCE, lambda: self._side.reader.describe(()))
        except ReconcilerError as error:
            return error
        return None


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


T = TypeVar("T")
END_OF_WAITING_S = 1e9


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The world outside of tracking: the log of the cluster where the jobs live, their stores there, the clocks.

    ``located``: where each job lives, and its journal, by its name. ``monotonic`` gives seconds, ``now_ms`` epoch ms.
    Once ``stopping`` returns True there are no more waits. ``waits_s``: as ``beside.WAITS_S``.
    """

    reader: LogReader
    open_store: StoreOpener
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    located: Mapping[str, Located]
    stopping: Callable[[], bool] = lambda: False
    waits_s: float = WAITS_S


class OpenStores:
    """The open stores of one tracker. ``gives_up_at``: the monotonic time (seconds) until which calls are repeated."""

    def __init__(self, side: SourceSide) -> None:
        self._side = side
        self._open: dict[str, OffsetStore] = {}
        self.gives_up_at = math.inf

    def store(self, place: str, job: Job) -> OffsetStore:
        """The job's store, which ``place`` names."""
        if place not in self._open:
            self._open[place] = self._side.open_store(job.store)
        return self._open[place]

    def drop(self, place: str) -> None:
        """Close a store: the next call opens a new connection."""
        store = self._open.pop(place, None)
        if store is not None:
            store.close()

    def close(self) -> None:
        for name in list(self._open):
            self.drop(name)

    def ask(self, place: str, call: Callable[[], T]) -> T:
        """Repeat a call that only reads, over a new connection each time, until the deadline."""

        def once() -> T:
            try:
                return call()
            except (Unreachable, OutcomeUnknown):
                self.drop(place)
                raise

        return insist(once, left_s=lambda: self.gives_up_at - self.clock())

    def repeat(self, call: Callable[[], T]) -> T:
        """As ``ask``, of the cluster, which has its connections itself."""
        return insist(call, left_s=lambda: self.gives_up_at - self.clock())

    def clock(self) -> float:
        """The time for deadlines: beyond all of them once the caller wants to stop."""
        return self._side.monotonic() + (END_OF_WAITING_S if self._side.stopping() else 0)
