"""A checkpoint as a store of offsets, which is read and never written; and its content, for people and programs.

    from reconciler.places.checkpoint.show import describe

    print(describe("/data/checkpoints/clicks").to_json())

A checkpoint belongs to one query and has no group: its rows are the query's for every group. They are the offsets that
a restart reads from. A restart repeats a last batch that is not committed, so the rows are where that batch *begins*.

Plain Python: needs no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

from reconciler.core.anchors import StoredOffset, encodable
from reconciler.core.errors import ConfigError, Refused
from reconciler.places import common
from reconciler.places.checkpoint.log import by_partition
from reconciler.places.checkpoint.reading import CopiedOffsets, copied_offsets, read_folder, read_manifest
from reconciler.places.checkpoint.restart import END, Checkpoint, Tracking
from reconciler.places.folder import Folder, open_folder
from reconciler.ports import OffsetStore, Row, TopicPartition

FORMAT = "reconciler.checkpoint/1"


@dataclass(frozen=True, slots=True)
class Description:
    """A checkpoint for people. ``is_stateful``: its query keeps state. ``cloned_from``: what it is a copy of."""

    path: str
    found: Checkpoint
    is_stateful: bool
    cloned_from: str | None

    def text_of(self, source: str) -> str | None:
        """The source's offset as written in the log."""
        line = self.found.last.source(source) if self.found.last is not None else None
        return line.text if line is not None else None

    def to_json(self) -> dict[str, Any]:
        """JSON values, format ``reconciler.checkpoint/1``."""
        found, last, late = self.found, self.found.last, self.found.behind
        return {
            "format": FORMAT,
            "path": self.path,
            "query_id": found.query_id,
            "last_batch": last.batch if last else None,
            "committed": found.committed,
            "next_batch": found.next_batch,
            "repeats": found.repeats_a_batch,
            "numbers_missing": bool(found.missing),
            "missing": [list(each) for each in found.missing],
            "offset_version": last.version if last else None,
            "planned_at_ms": last.planned_at_ms if last else None,
            "sources": [
                {
                    "name": each.name,
                    "kafka": each.start is not None or each.end is not None,
                    "text": self.text_of(each.name),
                    "start": _by_topic(each.start),
                    "end": _by_topic(each.end),
                }
                for each in found.positions
            ],
            "stateful": self.is_stateful,
            "cloned_from": self.cloned_from,
            "behind": late and {"tracking": late.tracking.name.lower(), "step_ms": late.step_ms},
        }


def describe(path: str | PathLike[str]) -> Description:
    """The checkpoint at a local path or a URL. Raises as ``read_checkpoint`` does."""
    folder = open_folder(fspath(path))
    found, cloned_from = read_folder(folder), read_manifest(folder).get("from")
    return Description(
        path=folder.shown,
        found=found,
        is_stateful=bool(folder.names("state")),
        cloned_from=cloned_from if isinstance(cloned_from, str) and encodable(cloned_from) else None,
    )


def _by_topic(offsets: Mapping[tuple[str, int], int] | None) -> dict[str, dict[str, int]] | None:
    if offsets is None:
        return None
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


