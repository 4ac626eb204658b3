"""The Kafka source of a watched frame, known without a look at its records.

With it the offsets in a batch's report are enough: each partition's last record is read from Kafka, as ``recording``
does it (``range_ends``), and Spark only counts the batch's records, so that its report can be told from other queries'.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.checkpoints.log import Offsets
from reconciler.config.addresses import shared_brokers
from reconciler.ports import TopicPartition
from reconciler.spark.recording.batch_range import SERVERS, SourceRange, Unseen, each_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

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


def source_of(frame: DataFrame, topics: Container[str], servers: str) -> Watched | Unseen:
    """The only source of a frame, if it is Spark's Kafka source and reads from one of ``servers``."""
    if not hasattr(frame, "_jdf"):
        return Unseen("Spark Connect does not show a frame's source")
    try:
        plan: Any = frame._jdf.queryExecution().analyzed()
        leaves = [leaf for leaf in each_of(plan.collectLeaves()) if leaf.isStreaming()]
        kinds = [str(leaf.getClass().getSimpleName()) for leaf in leaves]
        if kinds != [RELATION] or str(leaves[0].sourceName()) != "kafka":
            return Unseen("the frame is not that of one Kafka source")
        options = leaves[0].extraOptions()  # finds names in any case
        given = str(options.get(SERVERS) or "")
        committed_only = options.get("kafka.isolation.level") == "read_committed"
    except Exception as error:  # internals of Spark may differ in any way, and must not fail the job
        log.debug("the source of a frame was not found", exc_info=True)
        return Unseen(f"this version of Spark does not show a frame's source ({type(error).__name__})")
    if not shared_brokers(given, servers):
        return Unseen(f"the frame reads from {given}, which is not known to be the cluster at {servers}")
    return Watched(topics, committed_only)


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
