"""The continuous drill: every job checked again and again, spread evenly over the interval.

Theory of operation. Jobs are checked in batches, each batch at its own time within the interval, so that neither the
brokers nor the stores see all of them at once. A round is all batches once. The first round has no pauses: its results
are waited for. A round that exceeds its interval is followed by the next one at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reconciler.config.file import Job
from reconciler.core.errors import ReconcilerError, as_sentence
from reconciler.jobs.outages import Outages
from reconciler.jobs.watch.checker import CLUSTER, Checkers, JobChecker
from reconciler.jobs.watch.figures import CheckFigures, Watched
from reconciler.jobs.watch.metrics import Figures
from reconciler.kafka.rate_limit import RateLimit

BATCH_EVERY_S = 1.0
"""About the seconds between batches: shorter ones cost more requests than the even load is worth."""
LARGEST_BATCH = 50

log = logging.getLogger("reconciler.jobs.watch")


class Schedule:
    """When the ``steps`` of each round are due: all at once in the first, then evenly over ``every_s``.

    Step numbers continue over the rounds. ``begin`` is a time of the clock that ``due`` answers in.
    """

    def __init__(self, steps: int, every_s: float, begin: float) -> None:
        self._steps = steps
        self._apart_s = every_s / steps
        self._begin = begin

    def due(self, step: int) -> float:
        return self._begin + max(0, step - self._steps + 1) * self._apart_s

    def begin_round(self, step: int, now: float) -> None:
        """If ``step``, the first of a round, is due already, the round begins now, and those after it move with it."""
        self._begin += max(0.0, now - self.due(step))


def batches(jobs: Sequence[Job], every_s: float) -> list[Sequence[Job]]:
    """The jobs in the order of the configuration, in batches that differ by one job at most."""
    number = max(round(every_s / BATCH_EVERY_S), math.ceil(len(jobs) / LARGEST_BATCH), 1)
    number = min(number, len(jobs))
    ends = [len(jobs) * end // number for end in range(number + 1)]
    return [jobs[begin:end] for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Setup:
    """The watcher's values, made from one reading of the configuration and replaced as a whole by the next.

    ``watched`` has the topics and the labels of each job, by its name. ``use`` is called before the first check,
    ``close`` after the last. ``once``: the jobs are checked only once, so the log promises no other try.
    """

    jobs: tuple[Job, ...]
    watched: Mapping[str, Watched]
    checker: JobChecker | Checkers
    every_s: float
    close: Callable[[], None]
    use: Callable[[], None] = lambda: None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Requested:
    """The operator's requests: ``stop``, or ``reload`` of the configuration (True once for each request)."""

    stop: Callable[[], bool] = lambda: False
    reload: Callable[[], bool] = lambda: False


class Watch:
    """Checks the jobs of ``prepare``'s setup until it is asked to stop.

    ``clock`` gives monotonic seconds; ``wait`` waits for as many, or until something is requested. ``tidy`` is called
    after each batch.
    """

    def __init__(
        self,
        prepare: Callable[[], Setup],
        figures: Figures,
        limit: RateLimit,
        requested: Requested,
        *,
        clock: Callable[[], float],
        wait: Callable[[float], object],
        tidy: Callable[[], object] = lambda: None,
    ) -> None:
        self._prepare = prepare
        self._figures = figures
        self._limit = limit
        self._requested = requested
        self._clock = clock
        self._wait = wait
        self._tidy = tidy
        self.troubles: dict[str, ReconcilerError] = {}
        """Errors of the last complete round, by what failed."""
        self._setup = prepare()
        self._begin()

    def run(self, *, rounds: float = math.inf) -> None:
        """Check until asked to stop, or until so many rounds have ended."""
        while not self._requested.stop() and self._figures.process.rounds < rounds:
            if self._requested.reload():
                self._reload()
            wait_s = self._schedule.due(self._step) - self._clock()
            if wait_s > 0:
                self._wait(wait_s)
                continue
            self._check(self._batches[self._step % len(self._batches)])
            if self._requested.stop():
                break  # a round that was cut short shows no outage, and no end of one
            self._tidy()
            self._step += 1
            if self._step % len(self._batches) == 0:
                self._end_round()

    def close(self) -> None:
        self._setup.close()

    # ------------------------------------------------------------ rounds

    def _begin(self) -> None:
        """Start with the setup's jobs and interval, and without known outages."""
        setup = self._setup
        setup.use()
        self._batches = batches(setup.jobs, setup.every_s)
        self._schedule = Schedule(len(self._batches), setup.every_s, self._clock())
        self._outages = Outages(None if setup.once else setup.every_s, self._clock, log)
        self._step = 0
        self._spent_s = 0.0
        self._troubles: dict[str, ReconcilerError] = {}
        self._figures.watch_jobs({job.name: setup.watched[job.name] for job in setup.jobs})
        self._update(interval_s=setup.every_s, reload_ok=True)

    def _check(self, jobs: Sequence[Job]) -> None:
        began = self._clock()
        results = self._setup.checker.check(jobs)
        self._spent_s += self._clock() - began
        if self._requested.stop():
            return  # a check that was cut short proves nothing
        self._figures.checked({name: check.result for name, check in results.items()})
        self._update(
            held_back_s=self._limit.waited_s,
            heartbeats_ms=self._setup.checker.heartbeats_ms,
            gaps=self._setup.checker.gaps,
        )
        for name, check in results.items():
            if not isinstance(check.result, CheckFigures):
                log.debug('job "%s" was not checked', name, exc_info=check.result)
                error = as_sentence(check.result)
                self._troubles[check.place] = error
                if check.was_tried or check.place not in self._outages:  # one that was not tried has no other cause
                    self._outages.began(check.place, error)

    def _end_round(self) -> None:
        now, process = self._clock(), self._figures.process
        if CLUSTER not in self._troubles:  # without it no store was asked, so none is known to be back
            self._outages.answered(self._troubles)
        self.troubles, self._troubles = self._troubles, {}
        self._schedule.begin_round(self._step, now)
        self._update(rounds=process.rounds + 1, round_s=self._spent_s)
        self._spent_s = 0.0

    def _reload(self) -> None:
        """Use the file's jobs and settings from now on; keep the previous ones if it cannot be used."""
        try:
            setup = self._prepare()
        except ReconcilerError as error:
            log.error("The configuration was not read again, and the previous one stays in use. %s", error)
            self._update(reload_ok=False)
            return
        before, self._setup = self._setup, setup
        self._begin()
        before.close()
        log.info("the configuration was read again: %d jobs", len(setup.jobs))

    def _update(self, **values: object) -> None:
        self._figures.process = replace(self._figures.process, **values)  # type: ignore[arg-type]
