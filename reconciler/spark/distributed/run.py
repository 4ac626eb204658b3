"""A check's searches, run on a Spark cluster for estates that are too large for one machine.

    from reconciler.failover.check import check
    from reconciler.spark.distributed.run import SparkEngine

    engine = SparkEngine(lambda: spark, config.destination.client)
    checked = check(config, config.jobs, replace(outside, run=engine))

The driver reads the stores, looks up the partitions' leaders, and makes the plan, as without Spark; in between, each
group of partitions with one leader is a task in which the very same engine runs. Why ``RDD.mapPartitions`` and not
``mapInPandas``: a task must be one leader's group, neither more (a shuffle by leader puts several into one task, and
adaptive execution merges small ones) nor less; its input is a search and not a table's columns; and executors need
neither pandas nor PyArrow. Hence a classic session: Spark Connect has no RDDs.

A task only reads and its answer counts once, so Spark may retry it or run it twice. A failure is an answer too, and
ends the other tasks: an executor's error is raised here unchanged.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from reconciler.config.settings import SearchSettings
from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable
from reconciler.core.verdicts import Finding
from reconciler.kafka.connection import Connection
from reconciler.kafka.engine import EngineSettings, Inquiry, Outcome, Progress
from reconciler.kafka.errors import Needs
from reconciler.ports import LogReader, TopicPartition
from reconciler.retry import insist
from reconciler.spark.distributed.tasks import Answer, Orders, answered, missing_module, outcome_of, require, tasks_of
from reconciler.spark.session import spark_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

K = TypeVar("K", bound=Hashable)

PER_TASK = 2_000
"""Partitions per task: about a second of CPU and at most 300 MB (docs/how-to/large-estates.md)."""
LOOK_S = 0.1
"""Seconds between two looks at the tasks' reports."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs searches as ``engine.run`` does, on the executors of a classic SparkSession.

    ``session`` is called when there are searches to run. ``client``: librdkafka properties of the destination; they go
    to the executors as a broadcast, and never into Spark's plans or pages. ``per_task``: the most partitions per task;
    ``memory``: what the process that reads a task's records may hold, in bytes.
    """

    session: Callable[[], SparkSession]
    client: Mapping[str, Any]
    timeout_s: float = 10.0
    per_task: int = PER_TASK
    memory: int = SearchSettings().memory

    def __call__(
        self,
        reader: LogReader,
        inquiries: Mapping[K, Inquiry[Finding]],
        /,
        *,
        clock: Callable[[], float],
        settings: EngineSettings | None = None,
    ) -> Outcome[K, Finding]:
        """As ``engine.run``; ``reader`` and ``clock`` stay here, since each task has its own.

        Raises an executor's error, ``ConfigError`` for a session or executors that cannot run the searches, and
        ``Unreachable`` if Spark gives up.
        """
        if not inquiries:
            return Outcome({}, {}, 0)
        settings = settings or EngineSettings()
        keys, searches = list(inquiries), list(inquiries.values())
        topics, until = {each.partition.topic for each in searches}, clock() + settings.deadline_s
        leaders = insist(
            lambda: leaders_of(self.client, topics, timeout_s=self.timeout_s),
            left_s=lambda: until - clock(),
        )
        tasks = tasks_of(searches, leaders, self.per_task)
        orders = Orders(dict(self.client), self.timeout_s, settings.deadline_s, self.memory)
        job = CheckJob(classic_session(self.session()), settings.on_progress, len(searches))
        return outcome_of(keys, job.run(tasks, orders))


def leaders_of(client: Mapping[str, Any], topics: Collection[str], *, timeout_s: float) -> dict[TopicPartition, int]:
    """The broker ids of the partitions' leaders, without partitions that have none now and topics that do not exist.

    They only decide which searches are grouped: each reader finds the leader of its own moment. Raises ``Unreachable``
    and ``Refused`` as a log does.
    """
    connection = Connection(client, timeout_s=timeout_s, whose="destination")
    admin = connection.admin()
    described = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout_s)
    found: dict[TopicPartition, int] = {}
    for name, future in described.items():
        try:
            partitions = future.result().partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            needs = Needs(topic=f'Describe on topic "{name}"')
            raise connection.failure(error, f'look up the leaders of topic "{name}"', needs) from error
        found.update(
            (TopicPartition(name, each.id), each.leader.id)
            for each in partitions
            if each.leader is not None and each.leader.id >= 0
        )
    return found


def classic_session(session: SparkSession) -> SparkSession:
    """``session``, which must have RDDs. Raises ConfigError for one of Spark Connect."""
    if "connect" in type(session).__module__:
        raise ConfigError(
            "The searches cannot be run through Spark Connect, which has no RDDs.",
            hint="Use a classic SparkSession (spark.master), or the local engine.",
        )
    return session


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A finished task's report to the driver: partitions searched, rounds, and the answer if it failed."""

    partitions: int
    rounds: int
    failed: Answer | None = None


