"""Worlds in memory for tests of operations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_memory import Memory

from reconciler.readers.memory import MemoryLog
from reconciler.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that a test runs in this process sends the log to its own stderr: not beyond the test."""
    root, own = logging.getLogger(), logging.getLogger("reconciler")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    return Memory(MemoryLog("b", {"a.events": 1}), MemoryStore(request.node.nodeid), tmp_path)


@pytest.fixture
def wide(memory: Memory) -> Memory:
    """Three partitions."""
    memory.log.create("a.events", 3)
    return memory
