"""Checking many jobs at once, so that a failure of one of them costs the others nothing.

Theory of operation. Jobs are checked together, since that takes far fewer requests than one after the other. Their
stores are read first, each on its own: a store that does not answer fails its own jobs and no others. If a check of
several jobs fails all the same, the cluster is asked whether it answers at all. If it does not, all of them have
failed, and the cluster is left alone for a while (``Fuse``). If it does, the jobs are checked one by one. Those that
fail are from then on checked apart from the others, and without patience, until they succeed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from reconciler.config.file import Config, Job
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked
from reconciler.failover.gather import job_topics
from reconciler.failover.outside import Outside
from reconciler.formats.plan import JobPlan
from reconciler.mirror.lag import lags_ms
from reconciler.ports import Capabilities, OffsetStore, Row, TopicPartition
from reconciler.stores.common import ReadOnlyStore
from reconciler.stores.registry import traits
from reconciler.watch.figures import CheckFigures, figures_of

LONGEST_REST_S = 15.0
END_OF_WAITING_S = 1e9
STORE_FAILURES = 2
"""Jobs in a row that a store must fail before its other jobs are not waited for: one job alone may be the cause."""
CLUSTER = "The watched cluster"
STORE_REQUESTS = 16
"""To the watched cluster, for one job's rows in a store that lives there: connections, topics, coordinator, offsets."""
MOST_CLIENTS = 10
"""At a time, of a store that keeps a client for each group."""


class Checker(Protocol):
    """``operations.check.check``, or one that knows checkpoints as well."""

    def __call__(self, config: Config, jobs: Sequence[Job], outside: Outside, /) -> Checked: ...


@dataclass(frozen=True, slots=True)
class JobCheck:
    """The result of one job's check; ``place`` names what failed, as the subject of a sentence."""

    result: CheckFigures | Exception
    seconds: float
    place: str = ""


