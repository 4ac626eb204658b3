"""A check's searches as tasks for other machines: cut, sent, run there, and sent back. No Spark in here.

A task is a group of searches whose partitions have one leader, so that whoever runs it talks to one broker. It is
bytes: what it consists of is looked at only where an error can become a sentence. Only plain values come back.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from reconciler import __version__
from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.verdicts import Finding, MatchedBy, Verdict
from reconciler.engine import EngineSettings, Inquiry, Outcome, SearchResult, run
from reconciler.ports import LogReader, TopicPartition

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

FoundRow = tuple[int, str, int | None, int | None, int | None, str | None, int | None, str, int, int]
"""Number of the inquiry; the finding's fields in their order, the verdict by name; probes; rounds."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What every task needs to know, sent once to each machine, apart from the tasks: ``client`` may hold passwords.

    ``client``: librdkafka properties of the destination. ``timeout_s`` for one request, ``deadline_s`` for how long a
    task waits for brokers that are away, from its own beginning. ``version`` of the package that made the tasks.
    """

    client: Mapping[str, Any]
    timeout_s: float
    deadline_s: float
    version: str = __version__

    def __repr__(self) -> str:
        return f"Orders(client=…, timeout_s={self.timeout_s}, deadline_s={self.deadline_s}, version={self.version!r})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a task: findings, or why there are none. ``bug`` is a traceback."""

    rows: tuple[FoundRow, ...] = ()
    probes: Mapping[str, int] | None = None
    rounds: int = 0
    error: ReconcilerError | None = None
    bug: str | None = None


# ---------------------------------------------------------------- where the tasks are made


def grouped(partitions: Sequence[T], leader_of: Callable[[T], int | None], most: int) -> list[list[T]]:
    """Groups of one leader each, of ``most`` at most and of like sizes, those of different leaders in turn.

    In turn, so that machines which take groups in their order ask different brokers at a time.
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


def tasks_of(
    inquiries: Sequence[Inquiry[Finding]], leaders: Mapping[TopicPartition, int], most: int
) -> list[tuple[int, bytes]]:
    """The inquiries as (how many, bytes) tasks; each inquiry goes by its place in the sequence."""
    groups = grouped(range(len(inquiries)), lambda number: leaders.get(inquiries[number].partition), most)
    return [(len(group), pickle.dumps([(number, inquiries[number]) for number in group])) for group in groups]


def outcome_of(keys: Sequence[K], answers: Iterable[Answer]) -> Outcome[K, Finding]:
    """The tasks' answers as if one engine had run them all. Raises the first error among them."""
    found: dict[K, SearchResult[Finding]] = {}
    probes: dict[str, int] = {}
    rounds = 0
    for answer in answers:
        require(answer)
        found.update((keys[row[0]], _found(row)) for row in answer.rows)
        for kind, count in (answer.probes or {}).items():
            probes[kind] = probes.get(kind, 0) + count
        rounds = max(rounds, answer.rounds)
    return Outcome({key: found[key] for key in keys}, probes, rounds)


def require(answer: Answer) -> None:
    """Raise what went wrong in a task, if anything did: the product's own error, as the local engine would."""
    if answer.error is not None:
        raise answer.error
    if answer.bug is not None:
        raise RuntimeError(answer.bug)


# ---------------------------------------------------------------- where the tasks are run


def answered(task: bytes, orders: Orders, open_reader: Callable[[Orders], LogReader] | None = None) -> Answer:
    """Run a task's searches. Only reads, so it may run twice at a time, or again. Never raises: see ``Answer``."""
    try:
        if orders.version != __version__:
            raise ConfigError(
                f"Spark's executors have reconciler {__version__}, this program is {orders.version}.",
                hint="Install the same version in both places.",
            )
        return _run(pickle.loads(task), orders, open_reader or _reader)
    except ReconcilerError as error:
        return Answer(error=error)
    except ModuleNotFoundError as error:
        return Answer(error=missing_module(error.name or "?"))
    except Exception:  # noqa: BLE001 - a bug must reach whoever waits, once, not be tried four times
        return Answer(bug=f"in a Spark task:\n{traceback.format_exc()}")


def missing_module(name: str) -> ConfigError:
    """The executors cannot import something."""
    package = {"confluent_kafka": "confluent-kafka"}.get(name, name)
    return ConfigError(
        f'Spark\'s executors lack the Python module "{package}".',
        hint="Install reconciler with its dependencies, and the modules of python: ids, for the executors' Python "
        "(an image, spark.archives, or spark.pyspark.python).",
    )


def _run(
    numbered: Sequence[tuple[int, Inquiry[Finding]]], orders: Orders, open_reader: Callable[[Orders], LogReader]
) -> Answer:
    reader = open_reader(orders)
    try:
        settings = EngineSettings(orders.deadline_s)
        outcome = run(reader, dict(numbered), clock=time.monotonic, settings=settings)
    finally:
        reader.close()
    rows = tuple(_row(number, found) for number, found in outcome.found.items())
    return Answer(rows, dict(outcome.probes), outcome.rounds)


def _reader(orders: Orders) -> LogReader:
    from reconciler.kafka.reader import KafkaLogReader

    return KafkaLogReader(orders.client, timeout_s=orders.timeout_s)


def _row(number: int, found: SearchResult[Finding]) -> FoundRow:
    one = found.finding
    return (
        *(number, one.verdict.value, one.resume_offset, one.replay_at_most, one.replay_exact),
        *(one.matched_by and one.matched_by.value, one.record_offset, one.detail, found.probes, found.rounds),
    )


def _found(row: FoundRow) -> SearchResult[Finding]:
    _, verdict, resume, at_most, exact, matched_by, record, detail, probes, rounds = row
    by = None if matched_by is None else MatchedBy(matched_by)
    return SearchResult(Finding(Verdict(verdict), resume, at_most, exact, by, record, detail), probes, rounds)
