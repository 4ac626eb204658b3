"""Rows of a compacted topic: a record's key names a group's partition, its value holds the offset and the anchor.

Key: the JSON array ``["reconciler.rows/1",GROUP,TOPIC,PARTITION]``, ASCII, without spaces. Compaction compares bytes,
so the same array written in another way is not a key.

Value, version 1: ``{"v":1,"s":STORED_OFFSET,"w":WRITTEN_AT_MS,"a":ANCHOR}``, ASCII JSON; the anchor as in
``formats.anchor_fields``. Unknown values are left out; readers ignore keys that they do not know. A record without
value (a tombstone) means that there is no row. ``{"v":1,"d":DELETED_AT_MS}`` means the same, and also hides an older
row that was mirrored from another cluster.

A value has at most ``MAX_BYTES``, far below a broker's default limit of one megabyte (``max.message.bytes``): an id too
long to fit is left out, and the fingerprint stays.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.anchor_fields import SHORT
from reconciler.formats.json_fields import FieldError

TAG = "reconciler.rows/1"
VERSION = 1
MAX_BYTES = 256 * 1024

_BEGINS = f'["{TAG}",'.encode()


@dataclass(frozen=True, slots=True)
class RowName:
    """The group, topic and partition of a row."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Value:
    """A record's value: a row, or that it was deleted at ``deleted_at_ms``."""

    stored: StoredOffset | None
    deleted_at_ms: int | None = None

    @property
    def written_at_ms(self) -> int:
        """Epoch ms; -1 if unknown."""
        at = self.deleted_at_ms if self.stored is None else self.stored.written_at_ms
        return -1 if at is None else at


def is_ours(key: bytes | None) -> bool:
    """True for a key with this format's tag."""
    return key is not None and key.startswith(_BEGINS)


def group_begins(group: str) -> bytes:
    """The prefix that the keys of a group's rows have, and no other keys."""
    return _BEGINS + json.dumps(group, ensure_ascii=True).encode() + b","


def encode_key(name: RowName) -> bytes:
    content = [TAG, name.group, name.topic, name.partition]
    return json_fields.compact(content).encode()


def decode_key(key: bytes) -> RowName:
    """Raises FieldError for bytes that ``encode_key`` does not make."""
    try:
        content = json.loads(key.decode("ascii"))
    except (ValueError, RecursionError) as err:
        raise FieldError("the key", "is not JSON") from err
    if not isinstance(content, list) or len(content) != 4 or content[0] != TAG:
        raise FieldError("the key", "is not an array of format, group, topic and partition")
    parts = dict(zip(("format", "group", "topic", "partition"), content, strict=True))
    group, topic = json_fields.string(parts, "group"), json_fields.string(parts, "topic")
    partition = json_fields.integer(parts, "partition", 0, json_fields.INT32_MAX)
    if not group or not topic or partition is None:
        raise FieldError("the key", "lacks a group, a topic or a partition")
    name = RowName(group, topic, partition)
    if encode_key(name) != key:
        raise FieldError("the key", "is not written as this format writes it")
    return name


def encode_value(stored: StoredOffset) -> str:
    """A row as ASCII text. Raises ConfigError if the ids of cluster and topic alone are too long."""
    text = _text(stored)
    if len(text) > MAX_BYTES and stored.anchor is not None:
        text = _text(replace(stored, anchor=replace(stored.anchor, id=None)))
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"An anchor of {len(text)} bytes does not fit into a record, even without its id.",
            hint="Its cluster id or topic id is too long to be Kafka's: correct it in the anchor's source.",
        )
    return text


def restored_text(text: str | None, stored: StoredOffset) -> str:
    """``text``, if it says what ``stored`` does; else ``stored`` as text."""
    with suppress(FieldError):
        found = None if text is None else decode_value(text.encode("utf-8", "surrogatepass")).stored
        if text is not None and found is not None and (found.offset, found.anchor) == (stored.offset, stored.anchor):
            return text
    return encode_value(stored)


def encode_deleted(deleted_at_ms: int) -> str:
    """The value of a deleted row, as ASCII text."""
    return json_fields.compact({"v": VERSION, "d": deleted_at_ms})


def _text(stored: StoredOffset) -> str:
    content: dict[str, object] = {"v": VERSION, "s": stored.offset}
    if stored.written_at_ms is not None:
        content["w"] = stored.written_at_ms
    if stored.anchor is not None:
        content["a"] = anchor_fields.known(anchor_fields.dump(stored.anchor, SHORT))
    return json_fields.compact(content)


def decode_value(value: bytes) -> Value:
    """Raises FieldError, naming the fault, for bytes of another format."""
    try:
        text = value.decode()
    except UnicodeDecodeError as err:
        raise FieldError("the value", "is not text") from err
    content = json_fields.json_object(text)
    version = json_fields.integer(content, "v", 1)
    if version is None:
        raise FieldError("v", "is missing")
    if version > VERSION:
        raise FieldError("v", f"is {version}, the version of a newer release")
    deleted_at_ms = json_fields.integer(content, "d")
    if deleted_at_ms is not None:
        return Value(None, deleted_at_ms)
    offset = json_fields.integer(content, "s")
    if offset is None:
        raise FieldError("s", "is missing")
    return Value(StoredOffset(offset, _anchor(content.get("a")), json_fields.integer(content, "w")))


def _anchor(found: object) -> Anchor | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise FieldError("a", "is not a JSON object")
    try:
        return anchor_fields.load(found, SHORT)
    except FieldError as err:
        raise FieldError(f"a.{err.field}" if err.field else "a", err.problem) from err