class Fuse:
    """A circuit breaker: after so many failures in a row, a cluster or a store is left alone for ``rest_s`` seconds."""

    def __init__(self, failures: int, rest_s: float) -> None:
        self._allowed = failures
        self._rest_s = rest_s
        self._failures = 0
        self._until = -math.inf
        self._error: ReconcilerError | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing has failed since the last success."""
        return self._error is None

    def blown(self, now: float) -> ReconcilerError | None:
        """The failure because of which it is left alone; None if it may be tried."""
        if self._failures >= self._allowed and now >= self._until:
            self._failures = 0
        return self._error if self._failures >= self._allowed else None

    def failed(self, error: ReconcilerError, now: float) -> None:
        self._failures += 1
        self._error = error
        self._until = now + self._rest_s

    def worked(self) -> None:
        self._failures = 0
        self._error = None


class JobChecker:
    """Checks the jobs of one configuration.

    An unreachable cluster is waited for as long as the search's deadline says, and half a round at most, so that an
    outage shows in the next round. ``take`` counts requests against the rate limit. Once ``stopping`` returns True,
    nothing is waited for any more.
    """

    def __init__(
        self,
        config: Config,
        outside: Outside,
        check: Checker,
        *,
        every_s: float,
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
        self._cluster = Fuse(1, min(every_s / 2, LONGEST_REST_S))
        self._stores = {job.store: Fuse(STORE_FAILURES, every_s / 2) for job in config.jobs}
        self._suspects: set[str] = set()
        self._turn = 0
        self._skipped_s = 0.0

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
        copies = self._read_stores(together, results)
        ready = [job for job in together if job.name not in results]
        for group in (
            [job for job in ready if job.name not in self._suspects],
            [job for job in ready if job.name in self._suspects],
            *([job] for job in alone),
        ):
            self._check_group(group, copies, results)
        for name, check in results.items():
            (self._suspects.discard if isinstance(check.result, CheckFigures) else self._suspects.add)(name)
        return results

    # ------------------------------------------------------------ checks

    def _check_group(self, jobs: Sequence[Job], copies: Mapping[str, _Copy], results: dict[str, JobCheck]) -> None:
        if not jobs:
            return
        began = self._clock()
        is_suspect = jobs[0].name in self._suspects
        try:
            results.update(self._check_now(jobs, copies, 0.0 if is_suspect else self._patience_s))
            self._cluster.worked()
        except Exception as error:  # noqa: BLE001 - any failure of one job must leave the others alone
            away = self._ask_cluster() if isinstance(error, Unreachable) else None
            if away is not None:
                results.update({job.name: JobCheck(away, self._clock() - began, CLUSTER) for job in jobs})
            elif len(jobs) == 1:
                results[jobs[0].name] = JobCheck(error, self._clock() - began, _job(jobs[0]))
            else:
                self._one_by_one(jobs, copies, results, error)

    def _one_by_one(
        self, jobs: Sequence[Job], copies: Mapping[str, _Copy], results: dict[str, JobCheck], error: Exception
    ) -> None:
        """Check each on its own. Once failures have taken as long as one wait, the others fail until the next round,
        which begins with another job.
        """
        self._turn += 1
        first = self._turn % len(jobs)
        lost_s = 0.0
        for job in (*jobs[first:], *jobs[:first]):
            began = self._clock()
            if lost_s > self._patience_s or self._stopping():
                results[job.name] = JobCheck(error, 0.0, _job(job))
                continue
            try:
                results.update(self._check_now([job], copies, 0.0))
            except Exception as own:  # noqa: BLE001 - as above
                took = self._clock() - began
                lost_s += took
                results[job.name] = JobCheck(own, took, _job(job))

    def _check_now(self, jobs: Sequence[Job], copies: Mapping[str, _Copy], patience_s: float) -> dict[str, JobCheck]:
        began = self._clock()
        config = replace(self._config, search=replace(self._config.search, deadline_s=patience_s))

        def open_store(address: str) -> OffsetStore:
            return ReadOnlyStore(copies[address]) if address in copies else self._outside.open_store(address)

        outside = replace(self._outside, open_store=open_store)
        checked = self._check(config, jobs, outside)
        took = self._clock() - began
        plans = {plan.name: plan for plan in checked.plan.jobs}
        found = partial(figures_of, policy=config.policy.start, single_cluster=config.watch.single_cluster)
        return {
            each.job.name: JobCheck(found(plans[each.job.name], each, lags_ms=self._lags_ms(each.job, plans)), took)
            for each in checked.jobs
        }

    def _lags_ms(self, job: Job, plans: Mapping[str, JobPlan]) -> dict[TopicPartition, int]:
        behind = [row for row in plans[job.name].partitions if row.verdict is Verdict.BEHIND]
        return lags_ms(behind, job.identity, self._outside.reader)

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

    def _read_stores(self, jobs: Iterable[Job], results: dict[str, JobCheck]) -> dict[str, _Copy]:
        """Every job's rows. A store is opened once for all jobs with the same address, and closed again."""
        copies: dict[str, _Copy] = {}
        opened: dict[str, OffsetStore] = {}
        for job in jobs:
            fuse, began = self._stores[job.store], self._clock()
            error: Exception | None = fuse.blown(began)
            if error is None:
                try:
                    store = opened.get(job.store) or opened.setdefault(job.store, self._outside.open_store(job.store))
                    copy = copies.setdefault(job.store, _Copy(store.address, store.capabilities))
                    self._take(self._requests_for(job))
                    copy.rows.setdefault(job.group, []).extend(store.read(job.group, job_topics(self._config, job)))
                    fuse.worked()
                    if traits(job.store).client_per_group and len(copy.rows) % MOST_CLIENTS == 0:
                        _close(opened.pop(job.store))
                except Exception as caught:  # noqa: BLE001 - as above
                    error = caught
                    _close(opened.pop(job.store, None))
                    if isinstance(caught, Unreachable) and caught.retryable:
                        fuse.failed(caught, self._clock())
            if error is not None:
                results[job.name] = JobCheck(error, self._clock() - began, self._store_of(job, error))
        for store in opened.values():
            _close(store)
        return copies

    def _store_of(self, job: Job, error: Exception) -> str:
        """What failed. An outage of a store is reported once for all jobs that share it."""
        sharing = [each.name for each in self._config.jobs if each.store == job.store]
        if isinstance(error, ReconcilerError) and error.retryable and len(sharing) > 1:
            return f'The store of job "{sharing[0]}" and {len(sharing) - 1:,} more'
        return f'The store of job "{job.name}"'

    def _requests_for(self, job: Job) -> int:
        """Requests to the watched cluster for the job's rows, and for anchors in a store of their own."""
        return STORE_REQUESTS * sum(
            traits(address).on_destination for address in (job.store, self._config.anchor_store or "")
        )


def _job(job: Job) -> str:
    return f'Job "{job.name}"'


def _close(store: OffsetStore | None) -> None:
    with suppress(ReconcilerError):
        if store is not None:
            store.close()


class _Copy:
    """Rows that were read from a store. Satisfies ``ports.OffsetReader``."""

    def __init__(self, address: str, capabilities: Capabilities) -> None:
        self.address = address
        self.capabilities = capabilities
        self.rows: dict[str, list[Row]] = {}

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        wanted = None if topics is None else set(topics)
        return [row for row in self.rows[group] if wanted is None or row.key.topic in wanted]

    def close(self) -> None:
        """It holds nothing open."""
