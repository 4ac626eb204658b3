"""The recorder behind ``Job.track(query)``: it keeps a stay's journal from a running query's checkpoint.

``SparkQuery`` is a running query as its driver sees it. Its Kafka sources are internals of Spark, the same in 3.5.7,
4.0.4, 4.1.4, 4.2.1 and 4.3.0; a query whose sources are different continues and is not recorded here.

``Tracking`` is a thread beside the query, and never delays a batch. It reads the checkpoint once a second, and when a
batch begins. No event of Spark announces that, so it reads a cheap sign of it every ``TICK_S``: the end of a batch is
in the journal before most of the batch's work. A listener in Python would add nothing, and costs the driver more than
all of this (decision 0019).

A failure never reaches the query: it is logged once, and is in ``Tracking.state`` and ``trouble``. Only one thing ends
the query: its job now lives elsewhere (``recorder.Moved``).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import StrEnum
from time import monotonic
from typing import Any, NamedTuple, Protocol

from reconciler.clock import clock_ms
from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import ConfigError, ReconcilerError, as_sentence
from reconciler.jobs.tracking.recorder import Moved, Positions, StayRecorder
from reconciler.spark.stay_checkpoint import as_opened

log = logging.getLogger(__name__)

LOOK_S = 1.0
TICK_S = 0.01
BURST = 3
HERE_S = 10.0
"""Seconds between two reads of the newest location."""
PAUSE_S = 60.0
"""Seconds without a try after a refusal, such as of a login."""
LAST_S = 10.0
"""Seconds for which the driver's end waits for the last entry."""


class State(StrEnum):
    """The state of a tracked query's recorder, for a metric."""

    BEGINNING = "beginning"
    RECORDING = "recording"
    FAILING = "failing"
    """A cluster or store is unreachable: the next look retries."""
    UNABLE = "unable"
    """This driver cannot record: use ``reconciler track``."""
    STOPPED = "stopped"
    """The job lives elsewhere, and the query was stopped."""
    ENDED = "ended"


class RunningQuery(Protocol):
    """The part of a query that ``Tracking`` uses."""

    @property
    def is_active(self) -> bool: ...
    @property
    def begun(self) -> object:
        """A value that changes when a batch begins, cheap to read."""

    def stop(self) -> None: ...


class Pace:
    """One append a second, and ``BURST`` more. The news that a known number is processed may wait for two seconds."""

    def __init__(self) -> None:
        self._spare, self._last = float(BURST), float("-inf")

    def wait_s(self, now: float, *, urgent: bool) -> float:
        """Seconds until the next append may be made; 0 or less for now."""
        wait = 1 - self._left(now)
        return wait if urgent else max(wait, self._last + 2 - now)

    def spent(self, now: float) -> None:
        self._spare, self._last = self._left(now) - 1, now

    def _left(self, now: float) -> float:
        return min(BURST, self._spare + now - self._last)


class Tracking:
    """One query's recorder. A driver needs only ``state`` and ``trouble``."""

    def __init__(self, job: str, query: RunningQuery | None = None) -> None:
        self.job = job
        self.state = State.BEGINNING
        self.trouble: ReconcilerError | None = None
        """Why the query is not recorded now, or why it was stopped."""
        self.appended = 0
        self._query = query
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def unable(self, why: ReconcilerError) -> Tracking:
        """Note that this driver cannot record the query, which continues."""
        self._fail(why, State.UNABLE)
        return self

    def begin(self, recorder: StayRecorder, read: Callable[[], Positions | None]) -> Tracking:
        """Start the thread. ``read`` gives the query's positions by its checkpoint, None before there is one."""
        self._recorder, self._read = recorder, read
        self._pace, self._is_urgent, self._is_early = Pace(), False, False
        self._begun: object = None
        self._here_at = self._resume_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"reconciler-track-{self.job}", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a daemon thread would lose the last batch's entry
        return self

    def close(self) -> None:
        """Record the checkpoint's newest positions, and end. The query continues."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LAST_S)

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._is_watched():
                self._await_change()
                self.turn(monotonic())
            if self.state is not State.STOPPED:
                self.turn(monotonic(), is_last=True)
        finally:
            atexit.unregister(self.close)
            self._recorder.close()
            self.state = self.state if self.state is State.STOPPED else State.ENDED

    def _is_watched(self) -> bool:
        return self._query is not None and self._query.is_active and not self._closing.is_set()

    def _await_change(self) -> None:
        now = monotonic()
        until = now + (self._pace.wait_s(now, urgent=True) if self._is_early else LOOK_S)
        before = self._begun
        while self._begun == before and not self._closing.wait(TICK_S) and monotonic() < until:
            self._begun = self._query.begun if self._query is not None else None

    def turn(self, now: float, *, is_last: bool = False) -> None:
        """Look once, and append an entry if one is due. Never raises."""
        try:
            if now - self._here_at >= HERE_S:
                self._recorder.require_here()
                self._here_at = now
            self._is_early = not is_last and self._pace.wait_s(now, urgent=True) > 0
            if now < self._resume_at or self._is_early:
                return  # an entry could not be appended yet
            if (found := self._read()) is None:
                return
            self._is_urgent = self._recorder.look(found) or self._is_urgent
            is_due = is_last or self._pace.wait_s(now, urgent=self._is_urgent) <= 0
            if is_due and self._recorder.append(clock_ms()):
                self._pace.spent(now)
                self._is_urgent = False
                self.appended += 1
            self._recovered()
        except Moved as error:
            self._stop(error)
        except Exception as error:
            why = as_sentence(error, "the traceback in the log")
            self._resume_at = float("-inf") if why.retryable else now + PAUSE_S
            if why is not error:
                log.exception('job "%s"', self.job)
            self._fail(why, State.FAILING if why.retryable else State.UNABLE)

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.warning('job "%s" is recorded again', self.job)
        self.state, self.trouble = State.RECORDING, None

    def _fail(self, why: ReconcilerError, state: State) -> None:
        if str(why) != str(self.trouble):
            log.warning('job "%s" is not recorded now, and its query continues: %s', self.job, why)
        self.state, self.trouble = state, why

    def _stop(self, why: Moved) -> None:
        log.error("%s", why)
        self.state, self.trouble = State.STOPPED, why
        self._closing.set()
        try:
            if self._query is not None:
                self._query.stop()
        except Exception:  # Spark's own, of many kinds
            log.exception('the query of job "%s" could not be stopped', self.job)


def already_tracked(tracking: Tracking) -> ConfigError:
    """The error for a second query of the same job."""
    return ConfigError(
        f'This driver already tracks another query of job "{tracking.job}".',
        hint="Give the other query a job of its own, in [[jobs]].",
    )


SERVERS, ISOLATION = "kafka.bootstrap.servers", "kafka.isolation.level"
BEGUN = ("Processing", "No new data but")
"""How Spark's status begins while a batch runs."""


