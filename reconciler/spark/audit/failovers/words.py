"""Sentences for people: what an audit over several failovers compares, and what it cannot know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reconciler.formats.decimal_text import some
from reconciler.ports import TopicPartition
from reconciler.spark.audit.failovers.extents import ReachedLogs, announce, gaps
from reconciler.spark.audit.failovers.result import StaysResult, empty_sides
from reconciler.spark.audit.failovers.stays import Stays
from reconciler.spark.audit.naming import Naming
from reconciler.spark.audit.words import UNIQUE_APART, of_nameless, of_since


def compared(naming: Naming) -> Iterator[str]:
    """One sentence per figure."""
    yield f"Records are distinguished by {naming.by.value}. One that is in both logs is one record."
    yield "lost: records of a log that the sink does not hold; unread: of these, those that no stay of the job read."
    yield "doubled: rows beyond " + ("the first: ids are unique." if naming.unique else "the record's copies.")
    yield "unknown rows: rows of the sink that match no record of a log."
    if naming.unique_apart:
        yield UNIQUE_APART


def unknown(found: Stays, looked: ReachedLogs, naming: Naming, result: StaysResult) -> Iterator[str]:
    """What ``result``, whose own ``unknown`` is not set yet, leaves open."""
    yield from looked.dead
    for cluster in looked.absent:
        yield f"Cluster {cluster} was not read: what only it has is not known."
    yield from empty_sides(result.clusters, result.sink)
    yield from found.assumed
    if found.undecided:
        yield f"A plan gives no offset for {some([str(at) for at in found.undecided])}: not compared from there on."
    yield from _of_nameless(naming, result)
    yield from _of_repeated(result)
    yield "The order of the rows: over several failovers it is not judged."
    yield from of_since(result.since_ms)
    yield from announce(looked.logs)
    yield from _of_gaps(gaps(found, looked.logs))


def _of_nameless(naming: Naming, result: StaysResult) -> Iterable[str]:
    nameless = [side for side in result.clusters if side.nameless]
    names = [f"cluster {side.name}" for side in nameless]
    bare = [f"cluster {side.name}" for side in nameless if not side.records]
    return of_nameless(naming, sum(side.nameless for side in nameless), names, bare, result.sink.nameless)


def _of_repeated(result: StaysResult) -> Iterator[str]:
    """Records that a log has more often than once."""
    if lost := result.totals["possibly_lost"]:
        yield (
            f"{lost:,} records may be lost: a log has them more often than the sink. A mirror may have sent them twice."
        )
    if doubled := result.totals["possibly_doubled"]:
        yield (
            f"{doubled:,} more may be doubled: a log has them more than once. They may be equal records, or records "
            "that a mirror has sent twice."
        )


def _of_gaps(missing: Sequence[TopicPartition]) -> Iterator[str]:
    if missing:
        yield (
            f"Of {some([str(at) for at in missing])} no log has all records that the job should have read after a "
            "resume offset: not compared. To leave older stays out, audit the later plans alone, or with --since."
        )
