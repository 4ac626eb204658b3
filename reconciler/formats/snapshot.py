"""Snapshots, format ``reconciler.snapshot/1``: the rows that ``apply`` replaced, so that ``rollback`` can restore them.

One JSON object: ``{"format", "plan_sha256", "rows": [{"job", "before": null or ROW, "after": ROW}]}``; a ROW is
``{"written_at_ms", "line": ANCHOR_LINE}``, in ``before`` also ``"text"``. It holds raw ids, as the stores do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import Changed, ConfigError
from reconciler.formats.anchor_lines import AnchorLine, dump_line, load_lines

FORMAT = "reconciler.snapshot/1"

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


def path_for(plan_path: Path) -> Path:
    """The path of a plan's snapshot."""
    return plan_path.with_name(plan_path.name + ".applied.json")


def dump(plan_sha256: str, rows: Mapping[Key, Replaced]) -> str:
    """The snapshot's text."""
    content = {
        "format": FORMAT,
        "plan_sha256": plan_sha256,
        "rows": [
            {
                "job": job,
                "before": None if row.before is None else _row_json(row.group, tp, row.before) | {"text": row.text},
                "after": _row_json(row.group, tp, row.after),
            }
            for (job, tp), row in sorted(rows.items())
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def load(text: str, plan_sha256: str, path: Path) -> dict[Key, Replaced]:
    """The rows of the snapshot's ``text``, which was read from ``path``.

    Raises ``Changed`` for a damaged snapshot and for one of another plan.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        if content["plan_sha256"] != plan_sha256:
            raise Changed(f"{path} belongs to another plan.", hint="Move it away; it is that plan's only way back.")
        return dict(_row(row) for row in content["rows"])
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> Changed:
    """The error for a snapshot that cannot be used."""
    return Changed(f"The snapshot {path} cannot be read: {error}.", hint="Restore the file it was.")


def _row_json(group: str, tp: TopicPartition, stored: StoredOffset) -> dict[str, object]:
    line = json.loads(dump_line(AnchorLine(group, tp.topic, tp.partition, stored)))
    return {"written_at_ms": stored.written_at_ms, "line": line}


def _row(row: dict[str, object]) -> tuple[Key, Replaced]:
    before = row["before"]
    group, tp, after = _stored(row["after"])
    if before is None:
        return (str(row["job"]), tp), Replaced(group, None, after)
    return (str(row["job"]), tp), Replaced(group, _stored(before)[2], after, _text(before))


def _text(before: object) -> str | None:
    text = before.get("text") if isinstance(before, dict) else None
    if not isinstance(text, str | None):
        raise ValueError("a row's text is not text")
    return text


def _stored(part: object) -> tuple[str, TopicPartition, StoredOffset]:
    if not isinstance(part, dict):
        raise ValueError("a row is not an object")
    (line,) = load_lines([json.dumps(part["line"])])
    return line.group, line.key, StoredOffset(line.stored.offset, line.stored.anchor, part["written_at_ms"])
