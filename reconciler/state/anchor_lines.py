"""Anchor lines, format ``reconciler.anchors/1``: stored offsets with their anchors, one JSON object a line.

``{"format": "reconciler.anchors/1", "group", "topic", "partition", "stored_offset", "anchor": null or
{"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id"}}``. Absent values are null or
left out.

Two more keys appear only where the line would otherwise mean something else: ``names`` inside an anchor that does not
name the last processed record (``next``, ``max-time``), and ``written_at_ms`` (epoch ms) on a row whose time of writing
is known: of two rows with anchors the later one counts, and without an anchor it may be the only evidence. Any other
key is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchor_fields import LONG
from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import FieldError

T = TypeVar("T")
FORMAT = "reconciler.anchors/1"

LONGEST_LINE = 4 * 1024 * 1024
"""Characters, including the line break. An id may be a record's whole key."""
MOST_LINES = 500_000

_LINE_KEYS = frozenset({"format", "group", "topic", "partition", "stored_offset", "anchor", "written_at_ms"})


@dataclass(frozen=True, slots=True)
class AnchorLine:
    """One line: a group's stored offset for one partition, by the source's topic name."""

    group: str
    topic: str
    partition: int
    stored: StoredOffset

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def dump_line(line: AnchorLine) -> str:
    """One line of ASCII text, without its line break. ``load_lines`` reads it back."""
    content = line_json(line)
    if line.stored.written_at_ms is not None:
        content["written_at_ms"] = line.stored.written_at_ms
    return json.dumps(content, ensure_ascii=True)


def load_lines(lines: Iterable[str]) -> Iterator[AnchorLine]:
    """Read lines one by one; blank ones are skipped.

    Raises ConfigError naming the line and the field at the first line that is not of this format, and at the
    second of two lines for the same group, topic and partition.
    """
    seen: dict[tuple[str, str, int], int] = {}
    for number, line in objects_in(lines, line_of, longest=LONGEST_LINE):
        first = seen.setdefault((line.group, line.topic, line.partition), number)
        if first != number:
            row = f"{line.key} of group {line.group!r}"
            raise _wrong_line(number, f"repeats {row}, which line {first} has already")
        yield line


def objects_in(
    lines: Iterable[str], read: Callable[[Mapping[str, Any]], T], *, longest: int
) -> Iterator[tuple[int, T]]:
    """What ``read`` makes of the JSON object in each line, with the line's number; blank lines are skipped.

    ``longest``: characters, including the line break. Raises ConfigError naming the line where it is longer, has no
    object, or ``read`` raises FieldError; and after ``MOST_LINES``.
    """
    for number, text in enumerate(lines, start=1):
        if len(text) > longest:
            raise _wrong_line(number, f"it has more than {longest:,} characters")
        if number > MOST_LINES:
            raise _wrong_line(number, f"more than {MOST_LINES:,} lines are not read at once")
        if not text.strip():
            continue
        try:
            found = read(json_fields.json_object(text))
        except FieldError as error:
            raise _wrong_line(number, error.sentence) from error
        yield number, found


def _wrong_line(number: int, problem: str) -> ConfigError:
    return ConfigError(
        f"Line {number} of the anchor lines: {problem}.",
        hint=f"Correct the line; the format is {FORMAT}, one JSON object a line.",
    )


def line_json(line: AnchorLine) -> dict[str, object]:
    """One line as JSON values, without the time of a row that has an anchor."""
    content: dict[str, object] = {
        "format": FORMAT,
        "group": line.group,
        "topic": line.topic,
        "partition": line.partition,
        "stored_offset": line.stored.offset,
        "anchor": None if line.stored.anchor is None else anchor_fields.dump(line.stored.anchor, LONG),
    }
    if line.stored.anchor is None and line.stored.written_at_ms is not None:
        content["written_at_ms"] = line.stored.written_at_ms
    return content


def line_of(content: Mapping[str, object]) -> AnchorLine:
    """The line in JSON values. Raises FieldError."""
    # The format comes first: in a file of another format, every other complaint would mislead.
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    json_fields.no_unknown(content, _LINE_KEYS)
    stored = StoredOffset(
        offset=json_fields.required(json_fields.integer(content, "stored_offset"), "stored_offset"),
        anchor=anchor_fields.load_optional(content.get("anchor")),
        written_at_ms=json_fields.integer(content, "written_at_ms"),
    )
    return AnchorLine(
        group=json_fields.required_text(content, "group"),
        topic=json_fields.required_text(content, "topic"),
        partition=json_fields.required(
            json_fields.integer(content, "partition", 0, json_fields.INT32_MAX), "partition"
        ),
        stored=stored,
    )
