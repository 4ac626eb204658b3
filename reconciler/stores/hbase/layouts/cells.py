"""Cells of an HBase row as every layout has them, and the JSON that this product keeps in cells of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.formats import json_fields
from reconciler.formats.json_fields import FieldError

COMPANION_PREFIX = b"!reconciler:"
"""Begins the key of this product's own row beside another program's. No Kafka topic's name begins like this, nor any
prefix of CDAP's."""


@dataclass(frozen=True, slots=True)
class HBaseCell:
    """A value and its timestamp: when the server took it (epoch ms), unless its writer set another one."""

    value: bytes
    at: int


Cells = Mapping[bytes, HBaseCell]
"""A row's cells by column (``FAMILY:QUALIFIER``)."""


def sorted_content(cells: Cells) -> list[tuple[str, str, int]]:
    """Column and value in hex, and timestamp, of every cell, by column: the content of a row's version."""
    return [(name.hex(), cell.value.hex(), cell.at) for name, cell in sorted(cells.items())]


def companion_row(legacy_row: bytes) -> bytes:
    """The key of this product's own row beside a legacy row."""
    return COMPANION_PREFIX + legacy_row


def decode_json(value: bytes, expected_format: str | None = None) -> dict[str, object]:
    """Read a cell. Raises FieldError, and nothing else, for JSON of another program or another ``format``."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if expected_format is not None and content.get("format") != expected_format:
        raise FieldError("format", f"is not {expected_format!r}")
    return content
