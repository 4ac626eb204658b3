"""Anchor lines, format ``reconciler.anchors/1``: stored offsets with their anchors, one JSON object a line.

``{"format": "reconciler.anchors/1", "group", "topic", "partition", "stored_offset", "anchor": null or
{"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id"}}``. Absent values are null or
left out.

Two more keys appear only where leaving them out would make the line say something else: ``names`` inside an
anchor that does not name the last processed record (``next``, ``max-time``), and ``written_at_ms`` (epoch ms)
on a row without anchor, whose time of writing is all there is to go by. Any other key is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.layouts import _fields
from reconciler.layouts._fields import FieldError

FORMAT = "reconciler.anchors/1"

_LINE_KEYS = frozenset({"format", "group", "topic", "partition", "stored_offset", "anchor", "written_at_ms"})
_ANCHOR_KEYS = frozenset({"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id", "names"})


@dataclass(frozen=True, slots=True)
class AnchorLine:
    """One line: a group's stored offset for one partition, by the source's topic name."""

    group: str
    topic: str
    partition: int
    stored: StoredOffset


def dump_line(line: AnchorLine) -> str:
    """One line of ASCII text, without its line break. ``load_lines`` gives back what this wrote."""
    content: dict[str, object] = {
        "format": FORMAT,
        "group": line.group,
        "topic": line.topic,
        "partition": line.partition,
        "stored_offset": line.stored.offset,
        "anchor": None if line.stored.anchor is None else _anchor_fields(line.stored.anchor),
    }
    if line.stored.anchor is None and line.stored.written_at_ms is not None:
        content["written_at_ms"] = line.stored.written_at_ms
    return json.dumps(content, ensure_ascii=True)


def load_lines(lines: Iterable[str]) -> Iterator[AnchorLine]:
    """Read lines one by one, skipping blank ones.

    Raises ConfigError naming the line and the field at the first line that is not of this format, and at the
    second of two lines for the same group, topic and partition.
    """
    seen: dict[tuple[str, str, int], int] = {}
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = _line(_fields.json_object(text))
        except FieldError as err:
            raise _error(number, f"{err.field or 'it'} {err.problem}") from err
        first = seen.setdefault((line.group, line.topic, line.partition), number)
        if first != number:
            what = f"{line.topic}:{line.partition} of group {line.group!r}"
            raise _error(number, f"repeats {what}, which line {first} has already")
        yield line


def _error(number: int, problem: str) -> ConfigError:
    return ConfigError(
        f"Line {number} of the anchor lines: {problem}.",
        hint=f"Correct the line; the format is {FORMAT}, one JSON object a line.",
    )


def _anchor_fields(anchor: Anchor) -> dict[str, object]:
    fields: dict[str, object] = {
        "offset": anchor.offset,
        "timestamp_ms": anchor.timestamp_ms,
        "id_base64": None if anchor.id is None else base64.b64encode(anchor.id).decode(),
        "fingerprint": anchor.fingerprint,
        "cluster_id": anchor.cluster_id,
        "topic_id": anchor.topic_id,
    }
    if anchor.names is not Names.LAST:
        fields["names"] = anchor.names.value
    return fields


def _line(content: Mapping[str, object]) -> AnchorLine:
    # The format comes first: in a file of another format, every other complaint would mislead.
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    _no_unknown(content, _LINE_KEYS)
    stored = StoredOffset(
        offset=_required(_fields.integer(content, "stored_offset"), "stored_offset"),
        anchor=_anchor(content.get("anchor")),
        written_at_ms=_fields.integer(content, "written_at_ms"),
    )
    return AnchorLine(
        group=_name(content, "group"),
        topic=_name(content, "topic"),
        partition=_required(_fields.integer(content, "partition", 0, _fields.INT32_MAX), "partition"),
        stored=stored,
    )


def _anchor(found: object) -> Anchor | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise FieldError("anchor", "is not a JSON object")
    try:
        _no_unknown(found, _ANCHOR_KEYS)
        return Anchor(
            offset=_fields.integer(found, "offset"),
            timestamp_ms=_fields.integer(found, "timestamp_ms"),
            id=_fields.base64_bytes(found, "id_base64"),
            fingerprint=_fields.fingerprint_hex(found, "fingerprint"),
            cluster_id=_fields.string(found, "cluster_id"),
            topic_id=_fields.string(found, "topic_id"),
            names=_fields.names(found, "names"),
        )
    except FieldError as err:
        raise FieldError(f"anchor.{err.field}", err.problem) from err
    except ValueError as err:
        raise FieldError("anchor", f"contradicts itself: {err}") from err


def _no_unknown(content: Mapping[str, object], known: frozenset[str]) -> None:
    unknown = sorted(content.keys() - known)
    if unknown:
        raise FieldError(ascii(unknown[0])[1:-1], "is not a field of this format")


def _required(value: int | None, field: str) -> int:
    if value is None:
        raise FieldError(field, "is missing")
    return value


def _name(content: Mapping[str, object], field: str) -> str:
    value = _fields.string(content, field)
    if not value:
        raise FieldError(field, "is missing or empty")
    return value
