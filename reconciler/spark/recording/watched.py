"""The Kafka source of a watched frame, known without a look at its records.

Each partition's last record is read from Kafka by the offsets in a batch's report, as ``recording`` does it
(``range_ends``). Spark only counts the batch's records, so that its report can be told from other queries'.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.checkpoints.log import Offsets
from reconciler.ports import TopicPartition
from reconciler.spark.recording.batch_range import (
    SERVERS,
    SourceRange,
    each_of,
    is_committed_only,
    looking_inside,
    unseen,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RELATION = "StreamingRelationV2"


@dataclass(frozen=True, slots=True)
class Matching:
    """The topics in whose names an expression is found, as by ``subscribePattern``: also those that come later."""

    pattern: re.Pattern[str]

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and self.pattern.search(topic) is not None


@dataclass(frozen=True, slots=True)
class Watched:
    """A source that is watched. ``committed_only``: it leaves out records of aborted transactions."""

    topics: Container[str]
    committed_only: bool

    def names(self, at: TopicPartition) -> bool:
        """Whether a report's offsets lead to the last record of this partition."""
        return at.topic in self.topics


def source_of(frame: DataFrame, topics: Iterable[str]) -> SourceRange:
    """The only source of a frame, which reads ``topics``. Raises ConfigError if it is not Spark's Kafka source."""
    if not hasattr(frame, "_jdf"):
        raise unseen("Spark Connect does not show a frame's source")
    with looking_inside("a frame's source"):
        plan: Any = frame._jdf.queryExecution().analyzed()
        leaves = [leaf for leaf in each_of(plan.collectLeaves()) if leaf.isStreaming()]
        kinds = [str(leaf.getClass().getSimpleName()) for leaf in leaves]
        if kinds != [RELATION] or str(leaves[0].sourceName()) != "kafka":
            raise unseen("the frame is not that of one Kafka source")
        options = leaves[0].extraOptions()  # finds names in any case
        ends = dict.fromkeys(((topic, 0) for topic in topics), 0)
        return SourceRange({}, ends, str(options.get(SERVERS) or ""), is_committed_only(options), options)


def ranges_of(
    sources: Iterable[tuple[Offsets | None, Offsets | None]],
    watched: Collection[Watched],
    *,
    without: Collection[str] = (),
) -> list[SourceRange]:
    """What the reported sources (start and end of each) read of the watched topics, ``without`` some."""

    def committed_only(topic: str) -> bool | None:
        said = [each.committed_only for each in watched if topic in each.topics and topic not in without]
        return any(said) if said else None  # of two on one topic, both have read what is committed

    found = []
    for starts, ends in sources:
        only = {topic: committed_only(topic) for topic in {topic for topic, _ in ends or {}}}
        for kind in (False, True):
            mine = {place: end for place, end in (ends or {}).items() if only[place[0]] is kind}
            if mine:
                found.append(SourceRange(starts or {}, mine, "", kind))
    return found
