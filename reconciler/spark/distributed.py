"""Run a check's searches on the executors of a Spark cluster, for estates that are too large for one machine.

A task is a group of searches whose partitions have one leader, so its executor talks to one broker. Tasks are pickled
bytes, so that an error in unpickling them becomes a sentence. They only read, so Spark may repeat them.

Why ``RDD.mapPartitions`` and not ``mapInPandas``: a task must be exactly one leader's group, and a shuffle or adaptive
execution would merge groups; its input is a search, not a table's columns; and executors then need neither pandas nor
PyArrow. So it needs a classic session: Spark Connect has no RDDs.
"""

from __future__ import annotations

import pickle
import re
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from reconciler import __version__
from reconciler.config.settings import SearchSettings
from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable
from reconciler.core.verdicts import Finding
from reconciler.kafka.connection import Connection
from reconciler.kafka.engine import EngineSettings, Inquiry, Outcome, Progress, SearchResult, run
from reconciler.kafka.errors import Needs
from reconciler.ports import LogReader, TopicPartition
from reconciler.retry import insist
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
    ``memory``: the most bytes of the process that reads a task's records.
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
        """As ``engine.run``. Each task has a reader and a clock of its own.

        Raises an executor's error, ``ConfigError`` for a session or executors that cannot run the searches, and
        ``Unreachable`` if Spark gives up.
        """
        if not inquiries:
            return Outcome({}, {}, 0)
        settings = settings or EngineSettings()
        keys, searches = list(inquiries), list(inquiries.values())
        topics, until = {each.partition.topic for each in searches}, clock() + settings.deadline_s
        leaders = insist(
            lambda: find_leaders(self.client, topics, timeout_s=self.timeout_s),
            left_s=lambda: until - clock(),
        )
        tasks = make_tasks(searches, leaders, self.per_task)
        orders = Orders(dict(self.client), self.timeout_s, settings.deadline_s, self.memory)
        job = CheckJob(classic_session(self.session()), settings.on_progress, len(searches))
        return combine_answers(keys, job.run(tasks, orders))


def find_leaders(client: Mapping[str, Any], topics: Collection[str], *, timeout_s: float) -> dict[TopicPartition, int]:
    """The broker ids of the partitions' leaders, without partitions that have none now and topics that do not exist.

    They only decide which searches are grouped: each reader finds the present leaders. Raises ``Unreachable`` and
    ``Refused`` as a log does.
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
        self._context = session.sparkContext
        self._on_progress = on_progress
        self._partitions = partitions
        self._tag = f"reconciler-{uuid.uuid4()}"

    def run(self, tasks: Sequence[bytes], orders: Orders) -> list[Answer]:
        """Every task's answer. The first error ends the job: other tasks would wait for the same brokers."""
        shared = self._context.broadcast(orders)
        reports = self._context.accumulator((), _Joined())
        try:
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(self._collect, tasks, shared, reports)
                try:
                    return self._awaited(running, reports)
                finally:
                    self._context.cancelJobsWithTag(self._tag)
        finally:
            with suppress(Exception):  # a stopped session has destroyed it
                shared.destroy()

    def _awaited(self, running: Future[list[Answer]], reports: Any) -> list[Answer]:
        seen = 0
        while True:
            with suppress(TimeoutError):
                return running.result(LOOK_S)
            arrived: Sequence[TaskReport] = reports.value
            for report in arrived[seen:]:
                if report.failed is not None:
                    raise_error(report.failed)
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
            raise explain(error) from error


def _answers(shared: Any, reports: Any, tasks: Iterable[bytes]) -> Iterator[Answer]:
    """On an executor: the answer to the one task of a Spark partition."""
    for task in tasks:
        answer = run_task(task, shared.value)
        failed = answer if answer.error is not None or answer.bug is not None else None
        reports.add((TaskReport(len(answer.found), answer.rounds, failed),))
        yield answer


