"""Offsets that a job keeps in a table's own transactions: texts, numbers and names. Pure; nothing is opened here.

A commit of the table may *name* offsets: a text ``{"topic":{"partition":offset}}``, as Spark
writes a Kafka source's offsets. The rows are found from the newest commit backwards:

- T1  Only a commit that can hold the job's data counts. A session's setting also marks what maintenance commits in that
      session, and a compaction beside a running batch may name offsets whose data is not in the table yet.
- T2  Where each commit names all partitions (``lists=all``), the newest one that names offsets has them all. If the one
      before it has a partition more of a topic that both name, the job does not do so, and the read is refused.
- T3  Where a commit names only what has changed (``lists=changed``), a partition's newest number counts, and all
      commits are read. If older ones have been removed, partitions may be missing, and the read is refused.
- T4  A text that cannot be read is refused: an older commit's would silently repeat work. A single number that
      cannot be read is a malformed row.

The address says whether a number is the last processed offset or the next one to read (``Number``); no table does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from reconciler.core.anchors import UNKNOWN_PARTITION, StoredOffset, TopicPartition, encodable, shown
from reconciler.core.errors import Refused
from reconciler.core.json_fields import FieldError, json_object
from reconciler.core.text import partition_of
from reconciler.places.common import malformed_row
from reconciler.places.parameters import Number
from reconciler.ports import Row

MOST_TEXT = 16 * 1024 * 1024
"""Characters of one commit's text: of a hundred thousand partitions it has three million."""


class Lists(Enum):
    """Which partitions each commit names."""

    ALL = "all"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table. ``name`` is for sentences: ``version 17``.

    ``offsets`` is what it names: JSON text, a JSON object, or None. ``at_ms``: its time, epoch ms. ``is_data``: it may
    hold the job's data; ``operation`` is what it did.
    """

    name: str
    offsets: object
    at_ms: int | None
    operation: str
    is_data: bool = True


class OlderGone(Exception):
    """Older commits have been removed, or exceed the number that may be read; the message says which."""


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """The place of offsets in a commit, and their meaning. ``within``: the keys that lead to them in its JSON.

    ``place`` names the table and the property, for sentences.
    """

    number: Number
    lists: Lists
    within: tuple[str, ...]
    place: str


# ---------------------------------------------------------------- rows


def rows_of(commits: Iterable[Commit], kept: CommitOffsets, group: str) -> list[Row]:
    """The rows that commits name, newest commit first (T1 to T4). ``commits`` may raise ``OlderGone`` at its end.

    Raises Refused for texts that cannot be read, and where rows may be missing.
    """
    walk = _Walk(kept, group)
    try:
        for commit in commits:
            if walk.takes(commit):
                return walk.rows()
    except OlderGone as gone:
        walk.refuse_missing(str(gone))
    if walk.newest is None and walk.passed_over:
        raise Refused(
            f"Only {walk.passed_over[0]} names offsets in {kept.place}, and such a commit holds no data of the job.",
            hint="Set the property where the job writes its batches, not for the whole session.",
        )
    return walk.rows()


class _Walk:
    """The commits read so far, newest first."""

    def __init__(self, kept: CommitOffsets, group: str) -> None:
        self._kept = kept
        self._group = group
        self._rows: dict[TopicPartition, Row] = {}
        self.newest: Mapping[TopicPartition, object] | None = None
        self.passed_over: list[str] = []

    def takes(self, commit: Commit) -> bool:
        """Take a commit. True if no older one is needed."""
        if commit.offsets is None:
            return False
        if not commit.is_data:
            self.passed_over.append(f"{commit.name} ({commit.operation})")
            return False
        named = self._named(commit)
        if self.newest is None:
            self.newest = named
        elif self._kept.lists is Lists.ALL:
            self._refuse_partial(self.newest, named, commit)
            return True
        for key, value in named.items():
            if key not in self._rows:
                self._rows[key] = self._row(key, value, commit)
        return False

    def rows(self) -> list[Row]:
        return [self._rows[key] for key in sorted(self._rows)]

    def _named(self, commit: Commit) -> dict[TopicPartition, object]:
        try:
            return offsets_in(commit.offsets, self._kept.within)
        except FieldError as error:
            raise Refused(
                f"The offsets in {self._kept.place}, {commit.name}, cannot be read: {error.sentence}.",
                hint='They are expected as Spark writes them, {"topic":{"0":123}}. Correct property= or field= in the '
                "store's address.",
            ) from error

    def _row(self, key: TopicPartition, value: object, commit: Commit) -> Row:
        version = f"{commit.name} {shown(value)}"
        return row_of(key, value, self._kept, self._group, version=version, place=commit.name, at_ms=commit.at_ms)

    def _refuse_partial(
        self, newest: Mapping[TopicPartition, object], named: Iterable[TopicPartition], commit: Commit
    ) -> None:
        topics = {key.topic for key in newest}
        lacking = sorted(key for key in named if key.topic in topics and key not in newest)
        if lacking:
            raise Refused(
                f"Not every commit names all partitions in {self._kept.place}: {commit.name} has {lacking[0]}, and the "
                "next one that names offsets has not.",
                hint="Write lists=changed in the store's address.",
            )

    def refuse_missing(self, gone: str) -> None:
        """Raise Refused unless the rows are known to be complete: a newest commit that names all."""
        if self.newest is not None and self._kept.lists is Lists.ALL:
            return
        if self.newest is None:
            raise Refused(
                f"No commit that is left names offsets in {self._kept.place}, and {gone}.",
                hint="If the job has run, its offsets are lost: place it by its rows (layout=columns) or by hand.",
            )
        raise Refused(
            f"Older commits may name partitions that the newer ones do not, in {self._kept.place}, and {gone}.",
            hint="If every commit of the job names all its partitions, write lists=all in the store's address.",
        )


def row_of(
    key: TopicPartition,
    value: object,
    kept: CommitOffsets,
    group: str,
    *,
    version: str,
    place: str = "",
    at_ms: int | None = None,
) -> Row:
    """The row of a kept number; malformed if it is not an offset, or not of a partition."""
    where = ", ".join(filter(None, (kept.place, place)))
    try:
        if key.partition == UNKNOWN_PARTITION:
            raise ValueError(f"{shown(value)} is not a partition's number")
        stored = StoredOffset(kept.number.stored(value), None, at_ms)
    except ValueError as error:
        return malformed_row(
            key, str(error), group=group, place=where, version=version, hint="Correct what the job writes."
        )
    return Row(key, stored, version)


def row_of_column(
    topic: object, partition: object, offset: object, kept: CommitOffsets, group: str, *, version: str
) -> Iterator[Row]:
    """The row of the largest offset that a table's rows hold of a partition; none without a topic: no job wrote it."""
    if isinstance(topic, str) and topic:
        is_number = isinstance(partition, int) and 0 <= partition < 2**31
        number, value = (partition, offset) if is_number else (UNKNOWN_PARTITION, partition)
        yield row_of(TopicPartition(topic, number), value, kept, group, version=f"{version} {value}")  # type: ignore[arg-type]


