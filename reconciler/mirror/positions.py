"""The positions of MirrorMaker's tasks, in the offsets topic of its Connect worker at the destination.

Keys are JSON ``["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"events"}]`` (the connector's name may be
any), values ``{"offset":1499}``: the last source offset whose delivery was committed. In MirrorMaker's own mode the
topic is ``mm2-offsets.ALIAS.internal``.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.core.anchors import Record
from reconciler.core.errors import NotRead, Refused, Unreachable
from reconciler.formats.json_fields import FieldError, json_value
from reconciler.mirror.reading import between
from reconciler.ports import LogReader, TopicPartition

MOST = 100_000
"""Records that are read before the end of each of the topic's partitions."""
LARGEST = 10_000
"""Bytes of a key or value. MirrorMaker's are about a hundred."""


def read_positions(reader: LogReader, alias: str) -> tuple[dict[TopicPartition, int], str]:
    """The positions by the source's partition, and the reason if there are none: failures are not raised."""
    topic = f"mm2-offsets.{alias}.internal"
    try:
        info = reader.describe((topic,)).topics.get(topic)
        if info is None:
            return {}, f'there is no topic "{topic}"'
        places = info.places
        starts, ends = reader.log_starts(places), reader.log_ends(places)
        newest: dict[TopicPartition, tuple[int, int]] = {}  # a connector of another name has a key of its own
        for place in places:
            for record in between(reader, place, max(starts[place], ends[place] - MOST), ends[place]):
                if (position := position_of(record, alias)) is not None:
                    time = record.timestamp_ms or 0
                    if time >= newest.get(position[0], (0, 0))[0]:
                        newest[position[0]] = (time, position[1])
        found = {place: position for place, (_, position) in newest.items()}
    except (NotRead, Refused, Unreachable) as error:
        return {}, f'"{topic}" could not be read: {error.message.rstrip(".")}'
    return found, "" if found else f'"{topic}" holds no position of this mirror'


def position_of(record: Record, alias: str) -> tuple[TopicPartition, int] | None:
    """The source's partition and its last delivered offset; None for every other record of the topic."""
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
    return TopicPartition(topic, partition), offset
