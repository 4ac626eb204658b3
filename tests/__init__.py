"""Tests, in the same rooms as the product: ``tests/stores/hbase`` tests ``reconciler/stores/hbase``, and so on."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
