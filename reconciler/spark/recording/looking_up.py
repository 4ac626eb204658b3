"""The last records before a query's offsets, looked up in the cluster: for partitions whose records Spark did not name.

Those are partitions without records since the query began, and, where Spark looks for the last records itself, those
that were added since ``watch``: the observation names each partition, so it has none of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.engine import EngineSettings, Inquiry, run
from reconciler.formats.decimal_text import some
from reconciler.ports import TopicPartition
from reconciler.spark.recording.store import SourceCluster
from reconciler.spark.target import AnchorTarget
from reconciler.tracking.lookback import TrackedOffset, look_back

log = logging.getLogger(__name__)

LOOK_UP_S = 10.0


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation that names the last record of each of ``places``, of a source that reads ``topics``."""

    topics: Container[str]
    places: frozenset[TopicPartition]

    def names(self, at: TopicPartition) -> bool:
        """Whether a report has the last record of this partition."""
        return at in self.places


def added(ends: Iterable[TopicPartition], observed: Iterable[Observed]) -> set[TopicPartition]:
    """Those of these partitions whose topics are observed, and that no observation names."""
    all_of_them = list(observed)
    return {
        at
        for at in ends
        if any(at.topic in each.topics for each in all_of_them) and not any(each.names(at) for each in all_of_them)
    }


class LookUp:
    """Looks records up for one group. ``cluster`` knows the ids of the topics."""

    def __init__(self, target: AnchorTarget, cluster: SourceCluster) -> None:
        self._target, self._cluster = target, cluster
        self._done: dict[TopicPartition, int] = {}
        """The offset for which the row of each added partition was stored."""
        self._refused: set[TopicPartition] = set()
        """Partitions that were added and that the log has named."""

    def last_before(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredOffset]:
        """Rows for these offsets; one whose record cannot be found is left out. Empty if the cluster is away."""
        try:
            return self._found(places)
        except Unreachable as error:
            log.warning("the last records of %s could not be looked up: %s", some(list(map(str, places))), error)
            return {}

    def of_added(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredOffset]:
        """Rows for partitions that were added, where these offsets are new; says once which ones get no row."""
        due = {at: end for at, end in places.items() if end > 0 and self._done.get(at) != end}
        try:
            return self._found(due)
        except ReconcilerError as error:
            untold = sorted(set(due) - self._refused)
            if untold:
                self._refused.update(untold)
                log.warning(
                    "%s, added since the query began, is not stored for group %s yet, since its last record could not "
                    "be looked up: %s. If this stays so, start the query again: it then observes the partition.",
                    some(list(map(str, untold))),
                    self._target.group,
                    error,
                )
            return {}

    def stored(self, ends: Mapping[TopicPartition, int]) -> None:
        """Rows of added partitions were stored for these offsets."""
        self._done.update(ends)

    def _found(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredOffset]:
        if not places:
            return {}
        # Spark did not name these records: the texts do, and a column without a text gives no value.
        own = self._target.identity
        identity = own.texts
        if not isinstance(own.timestamp, str) and own.config_timestamp is None:
            identity = replace(identity, timestamp_of=lambda record: None)
        with closing(self._target.cluster.reader()) as reader:
            info = self._cluster.having({at.topic for at in places})
            inquiries = {}
            for at, offset in places.items():
                topic = info.topics[at.topic]
                place = TrackedOffset(offset, info.cluster_id, topic.topic_id, topic.compacted, None, clock_ms())
                inquiries[at] = Inquiry(at, partial(look_back, place, identity))
            answers = run(reader, inquiries, clock=monotonic, settings=EngineSettings(LOOK_UP_S)).found
        return {at: kept for at, answer in answers.items() if (kept := answer.finding.kept) is not None}
