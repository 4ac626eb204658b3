"""The offsets of a Structured Streaming checkpoint, read and never written, on any file system that fsspec opens.

A checkpoint belongs to one query and has no group: its rows are the query's for every group. They are the offsets that
a restart reads from. A restart repeats a last batch that is not committed, so the rows are where that batch *begins*;
``read_checkpoint`` also returns where it ends, and everything else that the checkpoint holds.

Spark may be writing meanwhile. It renames files into place and removes old ones. Commits are listed before offsets, so
that a batch planned in between is seen as planned and not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic, sleep
from typing import TypeVar

from reconciler.clock import zoned_ms
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, NotCreated, NotNow, Refused
from reconciler.folder import Folder, LocalFolder, open_folder
from reconciler.formats.checkpoint import checksum, layout
from reconciler.formats.checkpoint.layout import Checkpoint, OffsetEntry, SourceOffset
from reconciler.formats.checkpoint.manifest import BARRIER, MANIFEST, CopiedOffsets, parse_copied
from reconciler.formats.checkpoint.progress import LateLog, LogEntry, Tracking, behind
from reconciler.formats.checkpoint.readings import refuse_unusable
from reconciler.formats.checkpoint.text import TornError, UnusableError
from reconciler.formats.json_fields import FieldError
from reconciler.ports import Numbering, OffsetStore, Row, TopicPartition
from reconciler.stores import common

T = TypeVar("T")

PATIENCE_S = 15.0
"""Seconds for which a checkpoint is read again if its files vanish while they are read."""
AGAIN_S = 0.05
"""Seconds between two readings."""


def read_checkpoint(path: str) -> Checkpoint:
    """The checkpoint at a local path or a URL that fsspec knows.

    Raises ConfigError for a URL that cannot be opened, Unreachable for files that cannot be reached, and Refused for a
    folder that is not a checkpoint, or a file in it that is not understood; the message names the file and the fault.
    """
    return _read(open_folder(path))


def _read(folder: Folder) -> Checkpoint:
    began = monotonic()
    while True:
        try:
            return _Reading(folder).checkpoint()
        except FileNotFoundError as err:  # listed, then removed: the running query deletes old batches
            if monotonic() - began > PATIENCE_S:
                raise NotNow(
                    f"Files of the checkpoint {folder.shown} vanish while they are read ({err}).",
                    hint="Stop the query, then run this again.",
                ) from err
            sleep(AGAIN_S)


class _Reading:
    """One reading of a checkpoint's files. ``doubts`` as in ``Checkpoint``."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._doubts: list[str] = []

    def checkpoint(self) -> Checkpoint:
        folder = self._folder
        logs = {below: folder.names(below) for below in ("commits", "offsets")}  # in this order
        commits, batches = _batches(logs["commits"]), _batches(logs["offsets"])
        sources = folder.names("sources")
        try:
            query_id = self._parsed("metadata", layout.parse_query_id, torn=_WRITE_ID)
        except FileNotFoundError:
            query_id = None
            if not batches and not sources:
                raise _no_checkpoint(folder) from None
        newest = batches[0] if batches else -1
        for below, names in logs.items():
            self._refuse_odd_names(below, names, newest)
        if commits and commits[0] > newest:
            offsets = f"offsets of no batch after {newest}" if batches else "no batch's offsets"
            raise Refused(
                f"The checkpoint {folder.shown} has committed batch {commits[0]}, and {offsets}.",
                hint="A part of it is missing: restore it whole.",
            )
        committed = newest in commits
        if committed:
            self._parsed(f"commits/{newest}", layout.check_commit, torn=_repeat_batch(newest))
        last, before = self._entries(batches, committed=committed)
        try:
            begins = layout.needs_beginning(last, before, committed=committed)
            initial = dict(self._initial(sources)) if begins else {}
            found = layout.checkpoint(query_id, last, before, committed=committed, initial=initial)
            refuse_unusable(found)
        except UnusableError as err:
            raise Refused(f"The checkpoint file {folder.shown}/{err.file} {err.problem}.", hint=err.advice) from err
        except FieldError as err:
            raise _not_understood(folder, f"offsets/{newest}", err) from err
        missing = layout.gaps(batches)
        return replace(
            found, behind=_behind(folder, found, has_gaps=bool(missing)), missing=missing, doubts=tuple(self._doubts)
        )

    def _refuse_odd_names(self, below: str, names: Iterable[str], newest: int) -> None:
        for name in names:
            number = layout.odd_batch_of(name)
            if number is not None and number > newest:
                raise Refused(
                    f"Spark takes the file {self._folder.shown}/{below}/{name} for batch {number}, and does not start.",
                    hint=f"If it is a copy that a person made, move it out of {below}.",
                )

    def _entries(self, batches: Sequence[int], *, committed: bool) -> tuple[OffsetEntry | None, OffsetEntry | None]:
        """The newest entry and the one before it."""
        found: list[OffsetEntry] = []
        for batch in batches[:2]:
            name = f"offsets/{batch}"
            torn = None if committed or found else _plan_batch(batch, f"{self._folder.shown}/{name}")
            found.append(self._parsed(name, partial(layout.parse_offsets, batch), torn=torn))
        return (found[0] if found else None), (found[1] if len(found) > 1 else None)

    def _initial(self, sources: Iterable[str]) -> Iterable[tuple[str, SourceOffset]]:
        for name in sorted(sources):
            if name.startswith(".") or "0" not in self._folder.names(f"sources/{name}"):
                continue
            yield name, self._parsed(f"sources/{name}/0", partial(layout.parse_initial, name))

    def _parsed(self, name: str, parse: Callable[[bytes], T], *, torn: str | None = None) -> T:
        """The file's content. ``torn``: the advice for a file that a crash cut off; None if it must be restored."""
        data = self._folder.read(name)
        if data.startswith(BARRIER):
            raise Refused(
                f"{self._folder.shown} is an unfinished copy of a checkpoint.",
                hint="If no other process is making it, delete it, and make a new one.",
            )
        if isinstance(self._folder, LocalFolder):
            self._compare_checksum(name, data)
        try:
            return parse(data)
        except FieldError as err:
            raise _not_understood(self._folder, name, err, torn if isinstance(err, TornError) else None) from err

    def _compare_checksum(self, name: str, data: bytes) -> None:
        beside = checksum.name_of(name)
        with suppress(FileNotFoundError):
            if not checksum.fits(data, self._folder.read(beside)):
                self._doubts.append(
                    f"{name} does not fit its checksum {beside}: it was edited or damaged. Spark reads it, unless it "
                    "is set to FileSystemBasedCheckpointFileManager: then remove the checksum"
                )


