"""A start that has only the offsets that the job has stored: the other partitions of its topics are looked up.

The hook contacts no cluster for the start of a job that was never moved. The job needs its cluster anyway, so it looks
there for what Spark wants to know: every partition's offset. It also sees whether this is the cluster that the stored
offsets come from.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import ConfigError, NeedsPerson, ReconcilerError
from reconciler.core.policies import StartPlace
from reconciler.core.question import StartAt
from reconciler.near import MOST_NAMES, near_topics
from reconciler.plan.start_offsets import EARLIEST, LATEST
from reconciler.ports import ClusterInfo, LogReader, TopicPartition
from reconciler.state.start import Start

TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


def complete(start: Start, client: Mapping[str, str]) -> Start:
    """The start with an offset for every partition that exists. ``client``: librdkafka properties, with the servers.

    Raises ConfigError for a topic that does not exist, NeedsPerson where the stored offsets are another cluster's or a
    deleted topic's; Unreachable or Refused.
    """
    from reconciler.kafka.reader import KafkaLogReader

    if start.new is None:
        return start
    with closing(KafkaLogReader(client, timeout_s=TIMEOUT_S, who="job's")) as reader:
        there = reader.describe(start.topics)
        whole = without_later(start, there)
        if absent := [topic for topic in whole.topics if topic not in there.topics]:
            raise ConfigError(
                f"The cluster {start.cluster} at {start.bootstrap_servers} has no topic {', '.join(absent)}.",
                hint=f"{_near(client, absent)}Correct the name, or create the topic first: Spark cannot subscribe to "
                "one that does not exist.",
            )
        return complete_from(whole, there, reader, start.new)


def without_later(start: Start, there: ClusterInfo) -> Start:
    """The start without the topics of another origin that no mirror has made yet."""
    numbered = {place.topic for place in start.offsets}
    later = {
        topic
        for topic, stream in start.topics.items()
        if topic not in there.topics and stream.origin != start.cluster and topic not in numbered
    }
    for topic in sorted(later):
        log.warning("%s does not exist on %s yet: a start after it does will read it.", topic, start.cluster)
    return replace(start, topics={topic: stream for topic, stream in start.topics.items() if topic not in later})


def complete_from(start: Start, there: ClusterInfo, reader: LogReader, new: StartAt) -> Start:
    """As ``complete``, where every topic exists."""
    _refuse_another(start, there)
    added = [place for topic in start.topics for place in there.topics[topic].places if place not in start.offsets]
    return replace(start, offsets={**start.offsets, **dict(zip(added, _new(new, reader, added), strict=True))})


def _refuse_another(start: Start, there: ClusterInfo) -> None:
    """Raise NeedsPerson if the stored offsets are in the numbering of another cluster, or of a deleted topic."""
    if start.cluster_id not in (None, there.cluster_id):
        raise NeedsPerson(
            f"The cluster at {start.bootstrap_servers} is {there.cluster_id}, and the offsets that job {start.job} has "
            f"stored are in the numbering of {start.cluster_id}.",
            hint="Correct that cluster's address under [clusters]. If it is lost, or was replaced, move the job: "
            "reconciler move --to CLUSTER.",
        )
    for topic in start.topics:
        now = real_topic_id(there.topic_id(topic))
        if now is not None and (older := [each for each in start.topic_ids.get(topic, ()) if each != now]):
            raise NeedsPerson(
                f"The topic {topic} was deleted and created again on {start.cluster}: its id is {now}, and the offsets "
                f"that job {start.job} has stored are of {', '.join(older)}, whose records are gone.",
                hint="Delete these offsets from the store, if the new topic's records are to be read from its start, "
                "and start the job once with `hook --accept new`; or store the offsets to start from.",
            )


def _new(new: StartAt, reader: LogReader, partitions: list[TopicPartition]) -> list[int]:
    """Where partitions without a stored offset start."""
    if new.place is not StartPlace.TIME or not partitions:
        return [LATEST if new.place is StartPlace.LATEST else EARLIEST] * len(partitions)
    assert new.timestamp_ms is not None
    # Where the partition holds no such record yet, its end before the question: at LATEST, Spark would skip what is
    # written until the query starts.
    ends = reader.log_ends(partitions)
    found = reader.offsets_for_times([(each, new.timestamp_ms) for each in partitions])
    return [ends[each] if offset is None else offset for each, offset in zip(partitions, found, strict=True)]


def _near(client: Mapping[str, str], absent: Sequence[str]) -> str:
    """A sentence about the topics that may be meant; empty where none is like them, or they cannot be listed."""
    from reconciler.kafka.requests import topics_of

    try:
        there = topics_of(client, timeout_s=TIMEOUT_S)
    except ReconcilerError:
        return ""
    near = sorted({each for name in absent[:MOST_NAMES] for each in near_topics(name, name, there)})[:MOST_NAMES]
    return f"It has {', '.join(near)}. " if near else ""
