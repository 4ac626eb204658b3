"""Check many jobs at once, so that a failure of one of them costs the others nothing.

Theory of operation. Jobs are checked together, since that takes far fewer requests than one after the other. Their
stores are read first, each on its own (``failover.apart``): a store that fails takes out only its own jobs. If a check
of several jobs fails, the cluster is asked whether it answers at all. If it does not, all these jobs have failed, and
the cluster is not asked again for a while (``Fuse``). If it answers, the jobs are checked one by one. A job that fails
is then checked apart from the others, and without waiting, until it succeeds.

MirrorMaker's heartbeats and offset syncs are read beside the checks, and no check depends on them. If they cannot be
read, the log says so once, and the heartbeats' age keeps growing from the last reading.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.core.errors import ReconcilerError, Unreachable, as_sentence
from reconciler.failover.apart import Fuse, StoreFuses, StoresRead, read_stores
from reconciler.failover.check import Checked
from reconciler.failover.checking.questions import own_topics
from reconciler.failover.outside import Outside
from reconciler.jobs.watch.figures import CheckFigures, figures_of
from reconciler.jobs.watch.readings import LeftCluster, read_beside, read_ends
from reconciler.kafka.mirror.records import Heartbeats
from reconciler.kafka.mirror.skipped import Gaps, MirrorGaps
from reconciler.places.registry import traits
from reconciler.ports import LogReader

log = logging.getLogger("reconciler.jobs.watch")

LONGEST_REST_S = 15.0
END_OF_WAITING_S = 1e9
CLUSTER = "The watched cluster"
STORE_REQUESTS = 16
"""Requests to the watched cluster for one job's rows in a store there: connections, topics, coordinator, offsets."""


Check = Callable[[Config, Sequence[Job], Outside], Checked]
"""``failover.check.check``."""


@dataclass(frozen=True, slots=True)
class JobCheck:
    """The result of one job's check; ``place`` names what failed, as the subject of a sentence.

    ``was_tried`` is False if it was left out of this round, since other jobs' failures had taken the time.
    """

    result: CheckFigures | Exception
    seconds: float
    place: str = ""
    was_tried: bool = True


class Checkers:
    """The checkers of jobs that go different ways, by the job's name."""

    def __init__(self, of: Mapping[str, JobChecker]) -> None:
        self._of = of

    @property
    def heartbeats_ms(self) -> Mapping[tuple[str, str], int]:
        """When each mirror's newest heartbeat was sent, epoch ms, by the clusters from and to which it copies."""
        return {mirror: sent for each in self._of.values() for mirror, sent in each.heartbeats_ms.items()}

    @property
    def gaps(self) -> Mapping[tuple[str, str, str], Gaps]:
        """The records that each mirror skipped within a day, by its two clusters and the source's topic."""
        return {key: gaps for each in self._of.values() for key, gaps in each.gaps.items()}

    def check(self, jobs: Sequence[Job]) -> dict[str, JobCheck]:
        """The result of each job's check, by the job's name."""
        groups: dict[JobChecker, list[Job]] = {}
        for job in jobs:
            groups.setdefault(self._of[job.name], []).append(job)
        return {name: found for checker, group in groups.items() for name, found in checker.check(group).items()}


