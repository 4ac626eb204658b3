"""Where each of a query's several Kafka sources ends: of two in one partition, the one that is behind decides.

Both formats of Spark's offset log: v2, which named sources need (4.2), has no sequence of offsets.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.errors import ConfigError
from reconciler.spark.recording import batch_range
from reconciler.spark.recording.batch_range import SourceRange, source_ranges
from tests.spark.recording.test_held_back import Node, query
from tests.spark.recording.world import Sequenced


class Unsupported(Exception):
    """What Py4J raises where Spark throws an UnsupportedOperationException."""


def kind(name: str) -> Any:
    return lambda: SimpleNamespace(getSimpleName=lambda: name)


def some(value: Any) -> Any:
    return SimpleNamespace(isDefined=lambda: True, isEmpty=lambda: False, get=lambda: value)


def source(end: int) -> Any:
    return some(SimpleNamespace(json=lambda: f'{{"events":{{"0":{end}}}}}'))


def offset_seq(*ends: int) -> Any:
    """As in format v1 (``OffsetSeq``)."""
    return SimpleNamespace(getClass=kind("OffsetSeq"), offsets=lambda: Sequenced(source(end) for end in ends))


def offset_map(*ends: int) -> Any:
    """As in format v2 (``OffsetMap``, by javap and in a running query of 4.2.1): ``values`` have no order."""

    def offsets() -> Any:
        raise Unsupported("OffsetMap does not support sequence-based offsets access. Use offsetsMap directly.")

    values = SimpleNamespace(toSeq=lambda: Sequenced(source(end) for end in ends))
    return SimpleNamespace(
        getClass=kind("OffsetMap"), offsets=offsets, offsetsMap=lambda: SimpleNamespace(values=lambda: values)
    )


def running(planned: Any, *, sources: int = 2, logged: int = 7) -> Any:
    """A query in its batch 7, whose offset log is at batch ``logged``."""
    made, leaf = query(Node()), SimpleNamespace(isStreaming=lambda: True, getClass=kind("LocalRelation"))
    table = SimpleNamespace(isStreaming=lambda: False)
    made.lastExecution().currentBatchId = lambda: 7
    made.lastExecution().toRdd = lambda: SimpleNamespace(id=lambda: 1)
    made.lastExecution().logical = lambda: SimpleNamespace(collectLeaves=lambda: Sequenced([leaf] * sources + [table]))
    entry = SimpleNamespace(_1=lambda: logged, _2=lambda: planned)
    made.offsetLog = lambda: SimpleNamespace(getLatest=lambda: some(entry))
    return made


SHOWN = SimpleNamespace(getClass=kind("LogicalRDD"), rdd=lambda: SimpleNamespace(id=lambda: 1))
BATCH: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(logical=lambda: SHOWN)))


def ranges_in(monkeypatch: pytest.MonkeyPatch, now: Any) -> list[SourceRange]:
    monkeypatch.setattr(batch_range, "running_query", lambda batch: now)
    return source_ranges(BATCH)


@pytest.mark.parametrize("planned", [offset_seq, offset_map])
def test_the_end_of_each_of_several_sources_is_known(monkeypatch: pytest.MonkeyPatch, planned: Any) -> None:
    found = ranges_in(monkeypatch, running(planned(10, 3)))
    assert [each.ends for each in found] == [{("events", 0): 10}, {("events", 0): 3}]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (running(offset_map(10, 3), logged=6), "asynchronous progress tracking"),
        (running(SimpleNamespace(getClass=kind("SomethingNew"))), "this version of Spark does not show"),
    ],
)
def test_a_batch_is_refused_while_the_ends_of_several_sources_are_unknown(
    monkeypatch: pytest.MonkeyPatch, now: Any, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        ranges_in(monkeypatch, now)


@pytest.mark.parametrize("planned", [offset_seq(10), SimpleNamespace(getClass=kind("SomethingNew"))])
def test_a_query_of_one_source_needs_no_look_into_the_offset_log(monkeypatch: pytest.MonkeyPatch, planned: Any) -> None:
    assert ranges_in(monkeypatch, running(planned, sources=1, logged=6)) == []
