"""Helpers that all stores share: checking names and batches, selecting rows, comparing changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.core.anchors import StoredOffset, shown
from reconciler.core.errors import ConfigError, Refused
from reconciler.core.json_fields import INT32_MAX, INT64_MAX, INT64_MIN
from reconciler.ports import (
    UNKNOWN_PARTITION,
    Capabilities,
    Change,
    Malformed,
    OffsetReader,
    Row,
    TopicPartition,
    WriteResult,
)

KAFKA_TIMEOUT_S = 10.0
"""How long one request of a store to the Kafka cluster that it is on may take, unless the caller says."""


class ReadOnlyStore:
    """A store for callers that must not change it. Satisfies ``ports.OffsetStore``; all but reading raises Refused."""

    def __init__(self, rows: OffsetReader) -> None:
        self.capabilities = replace(rows.capabilities, writable=False)
        self.address = rows.address
        self._rows = rows

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return self._rows.read(group, topics)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        raise self._refused()

    def create(self) -> None:
        raise self._refused()

    def check_writable(self, group: str) -> None:
        raise self._refused()

    def close(self) -> None:
        self._rows.close()

    def _refused(self) -> Refused:
        return Refused(f"The store {self.address} is read-only here; nothing was written.")


class JobsOwnStore:
    """The base of stores that only their job writes to: they refuse every write, and hold nothing between calls."""

    capabilities = Capabilities(writable=False, keeps_anchors=False)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Refused: see ``check_writable``."""
        check_changes(group, changes)
        if changes:
            self.check_writable(group)
        return WriteResult()

    def create(self) -> None:
        """Nothing to do: the job creates its place."""

    @abstractmethod
    def check_writable(self, group: str) -> None:
        """Raise Refused, with the way to a correction."""

    def close(self) -> None:
        """Nothing is held between calls."""


def written_by_job(place: str) -> Refused:
    """The error for a write to ``place``, to which only its job writes."""
    return Refused(
        f"{place} is the job's own, and read-only here; nothing was written.",
        hint="Start the job by reconciler hook: it begins at the plan's offsets, and stores its own.",
    )


def timeout_s(text: str) -> float | None:
    """``timeout=`` of an address, in seconds: above 0 and up to 600; None for other text."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds <= 600 else None


def check_name(what: str, name: str) -> None:
    """Raise ConfigError for a name that some store would truncate or cannot hold.

    A NUL ends a string in C clients: ``a\\0b`` would silently mean the group ``a``.
    """
    if not name:
        raise ConfigError(f"The {what} is empty.", hint="Name it in the configuration.")
    try:
        name.encode()
    except UnicodeEncodeError as err:
        raise ConfigError(f"The {what} {name!a} is not valid Unicode.", hint="Correct the name.") from err
    if "\0" in name:
        raise ConfigError(f"The {what} {name!a} has a NUL character in it.", hint="Correct the name.")


def check_group(group: str, of_group: str | None, place: str, *, why: str = "") -> None:
    """Raise ConfigError for a group that ``place`` does not serve: it serves ``of_group`` alone (None: any group)."""
    check_name("group's name", group)
    if of_group not in (None, group):
        raise ConfigError(
            f"The offsets in {place} are those of group {of_group!r}, and group {group!r} is asked for{why}.",
            hint="Correct the job's group, or of_group in the store's address.",
        )


def check_changes(group: str, changes: Sequence[Change]) -> None:
    """Raise ConfigError for names no store can hold, ValueError for a batch no caller should build."""
    check_name("group's name", group)
    seen: set[TopicPartition] = set()
    for change in changes:
        check_name("topic's name", change.key.topic)
        if change.key in seen:
            raise ValueError(f"two changes for {change.key} in one batch")
        seen.add(change.key)
        if not 0 <= change.key.partition <= INT32_MAX:
            raise ValueError(f"{change.key.partition} is not a partition's number")
        if not INT64_MIN <= change.new.offset <= INT64_MAX:
            raise ValueError(f"{change.new.offset} is not an offset")


def with_time(change: Change, now_ms: int) -> StoredOffset:
    """The new row with its time of writing: its own if it has one (an import), or is to have none, else now."""
    new = change.new
    return new if new.written_at_ms is not None or change.undated else replace(new, written_at_ms=now_ms)


def malformed_row(
    key: TopicPartition, problem: str, *, group: str, place: str, version: str = "", hint: str = ""
) -> Row:
    """The row of ``key`` that cannot be read. ``problem`` is a clause; ``place`` names the store."""
    which = key.topic if key.partition == UNKNOWN_PARTITION else str(key)
    message = f"The row of group {group!a} for {which!a} in {place} cannot be read: {problem}."
    return Row(key, Malformed(message, hint or "Correct or delete the row."), version)


def unreadable_row(key: TopicPartition, error: Refused, version: str = "") -> Row:
    """The row of ``key`` for which ``error`` was raised."""
    return Row(key, Malformed(error.message, error.hint or ""), version)


def partition_of(value: object) -> int:
    """``value`` as a partition's number. Raises ValueError for any other value."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
        raise ValueError(f"{shown(value)} is not a partition's number")
    return value


def wanted_topics(topics: Iterable[str] | None) -> frozenset[str] | None:
    """The topics to read as a set, None for all of them."""
    return None if topics is None else frozenset(topics)


def rows_of_topics(rows: Iterable[Row], topics: Iterable[str] | None) -> list[Row]:
    """The rows of these topics (None: of all), ordered by topic and partition."""
    wanted = wanted_topics(topics)
    return sorted((row for row in rows if wanted is None or row.key.topic in wanted), key=lambda row: row.key)


def result_of(changes: Sequence[Change], lost: Collection[TopicPartition] = ()) -> WriteResult:
    """All of them were written but the ``lost``, which are conflicts; both in the batch's order."""
    keys, lost = [change.key for change in changes], frozenset(lost)
    return WriteResult(tuple(key for key in keys if key not in lost), tuple(key for key in keys if key in lost))


def conflicts(changes: Sequence[Change], versions: Mapping[TopicPartition, str]) -> tuple[TopicPartition, ...]:
    """Keys whose row is no longer at the expected version; ``versions`` are those of the existing rows."""
    return tuple(change.key for change in changes if versions.get(change.key) != change.expected)


def join_notes(*notes: str) -> str:
    """A row's remarks as one."""
    return "; ".join(filter(None, notes))
