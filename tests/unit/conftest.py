"""Worlds in memory for tests of operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_memory import Memory

from reconciler.readers.memory import MemoryLog
from reconciler.stores.memory import MemoryStore


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    return Memory(MemoryLog("b", {"a.events": 1}), MemoryStore(request.node.nodeid), tmp_path)


@pytest.fixture
def wide(memory: Memory) -> Memory:
    """Three partitions."""
    memory.log.create("a.events", 3)
    return memory