def offsets_in(found: object, within: Sequence[str] = ()) -> dict[TopicPartition, object]:
    """The numbers of a commit's JSON, by topic and partition, unchanged.

    A key that is no partition's number is under ``UNKNOWN_PARTITION``, as its own value. Raises FieldError for
    anything that is not ``{topic: {partition: …}}`` at the place that the keys ``within`` lead to.
    """
    if isinstance(found, str):
        if len(found) > MOST_TEXT:
            raise FieldError(None, f"has {len(found):,} characters")
        found = json_object(found)
    for step in within:
        if not isinstance(found, dict) or step not in found:
            raise FieldError(None, f"has no {'.'.join(within)}")
        found = found[step]
    if not isinstance(found, dict):
        raise FieldError(None, "is not a JSON object")
    named: dict[TopicPartition, object] = {}
    for topic, partitions in found.items():
        if not topic or not encodable(topic) or "\0" in topic:
            raise FieldError(None, "names a topic that cannot exist")
        if not isinstance(partitions, dict):
            raise FieldError(None, "is not offsets by topic and partition")
        for name, value in partitions.items():
            number = partition_of(name)
            key = TopicPartition(topic, UNKNOWN_PARTITION if number is None else number)
            named[key] = name if number is None else value
    return named


# ---------------------------------------------------------------- names with a group in them

GROUP, PARTITION, TOPIC = "{group}", "{partition}", "{topic}"


def fill_pattern(pattern: str, *, group: str, topic: str = "", partition: int = 0) -> str:
    """The name that a pattern gives. A placeholder within a group or topic is not replaced."""
    values = {GROUP: group, TOPIC: topic, PARTITION: str(partition)}
    return re.sub("|".join(map(re.escape, values)), lambda name: values[name[0]], pattern)
