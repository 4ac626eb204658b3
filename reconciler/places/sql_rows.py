"""The tables of this product's own SQL stores: their columns, and rows to and from them. Pure; no connection here.

``reconciler_offsets`` holds the rows, and ``reconciler_store`` one random name of the store. A row's version is that
name and the number of the change that made it, so that no version ever returns, even when the store is deleted and
recreated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from reconciler.core.anchors import Anchor, Names, StoredOffset, shown
from reconciler.core.errors import Refused
from reconciler.core.json_fields import INT32_MAX
from reconciler.places.common import malformed_row, partition_of
from reconciler.ports import UNKNOWN_PARTITION, Row, TopicPartition

MAX_CELL = 16 * 1024 * 1024
"""Bytes or characters of one value: more than a record's key has anywhere."""

COLUMN_TYPES: Mapping[str, type] = {
    "stored_offset": int,
    "names": str,
    "anchor_offset": int,
    "timestamp_ms": int,
    "id": bytes,
    "fingerprint": str,
    "cluster_id": str,
    "topic_id": str,
    "written_at_ms": int,
    "stay": int,
}
COLUMNS = tuple(COLUMN_TYPES)
_LONG = frozenset({str, bytes})


class Kind(Enum):
    """The kind of database that a store of this product finds."""

    OURS = "ours"
    EMPTY = "empty"
    NEWER = "newer"
    FOREIGN = "foreign"


def made_by_newer(store: str) -> Refused:
    """The error for a store that this version must not touch."""
    return Refused(
        f"The offset store {store} was made by a newer version of this product.",
        hint="Upgrade this installation to at least that version.",
    )


def to_columns(stored: StoredOffset, stay: int | None = None) -> tuple[object, ...]:
    """The values of ``COLUMNS``. ``names`` is null exactly where there is no anchor."""
    anchor = stored.anchor
    if anchor is None:
        return (stored.offset, *(None,) * (len(COLUMNS) - 3), stored.written_at_ms, stay)
    return (
        stored.offset,
        anchor.names.value,
        anchor.offset,
        anchor.timestamp_ms,
        anchor.id,
        anchor.fingerprint,
        anchor.cluster_id,
        anchor.topic_id,
        stored.written_at_ms,
        stay,
    )


def from_columns(values: Sequence[Any]) -> tuple[StoredOffset, int | None]:
    """The stored offset and its stay, as ``to_columns`` had them. Raises ValueError for values that it never makes."""
    offset, names, anchor_offset, timestamp_ms, id_bytes, fingerprint, cluster_id, topic_id, at_ms, stay = values
    if offset is None:
        raise ValueError("it has no offset")
    if stay is not None and (stay.__class__ is not int or stay < 1):
        raise ValueError(f"{shown(stay)} is not a stay's number")
    for name, value in zip(COLUMNS, values, strict=True):
        if value.__class__ in _LONG and len(value) > MAX_CELL:
            raise ValueError(f"{name} has {len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}")
    if names is None:
        if any(value is not None for value in values[2:-2]):
            raise ValueError("there are values of an anchor, and names does not say which record they name")
        return StoredOffset(offset, None, at_ms), stay
    anchor = Anchor(
        offset=anchor_offset,
        timestamp_ms=timestamp_ms,
        id=id_bytes,
        fingerprint=fingerprint,
        cluster_id=cluster_id,
        topic_id=topic_id,
        names=Names(names),
    )
    return StoredOffset(offset, anchor, at_ms), stay


def version(name: str, change: int) -> str:
    """The version of a row, from the store's name and the change that made the row."""
    return f"{name}-{change}"


class Decoder:
    """Rows from columns, whatever these hold: another program may have written them. ``place`` names the store."""

    def __init__(self, place: str) -> None:
        self._place = place

    def row(self, name: str, group: str, topic: str, partition: object, change: object, *values: object) -> Row:
        """A row of ``reconciler_offsets``; ``values`` are ``COLUMNS``."""
        key, token = TopicPartition(topic, UNKNOWN_PARTITION), f"{name}-{change!s:.40}"
        try:
            key = TopicPartition(topic, partition_of(partition))
            stored, stay = from_columns(values)
            if not isinstance(change, int):
                raise ValueError("the number of its change is not a whole number")
        except ValueError as err:
            return malformed_row(key, str(err), group=group, place=self._place, version=token)
        return Row(key, stored, version(name, change), of_stay=stay)

    def misnamed(self, group: str, topic: str | bytes, partition: object) -> Row:
        """A row whose group or topic is bytes where text belongs, so that no lookup by name finds it."""
        name = topic.decode(errors="replace") if isinstance(topic, bytes) else topic
        number = partition if isinstance(partition, int) and 0 <= partition <= INT32_MAX else UNKNOWN_PARTITION
        problem = "its group or its topic is stored as bytes, not as text"
        return malformed_row(TopicPartition(name, number), problem, group=group, place=self._place)
