"""Configurations as text, written to a file and read as a command does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config

STORE = "sqlite:///offsets.db"
LEAST = """
[source]
alias = "a"
[destination]
bootstrap_servers = "b:9092"
[[jobs]]
name = "clicks"
group = "readers"
topics = ["events"]
store = "sqlite:///offsets.db"
"""
"""The smallest configuration; its store is ``STORE``."""

Load = Callable[..., Config]
"""What the fixture ``load`` gives: from a text, with the environment as keywords."""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Writes a configuration, and loads it with the environment that is given."""

    def write_and_load(text: str, **environment: str) -> Config:
        path = tmp_path / "reconciler.toml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, environment)

    return write_and_load