def _behind(folder: Folder, found: Checkpoint, *, has_gaps: bool) -> LateLog | None:
    if found.last is None or found.before is None:
        return None
    last, before = (
        # Gaps are proof enough, and a file system elsewhere is asked no more than needed.
        LogEntry(each.planned_at_ms, None if has_gaps else folder.written_ms(f"offsets/{each.batch}"))
        for each in (found.last, found.before)
    )
    return behind(found.last.batch, last, before, has_gaps=has_gaps)


def _batches(names: Iterable[str]) -> list[int]:
    """The numbers of the batches among the names of files, newest first."""
    return sorted((n for name in names if (n := layout.batch_of(name)) is not None), reverse=True)


_WRITE_ID = """Write it again, as {"id":"ID"}, with the query's id from Spark's log."""


def _plan_batch(batch: int, file: str) -> str:
    return (
        f"If a crash left it so, batch {batch} was never begun, as far as this log shows: see that no sink has that "
        f"batch, then remove {file}, and Spark plans it again."
    )


def _repeat_batch(batch: int) -> str:
    return f"If a crash left it so, remove it: Spark then repeats batch {batch}."


def _not_understood(folder: Folder, name: str, err: FieldError, advice: str | None = None) -> Refused:
    return Refused(
        f"The checkpoint file {folder.shown}/{name} is not understood: {err.sentence}.",
        hint=advice
        or "If Spark reads it, a newer release of this product may as well; if not, restore the checkpoint.",
    )


def _no_checkpoint(folder: Folder) -> NotCreated:
    what = "is no checkpoint of a streaming query" if folder.exists() else "does not exist"
    return NotCreated(
        f"{folder.shown} {what}.",
        hint="Give the query's own checkpointLocation: the folder that has offsets, commits and sources in it.",
    )


class CheckpointStore(common.JobsOwnStore):
    """A checkpoint as a store. Every method raises what ``read_checkpoint`` raises.

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
        found, copied = _read(self._folder), _copied(self._folder)
        rows = _end_rows(found) if self._ends else _start_rows(found)
        return common.of_topics([_numbered(row, copied) for row in rows] if copied else rows, topics)

    def check_writable(self, group: str) -> None:
        """Raise Refused: a checkpoint also holds state that belongs to its offsets."""
        common.check_name("group's name", group)
        raise Refused(
            f"The checkpoint {self._folder.shown} is read-only; nothing was written.",
            hint="Copy it to the plan's offsets: reconciler checkpoint clone PATH NEW_PATH --plan PLAN.",
        )


def _copied(folder: Folder) -> CopiedOffsets | None:
    """What a copy says of itself; None for an original, and where the manifest cannot be understood."""
    try:
        return parse_copied(folder.read(MANIFEST).decode())
    except (FileNotFoundError, FieldError, UnicodeDecodeError):
        return None


def _numbered(row: Row, copied: CopiedOffsets) -> Row:
    if row.key.topic not in copied.topics:
        return row
    first = copied.first.get(row.key)
    made_ms = zoned_ms(copied.made_at)
    row = replace(row, numbering=Numbering(copied.cluster_id, made_ms, first))
    lag = None if first is None or first.anchor is None else row.stored.offset - first.offset
    if first is None or first.anchor is None or lag is None or lag < 0 or (lag and first.anchor.is_bare):
        return row
    # Without an [anchors] store this one is all there is. With it, ``paired`` chooses among those that are kept, too.
    return replace(row, stored=replace(row.stored, anchor=first.anchor), anchor_lag=lag, anchored_ms=made_ms)


def _start_rows(found: Checkpoint) -> list[Row]:
    entry = found.starts_at
    written_at_ms = entry.planned_at_ms if entry is not None else None
    batch = "initial" if entry is None else str(entry.batch)
    starts = layout.by_partition(position.start for position in found.positions)
    ends = layout.by_partition(position.end for position in found.positions)
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
    ends = layout.by_partition(position.end for position in found.positions)
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
    return "; ".join([*parts, *found.doubts])


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
    if mark and query != f"position={layout.END}":
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
