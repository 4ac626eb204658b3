"""Tests, in the same rooms as the product: ``tests/places/hbase`` tests ``reconciler/places/hbase``, and so on."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
