"""The continuous drill: every job checked again and again, spread evenly over the interval.

Theory of operation. Jobs are checked in batches, each batch at its own time within the interval, so that neither the
brokers nor the stores see all of them at once. A round is all batches once. The first round takes no breaks: whoever
started this wants to see something. A round that cannot end in its interval is followed by the next one at once; that
is said when it begins and when it is over, and counted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reconciler.config.file import Job
from reconciler.core.errors import ReconcilerError
from reconciler.kafka.rate_limit import RateLimit
from reconciler.outages import Outages
from reconciler.watch.figures import Figures, Found
from reconciler.watch.looking import CLUSTER, Look, Looker

BATCH_EVERY_S = 1.0
"""Batches are about this far apart: closer ones save the brokers less than they cost in requests."""
LARGEST_BATCH = 50
MOST_LINES = 5
"""Outages that are said one by one in a round; of hundreds of jobs that fail alike, the metrics tell."""
OVERRUNS_SAID = 2
MISSED_ROUNDS = 3
"""Intervals without the end of a round after which something is wrong."""

log = logging.getLogger("reconciler.watch")


class Schedule:
    """When the ``steps`` of each round are due: all at once in the first, then evenly over ``every_s``.

    Step numbers go on over the rounds. ``begin`` is a time of the clock that ``due`` answers in.
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
    """What a configuration makes of the world: replaced whole when it is read again.

    ``use`` is called when this one is about to be used, ``close`` when it no longer is.
    """

    jobs: tuple[Job, ...]
    looker: Looker
    every_s: float
    deadline_s: float
    close: Callable[[], None]
    use: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Asked:
    """What whoever runs this wants: to ``stop``, or that the configuration is read again (asked once each time)."""

    stop: Callable[[], bool] = lambda: False
    reload: Callable[[], bool] = lambda: False


