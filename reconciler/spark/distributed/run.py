"""A check's searches run on a Spark cluster, for estates that are too large for one machine.

    from reconciler.failover.check import check
    from reconciler.spark.distributed import SparkEngine

    engine = SparkEngine(lambda: spark, config.destination.client)
    checked = check(config, config.jobs, replace(outside, run=engine))

The driver reads the stores, asks for the partitions' leaders, and makes the plan, as it does without Spark; in between,
each group of partitions with one leader is a task in which the very same engine runs. Why ``RDD.mapPartitions`` and not
``mapInPandas``: a task must be one leader's group, neither more (a shuffle by leader puts several into one task, and
adaptive execution merges small ones) nor less; what goes in is a search and not a table's columns; and executors need
neither pandas nor PyArrow. Hence a classic session: Spark Connect has no RDDs.

A task only reads and its answer counts once, so that Spark may try it again or run it twice. What a task cannot do is
an answer too, and ends the others: an executor's error comes back as it would be raised here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable
from reconciler.core.verdicts import Finding
from reconciler.engine import EngineSettings, Inquiry, Outcome, Progress
from reconciler.ports import LogReader
from reconciler.retry import insist
from reconciler.spark.distributed.leaders import leaders_of
from reconciler.spark.distributed.tasks import Answer, Orders, answered, missing_module, outcome_of, require, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

K = TypeVar("K", bound=Hashable)

PER_TASK = 2_000
"""Partitions a task: about a second of CPU and at most 300 MB (docs/how-to/large-estates.md)."""
LOOK_S = 0.1
"""Seconds between two looks at what the tasks have told."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs searches as ``engine.run`` does, on the executors of a classic SparkSession.

    ``session`` is called when there is something to run. ``client``: librdkafka properties of the destination; they go
    to the executors as a broadcast, and into no plan or page of Spark's. ``per_task``: partitions a task at most.
    """

    session: Callable[[], SparkSession]
    client: Mapping[str, Any]
    timeout_s: float = 10.0
    per_task: int = PER_TASK

    def __call__(
        self,
        reader: LogReader,
        inquiries: Mapping[K, Inquiry[Finding]],
        /,
        *,
        clock: Callable[[], float],
        settings: EngineSettings | None = None,
    ) -> Outcome[K, Finding]:
        """As ``engine.run``; ``reader`` and ``clock`` stay here, for each task has its own.

        Raises what an executor met, ``ConfigError`` for a session or executors that cannot do it, and ``Unreachable``
        when Spark gives up.
        """
        if not inquiries:
            return Outcome({}, {}, 0)
        settings = settings or EngineSettings()
        keys, asked = list(inquiries), list(inquiries.values())
        topics, began = {each.partition.topic for each in asked}, clock()
        leaders = insist(
            lambda: leaders_of(self.client, topics, timeout_s=self.timeout_s),
            give_up=lambda: clock() - began >= settings.deadline_s,
        )
        tasks = tasks_of(asked, leaders, self.per_task)
        orders = Orders(dict(self.client), self.timeout_s, settings.deadline_s)
        job = _Job(_classic(self.session()), settings.on_progress, len(asked))
        return outcome_of(keys, job.run(tasks, orders))


def _classic(session: SparkSession) -> SparkSession:
    if "connect" in type(session).__module__:
        raise ConfigError(
            "The searches cannot be run through Spark Connect, which has no RDDs.",
            hint="Use a classic SparkSession (spark.master), or the local engine.",
        )
    return session


class _Job:
    """One Spark job, and what its tasks tell while it runs."""

    def __init__(self, session: SparkSession, on_progress: Callable[[Progress], None] | None, partitions: int) -> None:
        self._session = session
        self._context = session.sparkContext
        self._on_progress = on_progress
        self._partitions = partitions
        self._tag = f"reconciler-{uuid.uuid4()}"

    def run(self, tasks: Sequence[tuple[int, bytes]], orders: Orders) -> list[Answer]:
        """Every task's answer. Ends with the first that is an error: others would wait for the same brokers."""
        from pyspark import inheritable_thread_target

        shared = self._context.broadcast(orders)
        told = self._context.accumulator((), _Joined())
        collect = inheritable_thread_target(self._session)(self._collect)
        try:
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(collect, [task for _, task in tasks], shared, told)
                try:
                    return self._awaited(running, told)
                finally:
                    self._context.cancelJobsWithTag(self._tag)
        finally:
            with suppress(Exception):  # a session that is gone has taken it along
                shared.destroy()

    def _awaited(self, running: Future[list[Answer]], told: Any) -> list[Answer]:
        seen = 0
        while True:
            with suppress(TimeoutError):
                return running.result(LOOK_S)
            news = told.value
            for _, _, failed in news[seen:]:
                if failed is not None:
                    require(failed)
            if self._on_progress is not None and len(news) > seen:
                done, rounds = sum(count for count, _, _ in news), max(rounds for _, rounds, _ in news)
                self._on_progress(Progress(rounds, done, self._partitions))
            seen = len(news)

    def _collect(self, tasks: Sequence[bytes], shared: Any, told: Any) -> list[Answer]:
        """In a thread of its own, for it waits inside the JVM."""
        self._context.addJobTag(self._tag)
        self._context.setJobDescription(f"search {self._partitions:,} partitions")
        try:
            cut = self._context.parallelize(tasks, len(tasks))
            return list(cut.mapPartitions(partial(_answers, shared, told)).collect())
        except Exception as error:
            raise _explained(error) from error


def _answers(shared: Any, told: Any, tasks: Iterable[bytes]) -> Iterator[Answer]:
    """On an executor: the answers to one Spark partition's tasks, of which there is one."""
    for task in tasks:
        answer = answered(task, shared.value)
        failed = answer if answer.error is not None or answer.bug is not None else None
        told.add(((len(answer.rows), answer.rounds, failed),))
        yield answer


class _Joined:
    """An accumulator of tuples: what tasks tell, counted once each."""

    def zero(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def addInPlace(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return one + other


def _explained(error: Exception) -> ReconcilerError:
    """What Spark says, as a sentence."""
    text = str(getattr(error, "java_exception", None) or error)
    missing = re.search(r"No module named '([\w.]+)'", text)
    if missing:
        return missing_module(missing[1])
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return Unreachable(
        f"The Spark cluster gave the searches up: {first[:300].rstrip('.')}.",
        hint="Nothing was written. See the executors' logs, then run this again, or use the local engine.",
    )
