"""Cells of an HBase row as every layout has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
