"""Isolates the failure of one job from the others that are checked with it.

Theory of operation. Jobs are checked together, since that takes far fewer requests than one after the other. Their
stores are read first, each on its own: a store that does not answer fails its own jobs and no others. After
``STORE_FAILURES`` failures in a row it is given up (``Fuse``), and so is a server after failures of as many of its
stores (``StoreFuses``). If a check of several jobs fails nevertheless, the cluster is asked whether it answers at all.
If it does, the jobs are checked in halves, without waiting for unreachable stores, until each failing one is alone.
``watch`` reads stores by the same rules, and remembers the failing jobs instead.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.config.places import server_of
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import Away, Changed, ReconcilerError, Unreachable, as_sentence
from reconciler.failover.check import Checked, check, plan_of
from reconciler.failover.checking.decisions import refuse_several_places
from reconciler.failover.checking.numbers import job_topics
from reconciler.failover.outside import ByHand, Outside, StoreOpener, WrongDecision
from reconciler.failover.unlisted import UnlistedTopics, find_unlisted, refuse_unlisted
from reconciler.places.common import ReadOnlyStore
from reconciler.places.registry import traits
from reconciler.plan.document import NotJudged
from reconciler.ports import Capabilities, OffsetStore, Row

STORE_FAILURES = 2
"""After so many failing jobs in a row, a store is not waited for; a single job may be the cause itself."""
STORE_REST_S = 600.0
"""Longer than a check lasts, so a store that was given up is not tried again in it."""
MOST_CLIENTS = 10
"""Jobs at a time, for a store that keeps a client for each group."""

log = logging.getLogger("reconciler.check")


class Fuse:
    """A circuit breaker: after so many failures in a row, a cluster or a store is not tried for ``rest_s`` seconds.

    One failure is enough if nothing answered there at all.
    """

    def __init__(self, failures: int, rest_s: float) -> None:
        self._allowed = failures
        self._rest_s = rest_s
        self._failures = 0
        self._until = -math.inf
        self._error: ReconcilerError | None = None

    @property
    def is_new(self) -> bool:
        """True if nothing has failed since the last success."""
        return self._error is None

    def blown(self, now: float) -> ReconcilerError | None:
        """The failure because of which it is not tried; None if it may be tried."""
        if self._failures >= self._allowed and now >= self._until:
            self._failures = 0
        return self._error if self._failures >= self._allowed else None

    def failed(self, error: ReconcilerError, now: float) -> None:
        self._failures += self._allowed if isinstance(error, Away) else 1
        self._error = error
        self._until = now + self._rest_s

    def worked(self) -> None:
        self._failures = 0
        self._error = None


class StoreFuses:
    """A fuse for each store, and one for each server: many stores may be on one server."""

    def __init__(self, jobs: Iterable[Job], rest_s: float) -> None:
        addresses = {job.store for job in jobs}
        self._server_of = {address: f"server of {server_of(address)}" for address in addresses}
        self._fuses = {name: Fuse(STORE_FAILURES, rest_s) for name in (*addresses, *self._server_of.values())}

    def blown(self, address: str, now: float) -> ReconcilerError | None:
        """The failure because of which the store is not tried; None if it may be tried."""
        return self._fuses[address].blown(now) or self._fuses[self._server_of[address]].blown(now)

    def failed(self, address: str, error: Exception, now: float) -> None:
        """Count a failure that a retry may cure. A refusal is an answer, and costs no time."""
        if isinstance(error, Unreachable) and error.retryable:
            self._fuses[address].failed(error, now)
            if error.of_server:
                self._fuses[self._server_of[address]].failed(error, now)

    def worked(self, address: str) -> None:
        self._fuses[address].worked()
        self._fuses[self._server_of[address]].worked()

    def share(self, address: str, other: str, error: Exception) -> bool:
        """True if ``error`` may be the reason why both stores fail."""
        of_server = isinstance(error, Unreachable) and error.of_server
        return address == other or (of_server and self._server_of[address] == self._server_of[other])


# ---------------------------------------------------------------- stores


class Copy:
    """Rows that were read from a store. Satisfies ``ports.OffsetReader``."""

    def __init__(self, address: str, capabilities: Capabilities) -> None:
        self.address = address
        self.capabilities = capabilities
        self.rows: dict[str, list[Row]] = {}

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        wanted = None if topics is None else set(topics)
        return [row for row in self.rows[group] if wanted is None or row.key.topic in wanted]

    def close(self) -> None:
        """Nothing is held open."""


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """Why a job's rows could not be read, and how long that took to find out."""

    error: Exception
    seconds: float