class Watch:
    """Checks the jobs of ``prepare``'s setup until it is asked to stop.

    ``clock`` gives monotonic seconds; ``wait`` waits for as many, or less when something is asked. ``tidy`` is called
    after each batch.
    """

    def __init__(
        self,
        prepare: Callable[[], Setup],
        figures: Figures,
        limit: RateLimit,
        asked: Asked,
        *,
        clock: Callable[[], float],
        wait: Callable[[float], object],
        now_ms: Callable[[], int],
        tidy: Callable[[], object] = lambda: None,
    ) -> None:
        self._prepare = prepare
        self._figures = figures
        self._limit = limit
        self._asked = asked
        self._clock = clock
        self._wait = wait
        self._now_ms = now_ms
        self._tidy = tidy
        self._overruns = 0
        self._ended_at = clock()
        self._allowed_s = math.inf
        self.troubles: dict[str, Exception] = {}
        """What failed in the last round that has ended, by what it was."""
        self._setup = prepare()
        self._begin()

    def run(self, *, rounds: float = math.inf) -> None:
        """Check until asked to stop, or until so many rounds have ended."""
        while not self._asked.stop() and self._figures.process.rounds < rounds:
            if self._asked.reload():
                self._reload()
            wait_s = self._schedule.due(self._step) - self._clock()
            if wait_s > 0:
                self._wait(wait_s)
                continue
            self._check(self._batches[self._step % len(self._batches)])
            self._tidy()
            self._step += 1
            if self._step % len(self._batches) == 0:
                self._end_round()

    def close(self) -> None:
        self._setup.close()

    def health(self) -> str | None:
        """Why something is wrong with the checking itself, None if nothing is. Any thread may ask."""
        silent_s, allowed_s = self._clock() - self._ended_at, self._allowed_s
        if silent_s <= allowed_s:
            return None
        return f"No round of checks has ended for {silent_s:.0f} s; one should every {allowed_s:.0f} s at the latest."

    # ------------------------------------------------------------ rounds

    def _begin(self) -> None:
        """Begin with a setup: its jobs, its interval, and nothing known of outages."""
        setup = self._setup
        setup.use()
        self._batches = batches(setup.jobs, setup.every_s)
        self._schedule = Schedule(len(self._batches), setup.every_s, self._clock())
        self._outages = Outages(setup.every_s, self._clock, log, most=MOST_LINES)
        self._step = 0
        self._round_began = self._clock()
        self._spent_s = 0.0
        self._troubles: dict[str, Exception] = {}
        self._figures.watch_jobs(job.name for job in setup.jobs)
        self._allow(0.0)
        self._tell(interval_s=setup.every_s, reload_ok=True, reloaded_ms=self._now_ms())

    def _check(self, jobs: Sequence[Job]) -> None:
        began = self._clock()
        if self._step % len(self._batches) == 0:
            self._round_began = began
        looks = self._setup.looker.look(jobs)
        self._spent_s += self._clock() - began
        if self._asked.stop():
            return  # what was cut short says nothing
        self._figures.checked({name: (look.result, look.seconds) for name, look in looks.items()})
        self._count_requests()
        for look in looks.values():
            if not isinstance(look.result, Found):
                self._report(look, look.result)

    def _report(self, look: Look, error: Exception) -> None:
        known = error if isinstance(error, ReconcilerError) else _bug(error)
        self._troubles[look.place] = known
        self._outages.began(look.place, known)

    def _end_round(self) -> None:
        now, process = self._clock(), self._figures.process
        if CLUSTER not in self._troubles:  # nothing else was asked then, so nothing can be said to be back
            self._outages.tell(self._troubles)
        self.troubles, self._troubles = self._troubles, {}
        self._schedule.begin_round(self._step, now)
        took_s = now - self._round_began
        is_away = CLUSTER in self.troubles  # that is said already, and no matter of speed
        is_overrun = took_s > self._setup.every_s and not is_away
        if not is_away:
            self._report_overrun(is_overrun, took_s)
        self._ended_at = now
        self._allow(took_s)
        self._tell(
            rounds=process.rounds + 1,
            overruns=process.overruns + is_overrun,
            round_s=self._spent_s,
            round_ended_ms=self._now_ms(),
        )
        self._spent_s = 0.0

    def _report_overrun(self, is_overrun: bool, took_s: float) -> None:
        """Said at the second one in a row, and when it is over."""
        every_s, said = self._setup.every_s, self._overruns >= OVERRUNS_SAID
        self._overruns = self._overruns + 1 if is_overrun else 0
        if self._overruns == OVERRUNS_SAID:
            log.warning(
                "Rounds of checks take longer than the %g s between two of them, the last one %.1f s: the next begins "
                "at once. Raise every or requests_per_second, or watch fewer jobs.",
                every_s,
                took_s,
            )
        elif said and not is_overrun:
            log.info("rounds of checks end in their %g s again", every_s)

    def _allow(self, round_s: float) -> None:
        setup = self._setup
        self._allowed_s = MISSED_ROUNDS * max(setup.every_s, round_s) + setup.deadline_s

    def _reload(self) -> None:
        """The file's jobs and settings from now on; the ones from before where it cannot be used."""
        try:
            setup = self._prepare()
        except ReconcilerError as error:
            log.error("The configuration was not read again, and the one from before goes on. %s", error)
            self._tell(reload_ok=False)
            return
        before, self._setup = self._setup, setup
        self._begin()
        before.close()
        log.info("the configuration was read again: %d jobs", len(setup.jobs))

    # ------------------------------------------------------------ figures

    def _count_requests(self) -> None:
        self._tell(requests=self._limit.taken, held_back_s=self._limit.waited_s)

    def _tell(self, **values: object) -> None:
        self._figures.process = replace(self._figures.process, **values)  # type: ignore[arg-type]


def _bug(error: Exception) -> ReconcilerError:
    said = f"{type(error).__name__}: {error}"
    return ReconcilerError(f"This is a bug in reconciler: {said}.", hint="Please report it, with what --debug prints.")
