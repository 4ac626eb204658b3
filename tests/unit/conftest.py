"""Worlds in memory for tests of operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from configurations import Load
from in_memory import Memory

from reconciler.operations.config import Config, load_config
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


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Writes a configuration, and loads it with the environment that is given."""

    def write_and_load(text: str, **environment: str) -> Config:
        path = tmp_path / "reconciler.toml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, environment)

    return write_and_load
