"""The cluster's topics, first offsets and ends, looked up for planning."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.core.errors import Changed
from reconciler.ports import ClusterInfo, LogReader, TopicPartition
from reconciler.spark.ranges.planning import LogEdges


def look(reader: LogReader, topics: Iterable[str]) -> LogEdges:
    """The topics' partitions and edges. The end is the last stable offset if the reader leaves out records of aborted
    and open transactions: a ``read_committed`` job does not pass it.

    Raises Unreachable and Refused, and Changed for a topic that was recreated meanwhile.
    """
    wanted = sorted(set(topics))
    seen = reader.describe(wanted)
    while True:
        partitions = _partitions(seen)
        if not partitions:
            return LogEdges(seen, {}, {})
        starts = reader.log_starts(partitions)
        ends = reader.log_ends(partitions)
        now = reader.describe(wanted)
        if not all(now.numbers_as(seen, topic) for topic in wanted):
            raise Changed(
                "A topic was deleted or recreated while its partitions were looked up.", hint="Run this again."
            )
        if partitions == _partitions(now):
            return LogEdges(now, starts, ends)
        seen = now  # partitions were added: they have edges, too


def _partitions(cluster: ClusterInfo) -> list[TopicPartition]:
    return [place for info in cluster.topics.values() for place in info.places]
