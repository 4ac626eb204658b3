"""Keep anchors for jobs that store bare offsets, from outside of the jobs, while the source is alive.

Theory of operation. A round reads a job's stored offsets, then their kept anchors, then, on the source, the last record
before each offset that has no anchor yet; and saves that record as the anchor made for the offset.

No step has to be undisturbed. A saved anchor states a fact about the source's log alone: "the last record before offset
X of this partition is this one". It stays true whatever the job does meanwhile, and is used only together with the
stored offset X, or as older than a later one (``stores.paired.rules``). So if a store moves on between the read and the
save, the only cost is lag. Three rules all the same:

- A save is a compare-and-set on the anchor that was read. Of two trackers, or a tracker and an ``apply``, one loses.
- Where the kept anchor is another cluster's, the job was handed over, and its number may be that cluster's (one topic
  name on both sides): it is not looked up here. Offsets are read before anchors, so an ``apply`` in between shows.
- A row that an interrupted write left (``stores.paired``) is removed once the job has gone on.

``kafka-group:`` jobs: their commits at the source are lost with it, so the row itself is kept. An anchor in a commit's
metadata is kept as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.engine import EngineSettings, Inquiry, run
from reconciler.failover.no_rows import no_rows
from reconciler.failover.outside import StoreOpener
from reconciler.failover.selection import by_key
from reconciler.ports import Change, ClusterInfo, LogReader, OffsetStore, Row, TopicPartition
from reconciler.retry import insist
from reconciler.stores.paired import (
    NOTHING,
    Kept,
    aside_of,
    of_anchors,
    pair,
    read_kept,
    refuse_unable,
    same,
    version_of,
)
from reconciler.tracking.lookback import Looked, Place, look_back

T = TypeVar("T")

END_OF_WAITING_S = 1e9
DESTINATION = "[destination"
SOURCE, ANCHORS = "the source cluster", "the anchor store"


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The world outside of tracking: the source's log, the jobs' stores there, the anchor store, the clocks.

    ``monotonic`` gives seconds, ``now_ms`` epoch ms. Once ``stopping`` returns True nothing is waited for any more.
    """

    reader: LogReader
    open_store: StoreOpener
    open_anchors: Callable[[], OffsetStore]
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    stopping: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class JobReport:
    """The anchors of a job's stored offsets after a round, by partition.

    ``lagging`` have an anchor that was made for an older offset, ``without`` have none, each with the reason if it is
    known; ``elsewhere`` were handed over to another cluster. ``age_ms``: the age of the oldest lagging anchor, by the
    time of its record. ``known`` False: the stores could not be read. ``no_rows``: that in words, where the store has
    no row of any of the job's topics and the configuration does not call the job new.
    """

    job: str
    store: str
    exact: int = 0
    lagging: Mapping[TopicPartition, str] = field(default_factory=dict)
    without: Mapping[TopicPartition, str] = field(default_factory=dict)
    elsewhere: tuple[TopicPartition, ...] = ()
    saved: int = 0
    age_ms: int | None = None
    known: bool = True
    no_rows: str = ""

    @property
    def partitions(self) -> int:
        return self.exact + len(self.lagging) + len(self.without) + len(self.elsewhere)


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over all jobs. ``troubles``: by name, the error of everything that could not be reached."""

    jobs: tuple[JobReport, ...]
    troubles: Mapping[str, ReconcilerError]


class Tracker:
    """Tracks those of ``jobs`` that keep no anchors themselves; ``left_out`` are the others.

    Raises ConfigError where the configuration does not say where the source is, or where to keep anchors, and where
    there is nothing to track.
    """

    def __init__(self, config: Config, jobs: Sequence[Job], side: SourceSide) -> None:
        if config.anchor_store is None:
            raise ConfigError(
                "[anchors] store is missing: track has nowhere to keep anchors.",
                hint='Add it, for example: store = "sqlite:////srv/anchors.db".',
            )
        self._deadline_s = config.search.deadline_s
        self._side = side
        self._open: dict[str, OffsetStore] = {}
        stores = {job.name: side.open_store(job.store) for job in jobs}
        self._jobs = tuple(job for job in jobs if stores[job.name].capabilities.needs_tracking)
        self.left_out = tuple(job.name for job in jobs if job not in self._jobs)
        self._addresses = {name: store.address for name, store in stores.items()}
        for store in stores.values():
            store.close()
        if not self._jobs:
            raise ConfigError(
                "There is nothing to track: every job keeps its anchors itself.",
                hint="track is for jobs that store bare offsets.",
            )
        _refuse_shared([*self._jobs, *(job for job in config.jobs if job.store == config.anchor_store)])
        anchors = side.open_anchors()
        refuse_unable(anchors)
        anchors.close()
        self._created = False
        self._gives_up_at = math.inf

    def round(self) -> Round:
        """Look at every job once. Waits up to the deadline for a cluster or store that is away, then leaves it out."""
        self._gives_up_at = self._side.monotonic() + self._deadline_s
        troubles: dict[str, ReconcilerError] = {}
        reports = []
        for job in self._jobs:
            if self._side.stopping():
                break
            reports.append(self._look_at(job, troubles))
        return Round(tuple(reports), troubles)

    def close(self) -> None:
        for name in list(self._open):
            self._drop(name)

    # ------------------------------------------------------------ one job

    def _look_at(self, job: Job, troubles: dict[str, ReconcilerError]) -> JobReport:
        at, place = JobReport(job.name, self._addresses[job.name]), f'the store of job "{job.name}"'
        try:
            rows = self._ask(place, lambda: self._store(place, job).read(job.group, job.topics))
            if not rows and job.new is None:
                at = replace(at, no_rows=no_rows(self._store(place, job), job.group, *job.topics))
            place = ANCHORS
            if place in troubles:
                return replace(at, known=False)
            kept = self._ask(place, lambda: read_kept(self._anchors(), job.group, job.topics))
        except (Unreachable, OutcomeUnknown) as error:
            troubles[place] = error
            return replace(at, known=False)
        tracked = _Tracked(job, by_key(_first_of_each(rows)), kept)
        if SOURCE not in troubles:
            self._follow(tracked, troubles)
        return tracked.report(at, self._side.now_ms())

    def _follow(self, tracked: _Tracked, troubles: dict[str, ReconcilerError]) -> None:
        """Find the missing anchors on the source, and save them."""
        place = SOURCE
        try:
            tracked.cluster = self._ask(place, lambda: self._side.reader.describe(tracked.job.topics))
            tracked.looked.update(self._look_up(tracked))
            place = ANCHORS
            self._save(tracked)
        except (Unreachable, Changed, OutcomeUnknown) as error:
            # A topic that is gone, or that this user may not see, concerns one job: the others are still looked at.
            is_away = isinstance(error, Unreachable) and error.retryable
            troubles[place if is_away else f'{place}, for job "{tracked.job.name}"'] = error

    def _look_up(self, tracked: _Tracked) -> Mapping[TopicPartition, Looked]:
        places = tracked.missing(self._side.now_ms())

        def inquiry(key: TopicPartition, place: Place) -> Inquiry[Looked]:
            return Inquiry(key, lambda: look_back(place, tracked.job.identity))

        asked = {key: inquiry(key, place) for key, place in places.items()}
        if not asked or self._side.stopping():
            return {}
        settings = EngineSettings(max(0.0, self._gives_up_at - self._side.monotonic()))
        with _of_the_source():
            found = run(self._side.reader, asked, clock=self._clock, settings=settings).found
        return {key: answer.finding for key, answer in found.items()}

    def _save(self, tracked: _Tracked) -> None:
        changes = tracked.changes()
        if not changes:
            return
        with of_anchors():
            try:
                result = self._anchors().write(tracked.job.group, changes, reason="track", now_ms=self._side.now_ms())
                if result.conflicts and not result.written and len(changes) > 1:
                    # All or none, and another program wrote one of them: the others can still be saved.
                    good = [change for change in changes if change.key not in result.conflicts]
                    result = self._anchors().write(tracked.job.group, good, reason="track", now_ms=self._side.now_ms())
            except ReconcilerError:
                self._drop(ANCHORS)
                raise
        tracked.saved(result.written)

    # ------------------------------------------------------------ stores, and waiting for them

    def _store(self, place: str, job: Job) -> OffsetStore:
        return self._opened(place, lambda: self._side.open_store(job.store))

    def _anchors(self) -> OffsetStore:
        store = self._opened(ANCHORS, self._side.open_anchors)
        if not self._created:
            with of_anchors():
                store.create()
            self._created = True
        return store

    def _opened(self, place: str, opener: Callable[[], OffsetStore]) -> OffsetStore:
        if place not in self._open:
            self._open[place] = opener()
        return self._open[place]

    def _drop(self, place: str) -> None:
        store = self._open.pop(place, None)
        if store is not None:
            store.close()

    def _ask(self, place: str, call: Callable[[], T]) -> T:
        """Repeat a call that only reads, over a new connection each time, until the deadline."""

        def once() -> T:
            try:
                return call()
            except (Unreachable, OutcomeUnknown):
                self._drop(place)
                raise

        with nullcontext() if place == ANCHORS else _of_the_source():
            return insist(once, give_up=lambda: self._clock() >= self._gives_up_at)

    def _clock(self) -> float:
        """The time for deadlines: beyond all of them once the caller wants to stop."""
        return self._side.monotonic() + (END_OF_WAITING_S if self._side.stopping() else 0)


@contextmanager
def _of_the_source() -> Iterator[None]:
    """Let hints about a cluster's settings name the source's section."""
    try:
        yield
    except ReconcilerError as error:
        if error.hint is None or DESTINATION not in error.hint:
            raise
        of_source = type(error)(error.message, hint=error.hint.replace(DESTINATION, "[source"))
        of_source.retryable = error.retryable
        raise of_source from error


def _refuse_shared(jobs: Iterable[Job]) -> None:
    """Raise ConfigError for two jobs of one group and topic: they would share a row of the anchor store."""
    owner: dict[tuple[str, str], str] = {}
    for job in jobs:
        for topic in job.topics:
            other = owner.setdefault((job.group, topic), job.name)
            if other != job.name:
                raise ConfigError(
                    f'Jobs "{other}" and "{job.name}" have one group and the topic "{topic}": '
                    "their anchors cannot be told apart.",
                    hint="Give one of them a group of its own.",
                )


def _first_of_each(rows: Iterable[Row]) -> list[Row]:
    """The rows, ordered so that of two positions of a partition the lower offset comes last."""
    return sorted(rows, key=lambda row: -row.stored.offset)


# ---------------------------------------------------------------- one job in a round


@dataclass(slots=True)
class _Tracked:
    job: Job
    rows: Mapping[TopicPartition, Row]
    kept: dict[TopicPartition, Kept]
    cluster: ClusterInfo | None = None
    looked: dict[TopicPartition, Looked] = field(default_factory=dict)
    count: int = 0

    def missing(self, now_ms: int) -> dict[TopicPartition, Place]:
        """The stored offsets that nothing is kept for, and that the source has a partition for."""
        cluster, found = self.cluster, {}
        assert cluster is not None
        for key, row in self.rows.items():
            info = cluster.topics.get(key.topic)
            if row.stored.is_sentinel or self._is_elsewhere(key):
                continue
            if info is None or key.partition not in info.partitions:
                self.looked[key] = Looked(None, "the source has no such partition")
                continue
            own = row.stored.anchor
            if own is not None and own.numbered_by(cluster.cluster_id, info.topic_id):
                self.looked[key] = Looked(row.stored)
            elif not self._is_kept(key, cluster.cluster_id, info.topic_id):
                at_ms = row.stored.written_at_ms
                found[key] = Place(row.stored.offset, cluster.cluster_id, info.topic_id, info.compacted, at_ms, now_ms)
        return found

    def changes(self) -> list[Change]:
        """The anchors to save, and the removal of rows that an interrupted write left for offsets of the past."""
        changes = []
        for key, looked in self.looked.items():
            main, aside = self._kept(key).main, self._kept(key).aside
            new = looked.kept
            if new is None or (main is not None and same(main.stored, new)):
                continue
            changes.append(Change(key, version_of(main), new))
            if aside is not None:
                changes.append(Change(aside_of(key), aside.version, None))
        return changes

    def saved(self, keys: Sequence[TopicPartition]) -> None:
        for key in keys:
            new = self.looked[key].kept if key in self.looked else None
            if new is not None:
                self.kept[key] = Kept(Row(key, new, ""))
                self.count += 1

    def report(self, at: JobReport, now_ms: int) -> JobReport:
        exact, oldest = 0, None
        lagging: dict[TopicPartition, str] = {}
        without: dict[TopicPartition, str] = {}
        for key, row in sorted(self.rows.items()):
            if self._is_elsewhere(key):
                continue
            found = pair(row.stored.offset, self._kept(key))
            why = self.looked[key].why if key in self.looked else ""
            if found.is_exact or row.stored.is_sentinel:
                exact += 1
            elif found.anchor is None:
                without[key] = why or found.why or "not looked up yet"
            else:
                lagging[key] = why
                if found.written_at_ms:
                    oldest = min(oldest or found.written_at_ms, found.written_at_ms)
        elsewhere = tuple(key for key in sorted(self.rows) if self._is_elsewhere(key))
        age_ms = None if oldest is None else max(0, now_ms - oldest)
        return replace(
            at, exact=exact, lagging=lagging, without=without, elsewhere=elsewhere, saved=self.count, age_ms=age_ms
        )

    def _kept(self, key: TopicPartition) -> Kept:
        return self.kept.get(key, NOTHING)

    def _is_kept(self, key: TopicPartition, cluster_id: str, topic_id: str | None) -> bool:
        main, row = self._kept(key).main, self.rows[key]
        if main is None or main.stored.anchor is None or main.stored.offset != row.stored.offset:
            return False
        return main.stored.anchor.numbered_by(cluster_id, topic_id)

    def _is_elsewhere(self, key: TopicPartition) -> bool:
        """True if the row's number may be another cluster's: it was handed over, or is being handed over now."""
        if self.cluster is None:
            return False
        kept, here = self._kept(key), self.cluster.cluster_id
        if kept.aside is not None and kept.aside.stored.offset == self.rows[key].stored.offset:
            return _cluster_of(kept.aside) not in (None, here)
        return _cluster_of(kept.main) not in (None, here)


def _cluster_of(row: Row | None) -> str | None:
    return row.stored.anchor.cluster_id if row is not None and row.stored.anchor is not None else None
