"""Numbers of a group that may be a mirror's, or of another cluster: no anchor is looked up for them.

A source may be the destination of an earlier failover: a group that was corrected there, and a mirror whose group sync
commits its own numbers as long as no consumer has joined. An anchor for such a number would prove it to every later
check, which could then skip (``core.anchored.overwritten``). The group's checkpoints there name the mirror's numbers.

Only a topic's name tells whose copy it is, so this needs the default topic policy: ``a.events`` is of the mirror from
``a``. A kept anchor is dated by its record if it was looked up, and later if ``apply`` wrote it with a correction.
"""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.mirror.commits import named_by_mirror
from reconciler.mirror.topics import checkpoints_topic
from reconciler.ports import LogReader, Row, TopicPartition
from reconciler.stores.paired import NOTHING
from reconciler.tracking.job import TrackedJob

OTHERS = "its anchor is another cluster's: a mirror has translated the offset, or it was imported and not corrected yet"


def put_by_mirror(tracked: TrackedJob, reader: LogReader, separators: Iterable[str]) -> dict[TopicPartition, str]:
    """The partitions whose number may be a mirror's, each with the reason. Reads checkpoints only where it must."""
    if not tracked.certain or tracked.cluster is None:
        return {}
    here, found = tracked.cluster.cluster_id, dict[TopicPartition, str]()
    asked: dict[str, list[TopicPartition]] = {}
    for key, row in tracked.rows.items():
        if row.stored.cluster_id not in (None, here):
            found[key] = OTHERS
        elif _is_behind_correction(row, tracked.kept.get(key, NOTHING).main, here):
            asked.setdefault(key.topic, []).append(key)
    for topic, keys in asked.items():
        names = tuple(dict.fromkeys(name for mark in separators for name in _checkpoints_beside(topic, mark)))
        if names:
            numbers = {key: tracked.rows[key].stored.offset for key in keys}
            found |= named_by_mirror(numbers, tracked.job.group, reader, names)
    return found


def _is_behind_correction(row: Row, main: Row | None, here: str) -> bool:
    """True for a bare number that is later than one that ``apply`` wrote at this cluster."""
    anchor = None if main is None else main.stored.anchor
    if main is None or anchor is None or row.stored.anchor is not None:
        return False
    if anchor.cluster_id != here or row.stored.offset <= main.stored.offset:
        return False
    return anchor.timestamp_ms is None or (main.stored.written_at_ms or 0) > anchor.timestamp_ms


def _checkpoints_beside(topic: str, mark: str) -> Iterable[str]:
    """The names of checkpoints' topics of the mirrors that may have made this topic."""
    parts = topic.split(mark)
    return (checkpoints_topic(mark.join(parts[:end]), mark) for end in range(1, len(parts)))
