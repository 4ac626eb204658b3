"""The positions of MirrorMaker's tasks, in the offsets topic of its Connect worker at the destination.

Keys are JSON ``["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"events"}]`` (the connector's name may be
any), values ``{"offset":1499}``: the last source offset whose delivery was committed. In MirrorMaker's own mode the
topic is ``mm2-offsets.ALIAS.internal``; of another worker it has the name that its ``offset.storage.topic`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.anchors import Record
from reconciler.core.errors import NotRead, Refused, Unreachable
from reconciler.core.json_fields import FieldError, json_value
from reconciler.kafka.mirror.reading import between
from reconciler.ports import LogReader, TopicPartition

MOST = 100_000
"""Records that are read before the end of each of the topic's partitions."""
LARGEST = 10_000
"""Bytes of a key or value. MirrorMaker's are about a hundred."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The last delivered offset of each of the source's partitions; ``why_none`` if there is none."""

    delivered: Mapping[TopicPartition, int]
    why_none: str = ""


def usual_topics(alias: str) -> tuple[str, ...]:
    """The default names of such topics: of MirrorMaker's own mode, of Strimzi's resources, and of Kafka's files."""
    worker = ("mirrormaker2-cluster-offsets", "connect-cluster-offsets", "connect-offsets")
    return (f"mm2-offsets.{alias}.internal", *worker)


def read_positions(reader: LogReader, alias: str, topics: Sequence[str]) -> Positions:
    """The positions that Connect committed for the mirror of ``alias``, in the first of ``topics`` that has any.

    Failures are not raised: they are the reason why there are none. Each topic is asked for on its own, since this user
    may be allowed to read one of them only.
    """
    reasons = []
    for topic in topics:
        try:
            info = reader.describe((topic,)).topics.get(topic)
            places = info.places if info is not None else []
            found = newest_positions(_last_records(reader, places), alias)
        except (NotRead, Refused, Unreachable) as error:
            reasons.append(f'"{topic}" could not be read: {error.message.rstrip(".")}')
            continue
        if found:
            return Positions(found)
        reasons.append(f'there is no topic "{topic}"' if info is None else f'"{topic}" has no position of this mirror')
    return Positions({}, reasons[0] if reasons else "")


def _last_records(reader: LogReader, places: Sequence[TopicPartition]) -> Iterator[Record]:
    starts, ends = reader.log_starts(places), reader.log_ends(places)
    for place in places:
        yield from between(reader, place, max(starts[place], ends[place] - MOST), ends[place])


def newest_positions(records: Iterable[Record], alias: str) -> dict[TopicPartition, int]:
    """The newest position of each of the source's partitions: connectors of other names have keys of their own."""
    found: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    for record in records:
        position, time_ms = position_of(record, alias), record.timestamp_ms or 0
        if position is not None and time_ms >= times.get(position.partition, 0):
            found[position.partition], times[position.partition] = position.offset, time_ms
    return found


class MirrorPosition(NamedTuple):
    """A partition of the source, and the last offset of it that was delivered."""

    partition: TopicPartition
    offset: int


def position_of(record: Record, alias: str) -> MirrorPosition | None:
    """The position that a record holds; None for every other record of the topic."""
    if record.key is None or record.value is None or max(len(record.key), len(record.value)) > LARGEST:
        return None
    try:
        key, value = json_value(record.key.decode()), json_value(record.value.decode())
    except (FieldError, UnicodeDecodeError):
        return None
    where = key[1] if isinstance(key, list) and len(key) == 2 else None
    if not isinstance(where, Mapping) or not isinstance(value, Mapping):
        return None
    topic, partition, offset = where.get("topic"), where.get("partition"), value.get("offset")
    if where.get("cluster") != alias or not isinstance(topic, str):
        return None
    if type(partition) is not int or type(offset) is not int or partition < 0 or offset < 0:
        return None
    return MirrorPosition(TopicPartition(topic, partition), offset)