class CheckJob:
    """One Spark job, and its tasks' reports while it runs."""

    def __init__(self, session: SparkSession, on_progress: Callable[[Progress], None] | None, partitions: int) -> None:
        self._session = session
        self._context = session.sparkContext
        self._on_progress = on_progress
        self._partitions = partitions
        self._tag = f"reconciler-{uuid.uuid4()}"

    def run(self, tasks: Sequence[bytes], orders: Orders) -> list[Answer]:
        """Every task's answer. Ends at the first error: other tasks would wait for the same brokers."""
        shared = self._context.broadcast(orders)
        reports = self._context.accumulator((), _Joined())
        collect = self._with_local_properties(self._collect)
        try:
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(collect, tasks, shared, reports)
                try:
                    return self._awaited(running, reports)
                finally:
                    self._context.cancelJobsWithTag(self._tag)
        finally:
            with suppress(Exception):  # a stopped session has destroyed it
                shared.destroy()

    def _with_local_properties(self, collect: Callable[..., list[Answer]]) -> Callable[..., list[Answer]]:
        """``collect`` for another thread, with this thread's properties of the session, such as its scheduler pool."""
        from pyspark import __version__, inheritable_thread_target

        takes_session = not __version__.startswith("3.")
        wrapped: Callable[..., list[Answer]] = (
            inheritable_thread_target(self._session)(collect) if takes_session else inheritable_thread_target(collect)
        )
        return wrapped

    def _awaited(self, running: Future[list[Answer]], reports: Any) -> list[Answer]:
        seen = 0
        while True:
            with suppress(TimeoutError):
                return running.result(LOOK_S)
            arrived: Sequence[TaskReport] = reports.value
            for report in arrived[seen:]:
                if report.failed is not None:
                    require(report.failed)
            if self._on_progress is not None and len(arrived) > seen:
                done, rounds = sum(each.partitions for each in arrived), max(each.rounds for each in arrived)
                self._on_progress(Progress(rounds, done, self._partitions))
            seen = len(arrived)

    def _collect(self, tasks: Sequence[bytes], shared: Any, reports: Any) -> list[Answer]:
        """Runs in a thread of its own, since it waits inside the JVM."""
        self._context.addJobTag(self._tag)
        self._context.setJobDescription(f"search {self._partitions:,} partitions")
        try:
            cut = self._context.parallelize(tasks, len(tasks))
            return list(cut.mapPartitions(partial(_answers, shared, reports)).collect())
        except Exception as error:
            raise explained(error) from error


def _answers(shared: Any, reports: Any, tasks: Iterable[bytes]) -> Iterator[Answer]:
    """On an executor: the answers of one Spark partition's tasks, of which there is one."""
    for task in tasks:
        answer = answered(task, shared.value)
        failed = answer if answer.error is not None or answer.bug is not None else None
        reports.add((TaskReport(len(answer.found), answer.rounds, failed),))
        yield answer


class _Joined:
    """An accumulator of tuples: the tasks' reports, each counted once."""

    def zero(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def addInPlace(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return one + other


def explained(error: Exception) -> ReconcilerError:
    """Spark's exception as one of this product's errors."""
    missing = re.search(r"No module named '([\w.]+)'", str(getattr(error, "java_exception", None) or error))
    if missing:
        return missing_module(missing[1])
    return Unreachable(
        f"The Spark cluster gave the searches up: {spark_message(error)[:300]}.",
        hint="Nothing was written. Read the executors' logs, then run this again, or use the local engine.",
    )
