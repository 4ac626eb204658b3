"""A cell of an HBase row, as any layout sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its timestamp: when the server took it (epoch ms), unless its writer said otherwise."""

    value: bytes
    at: int
