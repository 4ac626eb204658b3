"""The content of a checkpoint's folder, on any file system that fsspec opens: its logs, and the manifest of a copy.

Spark may be writing meanwhile. It renames files into place and removes old ones. Commits are listed before offsets, so
that a batch planned in between is seen as planned and not committed.

A copy's manifest says whose numbers its offsets are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, sleep
from types import MappingProxyType
from typing import TypeVar

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import NotCreated, NotNow, Refused
from reconciler.core.json_fields import FieldError
from reconciler.places.checkpoint import log, restart
from reconciler.places.checkpoint.log import OffsetEntry, SourceOffset, TornError, UnusableError
from reconciler.places.checkpoint.restart import Checkpoint, LateLog, LogEntry, behind, refuse_unusable
from reconciler.places.folder import Folder, open_folder

T = TypeVar("T")

PATIENCE_S = 15.0
"""Seconds for which a checkpoint is read again if its files vanish while they are read."""
AGAIN_S = 0.05
"""Seconds between two readings."""
MANIFEST = "_reconciler-clone.json"
"""A file in the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
BARRIER = b"This copy is not finished: do not start a query on it.\n"
"""The first line of the newest entry of a copy's offset log, while the copy is made."""


def read_checkpoint(path: str) -> Checkpoint:
    """The checkpoint at a local path or a URL that fsspec knows.

    Raises ConfigError for a URL that cannot be opened, Unreachable for files that cannot be reached, and Refused for a
    folder that is not a checkpoint, or a file in it that is not understood; the message names the file and the fault.
    """
    return read_folder(open_folder(path))


def read_folder(folder: Folder) -> Checkpoint:
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
    """One reading of a checkpoint's files."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def checkpoint(self) -> Checkpoint:
        folder = self._folder
        logs = {below: folder.names(below) for below in ("commits", "offsets")}  # in this order
        commits, batches = _batches(logs["commits"]), _batches(logs["offsets"])
        sources = folder.names("sources")
        try:
            query_id = self._parsed("metadata", log.parse_query_id, torn=_WRITE_ID)
        except FileNotFoundError:
            query_id = None
            if not batches and not sources:
                raise _no_checkpoint(folder) from None
        newest = batches[0] if batches else -1
        if commits and commits[0] > newest:
            offsets = f"offsets of no batch after {newest}" if batches else "no batch's offsets"
            raise Refused(
                f"The checkpoint {folder.shown} has committed batch {commits[0]}, and {offsets}.",
                hint="A part of it is missing: restore it whole.",
            )
        committed = newest in commits
        if committed:
            self._parsed(f"commits/{newest}", log.check_commit, torn=_repeat_batch(newest))
        last, before = self._entries(batches, committed=committed)
        try:
            begins = restart.needs_beginning(last, before, committed=committed)
            initial = dict(self._initial(sources)) if begins else {}
            found = restart.checkpoint(query_id, last, before, committed=committed, initial=initial)
            refuse_unusable(found)
        except UnusableError as err:
            raise Refused(f"The checkpoint file {folder.shown}/{err.file} {err.problem}.", hint=err.advice) from err
        except FieldError as err:
            raise _not_understood(folder, f"offsets/{newest}", err) from err
        missing = restart.gaps(batches)
        return replace(found, behind=_behind(folder, found, has_gaps=bool(missing)), missing=missing)

    def _entries(self, batches: Sequence[int], *, committed: bool) -> tuple[OffsetEntry | None, OffsetEntry | None]:
        """The newest entry and the one before it."""
        found: list[OffsetEntry] = []
        for batch in batches[:2]:
            name = f"offsets/{batch}"
            torn = None if committed or found else _plan_batch(batch, f"{self._folder.shown}/{name}")
            found.append(self._parsed(name, partial(log.parse_offsets, batch), torn=torn))
        return (found[0] if found else None), (found[1] if len(found) > 1 else None)

    def _initial(self, sources: Iterable[str]) -> Iterable[tuple[str, SourceOffset]]:
        for name in sorted(sources):
            if name.startswith(".") or "0" not in self._folder.names(f"sources/{name}"):
                continue
            yield name, self._parsed(f"sources/{name}/0", partial(log.parse_initial, name))

    def _parsed(self, name: str, parse: Callable[[bytes], T], *, torn: str | None = None) -> T:
        """The file's content. ``torn``: the advice for a file that a crash cut off; None if it must be restored."""
        data = self._folder.read(name)
        if data.startswith(BARRIER):
            raise Refused(
                f"{self._folder.shown} is an unfinished copy of a checkpoint.",
                hint="If no other process is making it, delete it, and make a new one.",
            )
        try:
            return parse(data)
        except FieldError as err:
            raise _not_understood(self._folder, name, err, torn if isinstance(err, TornError) else None) from err


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
    return sorted((n for name in names if (n := log.batch_of(name)) is not None), reverse=True)


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


# ---------------------------------------------------------------- the manifest of a copy


def read_manifest(folder: Folder) -> dict[str, object]:
    """The manifest's content; empty for an original, and where it cannot be understood."""
    try:
        return json_fields.json_object(folder.read(MANIFEST).decode())
    except (FileNotFoundError, FieldError, UnicodeDecodeError):
        return {}


@dataclass(frozen=True, slots=True)
class CopiedOffsets:
    """The cluster for which the copy was made, and the offsets at which it began there.

    Of an anchor that lags, ``first`` has the offset it was made for.
    """

    cluster_id: str
    first: Mapping[TopicPartition, StoredOffset]

    @property
    def topics(self) -> set[str]:
        """The topics that the copy reads there."""
        return {key.topic for key in self.first}


def anchors_field(first: Mapping[TopicPartition, StoredOffset]) -> list[dict[str, object]]:
    """The manifest's ``anchors``, without ids: anyone who reads the checkpoint can read it, and an id may be a name."""
    return [
        {"topic": key.topic, "partition": key.partition, **anchor_fields.dump_stored(_without_id(stored))}
        for key, stored in sorted(first.items())
    ]


def _without_id(stored: StoredOffset) -> StoredOffset:
    return stored if stored.anchor is None else replace(stored, anchor=replace(stored.anchor, id=None))


def copied_offsets(made: Mapping[str, object]) -> CopiedOffsets | None:
    """The offsets in a manifest. None if it names no cluster, or is not understood."""
    destination = made.get("destination")
    try:
        cluster = json_fields.string(destination, "cluster_id") if isinstance(destination, dict) else None
        first = dict(_first(made.get("anchors")))
    except FieldError:
        return None
    return None if cluster is None else CopiedOffsets(cluster, MappingProxyType(first))


def _first(anchors: object) -> Iterator[tuple[TopicPartition, StoredOffset]]:
    for each in anchors if isinstance(anchors, list) else ():
        if not isinstance(each, dict):
            raise FieldError("anchors", "has an entry that is not a JSON object")
        topic, partition = json_fields.string(each, "topic"), json_fields.integer(each, "partition", 0)
        stored = anchor_fields.load_stored(each)
        if topic is None or partition is None or stored is None:
            raise FieldError("anchors", "has an entry without a topic, a partition or an offset")
        yield TopicPartition(topic, partition), stored