class CheckpointStore(common.JobsOwnStore):
    """A checkpoint as a store. ``read`` raises what ``read_checkpoint`` raises.

    ``ends``: the rows are the end of the batch that a restart repeats; none if it repeats none.
    """

    def __init__(self, folder: Folder, address: str, *, ends: bool = False) -> None:
        self.address = address
        self._folder = folder
        self._ends = ends

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The offsets that a restart reads from, ordered by topic and partition; the same for every group.

        If two sources read one partition, the lower offset counts.
        """
        common.check_name("group's name", group)
        found, copied = read_folder(self._folder), copied_offsets(read_manifest(self._folder))
        rows = _end_rows(found) if self._ends else _start_rows(found)
        return common.rows_of_topics([_numbered(row, copied) for row in rows] if copied else rows, topics)

    def check_writable(self, group: str) -> None:
        """Raise Refused: a checkpoint also holds state that belongs to its offsets."""
        common.check_name("group's name", group)
        raise Refused(
            f"The checkpoint {self._folder.shown} is read-only; nothing was written.",
            hint="apply, or the job's hook, copies it to the plan's offsets.",
        )


def _numbered(row: Row, copied: CopiedOffsets) -> Row:
    if row.key.topic not in copied.topics:
        return row
    first = copied.first.get(row.key)
    row = replace(row, numbered_by=copied.cluster_id)
    lag = None if first is None or first.anchor is None else row.stored.offset - first.offset
    if first is None or first.anchor is None or lag is None or lag < 0 or (lag and first.anchor.is_bare):
        return row
    return replace(row, stored=replace(row.stored, anchor=first.anchor), anchor_lag=lag)


def _start_rows(found: Checkpoint) -> list[Row]:
    entry = found.starts_at
    written_at_ms = entry.planned_at_ms if entry is not None else None
    batch = "initial" if entry is None else str(entry.batch)
    starts = by_partition(position.start for position in found.positions)
    ends = by_partition(position.end for position in found.positions)
    return [
        Row(
            key,
            StoredOffset(min(offsets), None, written_at_ms, _covers_until_ms(found)),
            f"{found.query_id} {batch} {min(offsets)}",
            note=_note(found, key, offsets, ends.get(key)),
        )
        for key, offsets in sorted(starts.items())
    ]


def _covers_until_ms(found: Checkpoint) -> int | None:
    """In real-time mode an entry has the time at which its batch began, and the offsets at which it ended."""
    if found.behind is None or found.last is None or found.behind.tracking is not Tracking.REAL_TIME:
        return None
    return found.behind.written_ms if found.committed else found.last.planned_at_ms


def _end_rows(found: Checkpoint) -> list[Row]:
    """The rows of a batch's end. If two sources read one partition, the lower end counts: one starts there again."""
    if found.last is None:
        return []
    version, at_ms = f"{found.query_id} {found.last.batch}", found.last.planned_at_ms
    until_ms = found.behind.written_ms if found.behind is not None else None
    ends = by_partition(position.end for position in found.positions)
    return [
        Row(key, StoredOffset(min(end), None, at_ms, until_ms), f"{version} {min(end)}")
        for key, end in sorted(ends.items())
    ]


def _note(found: Checkpoint, key: TopicPartition, starts: Sequence[int], ends: Sequence[int] | None) -> str:
    parts = []
    if len(set(starts)) > 1:
        parts.append(f"the query reads it with {len(starts)} sources, the furthest at offset {max(starts)}")
    if found.last is not None and ends is not None and max(ends) > min(starts):
        parts.append(f"batch {found.last.batch} is not committed and is repeated up to offset {max(ends)}")
    if found.missing and found.lacks_entry_before:
        parts.append(found.missing_words())
    if found.behind is not None:
        parts.append(found.behind.words(_last_step(found, key)))
    return "; ".join(parts)


def _last_step(found: Checkpoint, key: TopicPartition) -> int | None:
    """The number of offsets by which the log's last two entries differ."""
    at = [
        max(
            (each.kafka[key.topic, key.partition] for each in entry.sources if each.kafka and key in each.kafka),
            default=None,
        )
        for entry in (found.before, found.last)
        if entry is not None
    ]
    return None if len(at) < 2 or at[0] is None or at[1] is None or at[0] < 0 else at[1] - at[0]


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``checkpoint:PATH`` or ``checkpoint:URL``; with ``?position=end``, the end of the batch that is repeated."""
    path, mark, query = address.partition(":")[2].partition("?")
    if mark and query != f"position={END}":
        raise ConfigError(
            f"A checkpoint: address takes no parameter {query.partition('=')[0]!r}.",
            hint="Write checkpoint:/path/of/checkpointLocation, with ?position=end for the end of a repeated batch.",
        )
    if not path:
        raise ConfigError(
            "A checkpoint: address names no checkpoint.", hint="Write checkpoint:/path/of/checkpointLocation."
        )
    common.check_name("path of the checkpoint", path)
    folder = open_folder(path)
    shown = f"checkpoint:{folder.shown if '://' in path else path}"
    return CheckpointStore(folder, shown + mark + query, ends=bool(mark))
