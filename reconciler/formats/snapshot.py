"""Snapshots, format ``reconciler.snapshot/1``: the rows that ``apply`` replaced, so that ``rollback`` can restore them.

One JSON object: ``{"format", "plan_sha256", "rows": [{"job", "before": null or ROW, "after": ROW}]}``, a line for each
of ``rows``, so that two snapshots can be compared by eye; a ROW is
``{"written_at_ms", "line": ANCHOR_LINE}``, in ``before`` also ``"text"``. It holds raw ids, as the stores do.

It is read as strictly as a plan: anyone who can write to the folder can write a snapshot. A plan names the rows that it
replaces by ``seen_of``, so that a signed plan vouches for the rows that are put back.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import Changed
from reconciler.formats import json_fields
from reconciler.formats.anchor_lines import AnchorLine, line_json, line_of
from reconciler.formats.json_fields import FieldError, Fields, json_value
from reconciler.formats.plan_rows import SeenRow

FORMAT = "reconciler.snapshot/1"
ENDING = ".applied.json"
"""Ends the snapshot's name, after the plan's."""

_SNAPSHOT = frozenset(("format", "plan_sha256", "rows"))
_ROW = frozenset(("job", "before", "after"))
_SIDE, _GROWN = frozenset(("written_at_ms", "line")), frozenset(("text",))

Key = tuple[str, TopicPartition]
"""Job name, and the row's topic and partition."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """One row before and after ``apply``. ``before`` None: there was no row.

    ``text`` is what the store kept beside the offset before, to the byte, where it keeps a text.
    """

    group: str
    before: StoredOffset | None
    after: StoredOffset
    text: str | None = None


def same(one: StoredOffset | None, other: StoredOffset | None) -> bool:
    """The same offset and the same anchor's record; a store may round a time, or leave out an id too long for it."""
    if one is None or other is None:
        return one is other
    return one.offset == other.offset and _names(one) == _names(other)


def _names(stored: StoredOffset) -> tuple[int | None, str | None] | None:
    return None if stored.anchor is None else (stored.anchor.offset, stored.anchor.cluster_id)


_LINE = json.JSONEncoder().encode
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def path_for(plan_path: Path) -> Path:
    """Where the plan's snapshot is, or would be: beside the plan's file, however many links lead to that."""
    path = Path(os.path.realpath(plan_path)) if os.path.islink(plan_path) else plan_path
    return path.parent / f"{path.name}{ENDING}"


def seen_of(group: str, key: TopicPartition, stored: StoredOffset, text: str | None) -> SeenRow:
    """A row as a plan names it: its offset, and a digest of everything that a snapshot would hold of it."""
    content = _SORTED(_before_json(group, key, stored, text))
    return SeenRow(stored.offset, hashlib.sha256(content.encode()).hexdigest())


# ---------------------------------------------------------------- writing


def dump(plan_sha256: str, rows: Mapping[Key, Replaced]) -> str:
    lines = (
        _LINE(
            {
                "job": job,
                "before": None if row.before is None else _before_json(row.group, tp, row.before, row.text),
                "after": _row_json(row.group, tp, row.after),
            }
        )
        for (job, tp), row in sorted(rows.items())
    )
    head = f'{{\n "format": {_LINE(FORMAT)},\n "plan_sha256": {_LINE(plan_sha256)},\n "rows": ['
    return head + ",".join(f"\n  {each}" for each in lines) + "\n ]\n}\n"


def _before_json(group: str, tp: TopicPartition, stored: StoredOffset, text: str | None) -> dict[str, Any]:
    return _row_json(group, tp, stored) | {"text": text}


def _row_json(group: str, tp: TopicPartition, stored: StoredOffset) -> dict[str, Any]:
    return {"written_at_ms": stored.written_at_ms, "line": line_json(AnchorLine(group, tp.topic, tp.partition, stored))}


# ---------------------------------------------------------------- reading


def load(text: str, plan_sha256: str, path: Path) -> dict[Key, Replaced]:
    """The rows of the snapshot's ``text``, which was read from ``path``.

    Raises ``Changed`` for a damaged snapshot and for one of another plan.
    """
    try:
        fields = Fields(json_value(text, fractions=False), "", _SNAPSHOT)
        if fields.value("format") != FORMAT:
            raise FieldError(None, f"is not of format {FORMAT}")
        if fields.value("plan_sha256") != plan_sha256:
            raise Changed(f"{path} belongs to another plan.", hint="Move it away; it is that plan's only way back.")
        found = [_row(row, f"rows[{number}]") for number, row in enumerate(fields.items("rows"))]
        rows = dict(found)
        if len(rows) < len(found):
            raise FieldError("rows", "has two rows for one partition")
        return rows
    except FieldError as error:
        raise unreadable(path, error.sentence) from error


def unreadable(path: Path, problem: str) -> Changed:
    """The error for a snapshot that cannot be used."""
    return Changed(f"The snapshot {path} cannot be read: {problem}.", hint="Restore the file it was.")


def _row(value: object, where: str) -> tuple[Key, Replaced]:
    row = Fields(value, where, _ROW)
    after, _ = _side(row.value("after"), row.place("after"))
    key = (row.text("job"), after.key)
    if row.value("before") is None:
        return key, Replaced(after.group, None, after.stored)
    before, text = _side(row.value("before"), row.place("before"))
    if (before.group, before.key) != (after.group, after.key):
        raise FieldError(where, "has another group or partition before than after")
    return key, Replaced(after.group, before.stored, after.stored, text)


def _side(value: object, where: str) -> tuple[AnchorLine, str | None]:
    fields = Fields(value, where, _SIDE, _GROWN)
    content = fields.value("line")
    if not isinstance(content, dict):
        raise FieldError(fields.place("line"), "is not an object")
    try:
        line = line_of(content)
        written_at_ms = fields.number_or_null("written_at_ms", json_fields.INT64_MIN)
        stored = StoredOffset(line.stored.offset, line.stored.anchor, written_at_ms)
    except FieldError as error:
        raise FieldError(f"{where}:", error.sentence) from error
    return AnchorLine(line.group, line.topic, line.partition, stored), fields.text_or_null("text")