def cannot_record(why: str) -> ConfigError:
    """The error for a query that this driver cannot record, because of ``why``."""
    return ConfigError(
        f"The query cannot be recorded by its driver: {why}.",
        hint="Record this job from outside of its driver: reconciler track",
    )


class Source(NamedTuple):
    """A Kafka source. ``topics``: None for those of a pattern or of single partitions."""

    topics: frozenset[str] | None
    servers: str
    is_committed_only: bool

    def reads(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


class SparkQuery:
    """A query of classic Spark. Raises ConfigError for one that cannot be seen, as over Spark Connect."""

    def __init__(self, query: Any) -> None:
        self._query = query
        java = getattr(query, "_jsq", None)
        if java is None:
            raise cannot_record("Spark Connect does not show its checkpoint")
        try:
            running = java.streamingQuery() if hasattr(java, "streamingQuery") else java
            self.checkpoint = as_opened(str(running.resolvedCheckpointRoot()))
            self.sources = _sources(running.analyzedPlan())
        except Exception as error:
            raise cannot_record(f"this version of Spark does not show its sources ({type(error).__name__})") from error
        self._java = java
        self._changed = 0
        self._newest: int | None = None

    @property
    def is_active(self) -> bool:
        try:
            return bool(self._java.isActive())
        except Exception:  # noqa: BLE001 - the JVM has ended: its errors are of many kinds
            return False

    @property
    def begun(self) -> object:
        """Changes when a batch begins: the newest entry of a local offset log; elsewhere, Spark's status in memory."""
        if not os.path.isabs(self.checkpoint):
            with suppress(Exception):  # the JVM has ended
                return str(self._java.status().message()).startswith(BEGUN)
        offsets = os.path.join(self.checkpoint, "offsets")
        with suppress(OSError):  # not written yet
            changed = os.stat(offsets).st_mtime_ns
            if changed != self._changed:
                self._changed, names = changed, os.listdir(offsets)
                self._newest = max((int(name) for name in names if name.isdecimal()), default=None)
        return self._newest

    def stop(self) -> None:
        self._query.stop()

    def is_committed_only(self, topic: str) -> bool:
        """True if it reads committed records only, from at least one of its sources."""
        return any(source.is_committed_only for source in self.sources if source.reads(topic))

    def topics_at(self, servers: str, topics: Collection[str]) -> set[str]:
        """The topics, of ``topics``, that it reads from this cluster alone."""
        here = [source for source in self.sources if shared_brokers(source.servers, servers)]
        elsewhere = [source for source in self.sources if source not in here]
        read = {topic for topic in topics if any(source.reads(topic) for source in here)}
        return {topic for topic in read if not any(source.reads(topic) for source in elsewhere)}


def _sources(plan: Any) -> tuple[Source, ...]:
    leaves = plan.collectLeaves()
    found = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if (
            leaf.isStreaming()
            and leaf.getClass().getSimpleName() == "StreamingRelationV2"
            and leaf.sourceName() == "kafka"
        ):
            options = leaf.extraOptions()  # finds names in any case
            names = options.get("subscribe")
            topics = None if names is None else frozenset(name.strip() for name in str(names).split(","))
            committed = options.get(ISOLATION) == "read_committed"
            found.append(Source(topics, str(options.get(SERVERS) or ""), committed))
    return tuple(found)