@dataclass(frozen=True, slots=True)
class StoresRead:
    """The rows by the store's address, and the failures by the job's name.

    ``left``: the jobs whose rows were not read, since the check did not wait for them.
    """

    copies: Mapping[str, Copy]
    failed: Mapping[str, StoreFailure]
    left: frozenset[str]

    def opener(self, otherwise: StoreOpener) -> StoreOpener:
        """Opens the copies; a store of which there is none is opened itself."""

        def open_store(address: str) -> OffsetStore:
            return ReadOnlyStore(self.copies[address]) if address in self.copies else otherwise(address)

        return open_store


def read_stores(
    config: Config,
    jobs: Iterable[Job],
    open_store: StoreOpener,
    monotonic: Callable[[], float],
    fuses: StoreFuses,
    *,
    before: Callable[[Job], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> StoresRead:
    """Every job's rows. A store is opened once for all jobs with the same address, and closed again.

    ``before`` is called before a job's rows are read. Once ``stopping`` returns True, no more are read.
    """
    reading = _StoreReading(config, open_store, monotonic, fuses)
    left: set[str] = set()
    for job in jobs:
        if stopping():
            left.add(job.name)
        else:
            reading.read(job, before)
    reading.close()
    return StoresRead(reading.copies, reading.failed, frozenset(left))


class _StoreReading:
    """One reading of several jobs' stores, with what it has found so far: as in ``StoresRead``."""

    def __init__(
        self, config: Config, open_store: StoreOpener, monotonic: Callable[[], float], fuses: StoreFuses
    ) -> None:
        self._config = config
        self._open_store = open_store
        self._monotonic = monotonic
        self._fuses = fuses
        self._opened: dict[str, OffsetStore] = {}
        self.copies: dict[str, Copy] = {}
        self.failed: dict[str, StoreFailure] = {}

    def read(self, job: Job, before: Callable[[Job], None]) -> None:
        """Read one job's rows, or find out why that is not possible."""
        began = self._monotonic()
        error: Exception | None = self._fuses.blown(job.store, began)
        if error is None:
            try:
                error = self._try(job, before, began)
            except Exception as caught:  # noqa: BLE001 - any failure of one job must leave the others alone
                error = caught
                _close(self._opened.pop(job.store, None))
                self._fuses.failed(job.store, caught, self._monotonic())
        if error is not None:
            self.failed[job.name] = StoreFailure(error, self._monotonic() - began)

    def _try(self, job: Job, before: Callable[[Job], None], now: float) -> ReconcilerError | None:
        """Copy one job's rows. Returns a failure that concerns this job alone: its store answers."""
        if job.trouble is not None:
            return job.trouble
        store = self._opened.get(job.store) or self._opened.setdefault(job.store, self._open_store(job.store))
        copy = self.copies.setdefault(job.store, Copy(store.address, store.capabilities))
        before(job)
        rows = store.read(job.group, job_topics(self._config, job))
        copy.rows.setdefault(job.group, []).extend(rows)
        self._fuses.worked(job.store)
        unlisted: UnlistedTopics | None = None
        try:
            if rows or job.new is not None:
                refuse_unlisted(job, store.address, find_unlisted(self._config, job, store))
        except UnlistedTopics as found:
            unlisted = found
        if traits(job.store).holds_commits and len(copy.rows) % MOST_CLIENTS == 0:
            _close(self._opened.pop(job.store))
        return unlisted

    def close(self) -> None:
        for store in self._opened.values():
            _close(store)


def _close(store: OffsetStore | None) -> None:
    with suppress(ReconcilerError):
        if store is not None:
            store.close()


def read_all(
    config: Config, jobs: Sequence[Job], open_store: StoreOpener, monotonic: Callable[[], float]
) -> StoresRead:
    """Every job's rows, in one reading that remembers no earlier failures."""
    fuses = StoreFuses(jobs, STORE_REST_S)
    return read_stores(config, jobs, open_store, monotonic, fuses)


# ---------------------------------------------------------------- a check in which no job hides another


def check_each(config: Config, jobs: Sequence[Job], outside: Outside, by_hand: ByHand | None = None) -> Checked:
    """Check every job that can be judged; ``failed`` has the others, each with its cause.

    One job alone fails as in ``check``. Raises ``Unreachable`` or ``Refused`` if the cluster itself does not answer or
    lets nothing in, ``WrongDecision`` for a decision of the operator that fits no partition, several jobs, or perhaps a
    job that was not judged.
    """
    if len(jobs) == 1:
        return check(config, jobs, outside, by_hand)
    refuse_several_places(config, jobs, by_hand or ByHand())
    cluster_id = outside.patient(config.search).describe(()).cluster_id
    each = _IsolatedCheck(config, outside, by_hand or ByHand(), jobs)
    each.check()
    if not each.parts and (bug := next((e for e in each.failed.values() if not isinstance(e, ReconcilerError)), None)):
        raise bug
    if any(part.plan.cluster_id != cluster_id for part in each.parts):
        raise Changed(
            f"The destination was another cluster than {cluster_id} during the check.",
            hint="Run this again once the cluster is stable.",
        )
    return _merged(config, jobs, outside, each, cluster_id)


class _IsolatedCheck:
    """One check of several jobs: ``parts`` are the checks that succeeded, ``failed`` the jobs that had none."""

    def __init__(self, config: Config, outside: Outside, by_hand: ByHand, jobs: Sequence[Job]) -> None:
        self._config = config
        self._outside = outside
        self._by_hand = by_hand
        self._jobs = jobs
        self.parts: list[Checked] = []
        self.failed: dict[str, Exception] = {}

    def check(self) -> None:
        read = read_all(self._config, self._jobs, self._outside.open_store, self._outside.monotonic)
        whole = self._outside.open_store
        self._outside = replace(self._outside, open_store=read.opener(whole), open_whole=whole)
        self.failed.update({name: failure.error for name, failure in read.failed.items()})
        self._refuse_open_decisions()
        ready = self._well()
        try:
            if ready:
                self.parts.append(check(self._config, ready, self._outside, self._by_hand))
        except WrongDecision:
            raise
        except Exception as error:  # noqa: BLE001 - any failure of one job must leave the others alone
            self._split(ready, self._config, error)
            if self._by_hand != ByHand():  # only a check of all jobs shows which job a decision is about
                self._refuse_open_decisions()
                self.parts = [check(self._config, well, self._outside, self._by_hand)] if (well := self._well()) else []

    def _well(self) -> list[Job]:
        return [job for job in self._jobs if job.name not in self.failed]

    def _split(self, jobs: Sequence[Job], config: Config, error: Exception) -> None:
        """Check the halves of ``jobs``, which together have failed, each without the operator's decisions."""
        if isinstance(error, Unreachable):
            self._outside.reader.describe(())  # without the cluster, no job can be judged
        if len(jobs) == 1:
            self.failed[jobs[0].name] = error
            return
        if isinstance(error, Unreachable) and error.retryable:
            config = replace(config, search=replace(config.search, deadline_s=0.0))
        for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
            try:
                self.parts.append(check(config, half, self._outside))
            except Exception as own:  # noqa: BLE001 - as above
                self._split(half, config, own)

    def _refuse_open_decisions(self) -> None:
        """Raise WrongDecision for a decision that may be about a job that cannot be judged."""
        failed = [job for job in self._jobs if job.name in self.failed]
        topics = {topic for job in failed for topic in job_topics(self._config, job)}
        offsets = {place: offset for place, offset in self._by_hand.offsets.items() if place[0] in topics}
        if failed and replace(self._by_hand, offsets=offsets) != ByHand():
            name, error = failed[0].name, as_sentence(self.failed[failed[0].name])
            raise WrongDecision(
                f'Your decision may be about job "{name}", which cannot be judged: {error.message}',
                hint=f"Name the job that you mean with --job. {error.hint or ''}".rstrip(),
            )


def _merged(config: Config, jobs: Sequence[Job], outside: Outside, each: _IsolatedCheck, cluster_id: str) -> Checked:
    """One result of all parts, with the jobs in the order of the configuration."""
    plans = {job.name: job for part in each.parts for job in part.plan.jobs}
    gathered = {job.job.name: job for part in each.parts for job in part.jobs}
    order = [job.name for job in jobs if job.name in plans]
    failed = {job.name: as_sentence(each.failed[job.name]) for job in jobs if job.name in each.failed}
    for name in failed:
        log.debug('job "%s" was not judged', name, exc_info=each.failed[name])
    not_judged = [NotJudged(name, KNOWN.redacted(str(error))) for name, error in failed.items()]
    found = tuple(gathered[name] for name in order)
    plan = plan_of(config, outside.now_ms(), cluster_id, found, [plans[name] for name in order], not_judged)
    to_write, to_reanchor = (part.to_write for part in each.parts), (part.to_reanchor for part in each.parts)
    return Checked(plan, frozenset().union(*to_write), found, failed, frozenset().union(*to_reanchor))