class _Joined:
    """An accumulator of tuples: the tasks' reports, each counted once."""

    def zero(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def addInPlace(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return one + other


def explain(error: Exception) -> ReconcilerError:
    """Spark's exception as one of this product's errors."""
    missing = re.search(r"No module named '([\w.]+)'", str(getattr(error, "java_exception", None) or error))
    if missing:
        return missing_module(missing[1])
    return Unreachable(
        f"Spark stopped the searches: {spark_message(error)[:300]}.",
        hint="Nothing was written. Read the executors' logs, then run this again, or use the local engine.",
    )


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Orders:
    """Settings of every task, sent once to each machine and not with the tasks: ``client`` may hold passwords.

    ``client``: librdkafka properties of the destination. ``timeout_s``: for one request. ``deadline_s``: from a task's
    start, how long it waits for unreachable brokers. ``memory``: the most bytes of the process that reads a task's
    records. ``version``: of the package that made the tasks.
    """

    client: Mapping[str, Any] = field(repr=False)
    timeout_s: float
    deadline_s: float
    memory: int
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Answer:
    """A task's findings by the number of their inquiry, or its error. ``bug``: a traceback."""

    found: Mapping[int, SearchResult[Finding]] = field(default_factory=dict)
    probes: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 0
    error: ReconcilerError | None = None
    bug: str | None = None


# ---------------------------------------------------------------- on the driver


def group_by_leader(partitions: Sequence[T], leader_of: Callable[[T], int | None], most: int) -> list[list[T]]:
    """Groups of one leader each, of at most ``most`` partitions and of similar sizes.

    Leaders alternate, so that machines that take groups in order ask different brokers at the same time.
    """
    by_leader: dict[int | None, list[T]] = {}
    for each in partitions:
        by_leader.setdefault(leader_of(each), []).append(each)
    leaders = sorted(by_leader, key=lambda leader: -1 if leader is None else leader)
    cut = [_evenly(by_leader[leader], most) for leader in leaders]
    return [group for turn in zip_longest(*cut) for group in turn if group is not None]


def _evenly(items: Sequence[T], most: int) -> list[list[T]]:
    pieces = -(-len(items) // most)
    edges = [len(items) * number // pieces for number in range(pieces + 1)]
    return [list(items[start:end]) for start, end in pairwise(edges)]


def make_tasks(inquiries: Sequence[Inquiry[Finding]], leaders: Mapping[TopicPartition, int], most: int) -> list[bytes]:
    """The inquiries as tasks; each inquiry is numbered by its place in the sequence."""
    groups = group_by_leader(range(len(inquiries)), lambda number: leaders.get(inquiries[number].partition), most)
    return [pickle.dumps({number: inquiries[number] for number in group}) for group in groups]


def combine_answers(keys: Sequence[K], answers: Iterable[Answer]) -> Outcome[K, Finding]:
    """The answers combined, as if one engine had run all tasks. Raises the first error among them."""
    found: dict[K, SearchResult[Finding]] = {}
    probes: Counter[str] = Counter()
    rounds = 0
    for answer in answers:
        raise_error(answer)
        found.update((keys[number], each) for number, each in answer.found.items())
        probes.update(answer.probes)
        rounds = max(rounds, answer.rounds)
    return Outcome({key: found[key] for key in keys}, probes, rounds)


def raise_error(answer: Answer) -> None:
    """Raise a failed task's error, as the local engine would."""
    if answer.error is not None:
        raise answer.error
    if answer.bug is not None:
        raise RuntimeError(answer.bug)


# ---------------------------------------------------------------- on an executor


def run_task(task: bytes, orders: Orders, open_reader: Callable[[Orders], LogReader] | None = None) -> Answer:
    """Run a task's searches. It only reads, so Spark may repeat it. It never raises: an ``Answer`` has the error."""
    try:
        if orders.version != __version__:
            raise ConfigError(
                f"Spark's executors have reconciler {__version__}, this program is {orders.version}.",
                hint="Install the same version in both places.",
            )
        inquiries: Mapping[int, Inquiry[Finding]] = pickle.loads(task)
        with closing((open_reader or _reader)(orders)) as reader:
            outcome = run(reader, inquiries, clock=time.monotonic, settings=EngineSettings(orders.deadline_s))
        return Answer(dict(outcome.found), dict(outcome.probes), outcome.rounds)
    except ReconcilerError as error:
        return Answer(error=error)
    except ModuleNotFoundError as error:
        return Answer(error=missing_module(error.name or "?"))
    except Exception:  # noqa: BLE001 - Spark would retry a task with a bug four times
        return Answer(bug=f"in a Spark task:\n{traceback.format_exc()}")


def missing_module(name: str) -> ConfigError:
    """The error for a module that the executors cannot import."""
    package = {"confluent_kafka": "confluent-kafka"}.get(name, name)
    return ConfigError(
        f'Spark\'s executors lack the Python module "{package}".',
        hint="Install reconciler with its dependencies, and the modules of python: ids, for the executors' Python "
        "(an image, spark.archives, or spark.pyspark.python).",
    )


def _reader(orders: Orders) -> LogReader:
    from reconciler.kafka.reading_process import open_log

    return open_log(orders.client, timeout_s=orders.timeout_s, memory=orders.memory)