class JobChecker:
    """Checks the jobs of one configuration.

    An unreachable cluster is waited for as long as the search's deadline says, and half a round at most, so that an
    outage shows in the next round. ``once``: there is no next round, so each job is tried, however long the failures of
    others take. ``take`` counts requests against the rate limit. Once ``stopping`` returns True, nothing is waited for
    any more.
    """

    def __init__(
        self,
        config: Config,
        outside: Outside,
        check: Check,
        *,
        every_s: float,
        once: bool = False,
        take: Callable[[int], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._outside = replace(outside, monotonic=self._patience)
        self._clock = outside.monotonic
        self._check = check
        self._take = take
        self._stopping = stopping
        self._patience_s = min(config.search.deadline_s, every_s / 2)
        self._most_lost_s = math.inf if once else self._patience_s
        self._cluster = Fuse(1, min(every_s / 2, LONGEST_REST_S))
        self._stores = StoreFuses(config.jobs, every_s / 2)
        self._mirror = MirrorWatch(config, outside.monotonic, outside.now_ms, every_s)
        self._left = LeftCluster(outside.open_left, outside.monotonic, every_s)
        self._suspects: set[str] = set()
        self._tries = 0
        self._last_try: dict[str, int] = {}
        self._skipped_s = 0.0

    @property
    def heartbeats_ms(self) -> Mapping[tuple[str, str], int]:
        """As that of ``Checkers``, for the one mirror that is followed here; empty without heartbeats."""
        sent = self._mirror.heartbeat_ms
        return {} if sent is None else {(self._config.here, self._config.there): sent}

    @property
    def gaps(self) -> Mapping[tuple[str, str, str], Gaps]:
        """As that of ``Checkers``."""
        here, there = self._config.here, self._config.there
        return {(here, there, topic): gaps for topic, gaps in self._mirror.gaps.items()}

    def close(self) -> None:
        self._left.close()

    def check(self, jobs: Sequence[Job]) -> dict[str, JobCheck]:
        """The result of each job's check, by the job's name."""
        results: dict[str, JobCheck] = {}
        began = self._clock()
        error = self._cluster.blown(began)
        if error is None and not self._cluster.is_new:
            error = self._ask_cluster()
        if error is not None:
            return {job.name: JobCheck(error, self._clock() - began, CLUSTER) for job in jobs}
        alone = [job for job in jobs if traits(job.store).corrected_in_copy]
        together = [job for job in jobs if job not in alone]
        read = self._read_stores(together, results)
        ready = [job for job in together if job.name not in results]
        for group in (
            [job for job in ready if job.name not in self._suspects],
            [job for job in ready if job.name in self._suspects],
        ):
            self._check_group(group, read, results)
        for job in alone:  # a running query moves on, so its offsets are read just before they are checked
            own = self._read_stores([job], results)
            if job.name not in results:
                self._check_group([job], own, results)
        self._follow_mirror(results)
        for name, check in results.items():
            (self._suspects.discard if isinstance(check.result, CheckFigures) else self._suspects.add)(name)
        return results

    # ------------------------------------------------------------ checks

    def _check_group(self, jobs: Sequence[Job], read: StoresRead, results: dict[str, JobCheck]) -> None:
        """Check the jobs together; if that fails, each on its own, the one whose last try is the longest ago first.

        Once failures have taken as long as one wait, the others are left out of this round. So each has its turn, in
        whatever batches jobs are checked. Without a next round none is left out.
        """
        if not jobs:
            return
        patience_s = 0.0 if jobs[0].name in self._suspects else self._patience_s
        if self._try(jobs, read, patience_s, results):
            return
        lost_s = 0.0
        failed: list[str] = []
        order = sorted(jobs, key=lambda each: self._last_try.get(each.name, 0))
        for number, job in enumerate(order):
            if lost_s > self._most_lost_s or self._stopping():
                results[job.name] = JobCheck(_not_tried(job, failed, lost_s), 0.0, _job(job), was_tried=False)
                continue
            self._tries += 1
            self._last_try[job.name] = self._tries
            self._try([job], read, 0.0, results)
            check = results[job.name]
            if check.place == CLUSTER:
                results.update({each.name: check for each in order[number:]})
                return
            if not isinstance(check.result, CheckFigures):
                lost_s += check.seconds
                failed.append(job.name)

    def _try(self, jobs: Sequence[Job], read: StoresRead, patience_s: float, results: dict[str, JobCheck]) -> bool:
        """Check jobs together; if the cluster seems unreachable, ask it. False if the jobs have no results."""
        began = self._clock()
        try:
            results.update(self._check_now(jobs, read, patience_s))
            self._cluster.worked()
        except Exception as error:  # noqa: BLE001 - any failure of one job must leave the others alone
            away = self._ask_cluster() if isinstance(error, Unreachable) else None
            if away is None and len(jobs) > 1:
                return False
            place = _job(jobs[0]) if away is None else CLUSTER
            results.update({job.name: JobCheck(away or error, self._clock() - began, place) for job in jobs})
        return True

    def _check_now(self, jobs: Sequence[Job], read: StoresRead, patience_s: float) -> dict[str, JobCheck]:
        began = self._clock()
        config = replace(self._config, search=replace(self._config.search, deadline_s=patience_s))
        outside = replace(self._outside, open_store=read.opener(self._outside.open_store))
        checked = self._check(config, jobs, outside)
        reader = self._outside.reader
        self._mirror.refresh(reader)  # after the check: an unreachable cluster has cost one wait already
        plans = {plan.name: plan for plan in checked.plan.jobs}
        now_ms = self._outside.now_ms()
        here = self._left.ends({topic for job in jobs if not job.moved for topic in job.topics})
        there = read_ends(reader, {at.destination.topic for job in checked.jobs for at in job.places if at.own})
        results = {}
        for each in checked.jobs:
            plan, logs = checked.decided(plans[each.job.name]), there if each.job.moved else here
            disorder_ms = config.search_of(each.job).max_disorder_ms
            readings = read_beside(plan, each, reader, logs, now_ms=now_ms, max_disorder_ms=disorder_ms)
            results[each.job.name] = figures_of(plan, each, config.policy.start, readings, now_ms=now_ms)
        took = self._clock() - began
        return {name: JobCheck(figures, took) for name, figures in results.items()}

    def _follow_mirror(self, results: Mapping[str, JobCheck]) -> None:
        """Read the mirror's topics, even if no job had a complete check: heartbeats do not depend on jobs.

        It comes last. If no check was complete, the cluster is asked first, so that an outage costs a single wait.
        """
        if not self._mirror.is_due or self._stopping() or any(check.place == CLUSTER for check in results.values()):
            return
        is_there = any(isinstance(check.result, CheckFigures) for check in results.values())
        try:
            if is_there or self._ask_cluster() is None:
                self._mirror.refresh(self._outside.reader)
        except Exception as error:
            sentence = as_sentence(error, "the traceback in the log")
            log.error("The mirror's topics were not read in this round. %s", sentence, exc_info=True)

    def _ask_cluster(self) -> ReconcilerError | None:
        """Why the cluster cannot be used at all, None if it can."""
        try:
            self._outside.reader.describe(())
        except ReconcilerError as error:
            self._cluster.failed(error, self._clock())
            return error
        self._cluster.worked()
        return None

    def _patience(self) -> float:
        """The clock that deadlines are measured by. While stopping, each look at it is past every deadline."""
        if self._stopping():
            self._skipped_s += END_OF_WAITING_S
        return self._clock() + self._skipped_s

    # ------------------------------------------------------------ stores

    def _read_stores(self, jobs: Sequence[Job], results: dict[str, JobCheck]) -> StoresRead:
        """The rows of all jobs. Jobs whose store fails, and jobs that are left out, get their result at once."""
        read = read_stores(
            self._config,
            jobs,
            self._outside.open_store,
            self._clock,
            self._stores,
            before=lambda job: self._take(STORE_REQUESTS * traits(job.store).holds_commits),
            stopping=self._stopping,
        )
        by_name = {job.name: job for job in jobs}
        for name, failure in read.failed.items():
            results[name] = JobCheck(failure.error, failure.seconds, self._store_of(by_name[name], failure.error))
        for job in (by_name[name] for name in read.left):
            results[job.name] = JobCheck(_not_tried(job, [], 0.0), 0.0, _job(job), was_tried=False)
        return read

    def _store_of(self, job: Job, error: Exception) -> str:
        """The failures. An outage of a store, or of a server, is reported once for all jobs that share it."""
        sharing = [each.name for each in self._config.jobs if self._stores.share(each.store, job.store, error)]
        if isinstance(error, ReconcilerError) and error.retryable and len(sharing) > 1:
            return f'The store of job "{sharing[0]}" and {len(sharing) - 1:,} more'
        return f'The store of job "{job.name}"'


def _job(job: Job) -> str:
    return f'Job "{job.name}"'


def _not_tried(job: Job, failed: Sequence[str], lost_s: float) -> Unreachable:
    """Why the job was left out, after the failed checks of others took ``lost_s`` seconds."""
    if not failed:
        return Unreachable(f"{_job(job)} was not checked, because watch is stopping.")
    others = f" and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    return Unreachable(
        f'{_job(job)} was not checked in this round: the checks of job "{failed[0]}"{others} failed, and took '
        f"{lost_s:.0f} s.",
        hint=f'Resolve what is reported of job "{failed[0]}".',
    )


class MirrorWatch:
    """Follows the mirror's heartbeats and offset syncs; read again after half of ``every_s`` at the earliest.

    ``clock`` gives monotonic seconds, ``now_ms`` epoch ms.
    """

    def __init__(self, config: Config, clock: Callable[[], float], now_ms: Callable[[], int], every_s: float) -> None:
        names, own = config.topics, own_topics(config)
        self._copies = {topic: names.destination_of(topic) for job in config.jobs for topic in job.topics}
        self._heartbeats = Heartbeats(own.heartbeats)
        self._syncs = MirrorGaps(own.offset_syncs, self._copies.keys())
        self._is_one_way = own.is_one_way
        self._clock = clock
        self._now_ms = now_ms
        self._every_s = every_s
        self._due = clock()
        self._failing: set[str] = set()
        self.gaps: Mapping[str, Gaps] = {}
        """The records that the mirror skipped within a day, by the source's topic."""

    @property
    def heartbeat_ms(self) -> int | None:
        """When the newest heartbeat that arrived was sent, epoch ms; None if there is none."""
        return self._heartbeats.newest_ms

    @property
    def is_due(self) -> bool:
        """True if it is time to read again."""
        return self._clock() >= self._due

    def refresh(self, reader: LogReader) -> None:
        """Read what is new since the last time, if it is time. The first failure in a row of each is logged."""
        if not self.is_due:
            return
        self._due = self._clock() + self._every_s / 2
        beats = "MirrorMaker's heartbeats cannot be read; their last age keeps growing"
        self._try(beats, lambda: self._heartbeats.read(reader, self._now_ms()))
        syncs = "MirrorMaker's offset syncs cannot be read; records that it skips are not seen"
        self._try(syncs, lambda: self._read_syncs(reader))

    def _try(self, trouble: str, read: Callable[[], None]) -> None:
        try:
            read()
        except ReconcilerError as error:
            if trouble not in self._failing:
                log.warning("%s. %s", trouble, error)
            self._failing.add(trouble)
        else:
            self._failing.discard(trouble)

    def _read_syncs(self, reader: LogReader) -> None:
        """Topics that this cluster has under the same name are left out: the syncs may be of a mirror from here. So are
        compacted ones, whose numbers have gaps of their own."""
        self._syncs.read(reader, self._now_ms())
        found = self._syncs.by_topic
        here = reader.describe([*found, *(self._copies[topic] for topic in found)]).topics if found else {}
        self.gaps = {
            topic: gaps
            for topic, gaps in found.items()
            if (self._is_one_way or topic not in here)
            and (copy := here.get(self._copies[topic])) is not None
            and copy.compacted is False
        }
