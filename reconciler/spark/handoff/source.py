"""A start at the source: the job's stored offsets, and all other partitions of its topics.

The hook needs no cluster for a start at the source. The job needs the source anyway, so it looks there for what Spark
wants to know: every partition's offset. It also sees whether this is the cluster that the stored offsets come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.policies import StartPlace
from reconciler.formats.start import JobStart
from reconciler.ports import LogReader, TopicPartition
from reconciler.spark.handoff.cluster import NO_TOPIC, TIMEOUT_S, near_topics_of
from reconciler.spark.handoff.planned import EARLIEST, LATEST, Offsets


def complete(start: JobStart, client: Mapping[str, str]) -> Offsets:
    """An offset for every partition of the job's topics at the source; those without a stored one start as new.

    Raises ConfigError for a topic that does not exist, NeedsPerson where the stored offsets are another cluster's or a
    deleted topic's or, for a job that is not called new, where there is none; Unreachable or Refused.
    """
    from reconciler.kafka.reader import KafkaLogReader

    with closing(KafkaLogReader(client, timeout_s=TIMEOUT_S, who="job's")) as reader:
        return complete_from(start, reader, client)


def complete_from(start: JobStart, reader: LogReader, client: Mapping[str, str]) -> Offsets:
    """As ``complete``, by a reader of the source."""
    there = reader.describe(start.topics)
    stored, clusters, ids = _stored(start, client)
    if others := sorted(clusters - {there.cluster_id}):
        raise NeedsPerson(
            f"The cluster at {start.bootstrap_servers} is {there.cluster_id}, and the offsets that job {start.job} has "
            f"stored are in the numbering of {', '.join(others)}.",
            hint="Correct that cluster's address under [clusters]. If it is lost, or was replaced, move the job: "
            "reconciler move --to CLUSTER.",
        )
    if absent := [topic for topic in start.topics if topic not in there.topics]:
        raise ConfigError(
            f"The source at {start.bootstrap_servers} has no topic {', '.join(absent)}.",
            hint=f"{near_topics_of(client, absent)}{NO_TOPIC}",
        )
    for topic in start.topics:
        now = real_topic_id(there.topic_id(topic))
        if now is not None and (older := [each for each in ids.get(topic, ()) if each != now]):
            raise NeedsPerson(
                f"The topic {topic} was deleted and created again at the source: its id is {now}, and the offsets that "
                f"job {start.job} has stored are of {', '.join(older)}, whose records are gone.",
                hint="Delete these offsets from the store, if the new topic's records are to be read from its start, "
                "and start the job once with `hook --accept new`; or store the offsets to start from.",
            )
    new = [place for topic in start.topics for place in there.topics[topic].places if place not in stored]
    offsets = stored | dict(zip(new, _new(start, reader, new), strict=True))
    found: Offsets = {topic: {} for topic in start.topics}
    for place in sorted(offsets):
        if place.topic in found:
            found[place.topic][str(place.partition)] = offsets[place]
    return found


def _stored(
    start: JobStart, client: Mapping[str, str]
) -> tuple[dict[TopicPartition, int], set[str], Mapping[str, tuple[str, ...]]]:
    """The stored offsets, and the clusters and (by topic) the topics' ids in whose numbering they are."""
    if start.store is None:
        handed = {
            TopicPartition(topic, int(number)): at for topic, of in start.offsets.items() for number, at in of.items()
        }
        return handed, set() if start.cluster_id is None else {start.cluster_id}, start.topic_ids
    from reconciler.failover.selection import topic_ids
    from reconciler.stores.registry import open_store

    with closing(open_store(start.store, kafka_client=client)) as store:
        rows = [row for row in store.read(start.group, start.topics) if not row.stored.is_sentinel]
    if not rows and not start.may_be_new:
        raise NeedsPerson(
            f"{start.store} has no offset of group {start.group} at the source, and job {start.job} is not called new.",
            hint="Correct the group. If the job is new, start it once with `hook --accept new`, or write "
            'new = "earliest" in its [[jobs]] table until it has stored its first offsets.',
        )
    anchors = [row.stored.anchor for row in rows if row.stored.anchor is not None]
    clusters = {anchor.cluster_id for anchor in anchors if anchor.cluster_id is not None}
    return {row.key: row.stored.offset for row in rows}, clusters, topic_ids(rows)


def _new(start: JobStart, reader: LogReader, partitions: list[TopicPartition]) -> list[int]:
    """Where partitions without a stored offset start."""
    if start.new.place is not StartPlace.TIME or not partitions:
        return [LATEST if start.new.place is StartPlace.LATEST else EARLIEST] * len(partitions)
    assert start.new.timestamp_ms is not None
    # Where the partition holds no such record yet, its end before the question: at LATEST, Spark would skip what is
    # written until the query starts.
    ends = reader.log_ends(partitions)
    found = reader.offsets_for_times([(each, start.new.timestamp_ms) for each in partitions])
    return [ends[each] if offset is None else offset for each, offset in zip(partitions, found, strict=True)]
