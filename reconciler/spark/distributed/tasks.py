"""A check's searches as tasks for other machines: grouped, pickled, run there, and their findings returned. No Spark.

A task is a group of searches whose partitions have one leader, so that its executor talks to one broker. It is bytes,
unpickled only where an error can become a sentence.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from reconciler import __version__
from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import EngineSettings, Inquiry, Outcome, SearchResult, run
from reconciler.ports import LogReader, TopicPartition

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Orders:
    """Settings of every task, sent once to each machine and apart from the tasks: ``client`` may hold passwords.

    ``client``: librdkafka properties of the destination. ``timeout_s`` for one request, ``deadline_s`` for how long a
    task waits for brokers that are away, from its own start. ``memory``: what the process that reads records for a task
    may hold, in bytes. ``version``: the package that made the tasks.
    """

    client: Mapping[str, Any] = field(repr=False)
    timeout_s: float
    deadline_s: float
    memory: int
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Answer:
    """A task's findings by the number of their inquiry, or why there are none. ``bug`` is a traceback."""

    found: Mapping[int, SearchResult[Finding]] = field(default_factory=dict)
    probes: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 0
    error: ReconcilerError | None = None
    bug: str | None = None


# ---------------------------------------------------------------- on the driver


def grouped(partitions: Sequence[T], leader_of: Callable[[T], int | None], most: int) -> list[list[T]]:
    """Groups of one leader each, of at most ``most`` and of similar sizes.

    Leaders alternate, so that machines which take groups in order ask different brokers at the same time.
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


def tasks_of(inquiries: Sequence[Inquiry[Finding]], leaders: Mapping[TopicPartition, int], most: int) -> list[bytes]:
    """The inquiries as tasks; each inquiry is numbered by its place in the sequence."""
    groups = grouped(range(len(inquiries)), lambda number: leaders.get(inquiries[number].partition), most)
    return [pickle.dumps({number: inquiries[number] for number in group}) for group in groups]


def outcome_of(keys: Sequence[K], answers: Iterable[Answer]) -> Outcome[K, Finding]:
    """The answers combined, as if one engine had run all tasks. Raises the first error among them."""
    found: dict[K, SearchResult[Finding]] = {}
    probes: Counter[str] = Counter()
    rounds = 0
    for answer in answers:
        require(answer)
        found.update((keys[number], each) for number, each in answer.found.items())
        probes.update(answer.probes)
        rounds = max(rounds, answer.rounds)
    return Outcome({key: found[key] for key in keys}, probes, rounds)


def require(answer: Answer) -> None:
    """Raise a failed task's error, as the local engine would."""
    if answer.error is not None:
        raise answer.error
    if answer.bug is not None:
        raise RuntimeError(answer.bug)


# ---------------------------------------------------------------- on an executor


def answered(task: bytes, orders: Orders, open_reader: Callable[[Orders], LogReader] | None = None) -> Answer:
    """Run a task's searches. Only reads, so it may run again or twice at once. Never raises: see ``Answer``."""
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
    except Exception:  # noqa: BLE001 - a bug must reach the driver once, not be tried four times
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
    from reconciler.kafka.apart import open_log

    return open_log(orders.client, timeout_s=orders.timeout_s, memory=orders.memory)
