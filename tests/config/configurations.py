"""Configurations as text, written to a file and read as a command does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config

STORE = "sqlite:///offsets.db"
LEAST = """
[clusters.a]
[clusters.b]
bootstrap_servers = "b:9092"
[[jobs]]
home = "a"
name = "clicks"
group = "readers"
topics = ["events"]
offsets = "sqlite:///offsets.db"
"""
"""The smallest configuration; its store is ``STORE``."""

FULL = """
[clusters.prod]
bootstrap_servers = "a:9092"
[clusters.prod.client]
"client.id" = "tracker"
[clusters.b]
bootstrap_servers = "b:9092,c:9092"
[clusters.b.client]
"security.protocol" = "SASL_SSL"
sasl.username = "me"
"sasl.password" = "${SECRET}"
"enable.ssl.certificate.verification" = true
"socket.timeout.ms" = 5000
[topics]
policy = "default"
separator = "_"
[topics.names.b]
"special@prod" = "renamed"
[search]
max_disorder = "5s"
scan_records = 10
deadline = "2m"
[policy]
new = "2026-01-31T06:00:00+01:00"
behind = "wait"
max_replay = 7
no_anchor = "row-time"
plan_expires = "90m"
[[jobs]]
home = "prod"
name = "clicks"
group = "readers"
topics = ["events", "special"]
offsets = "sqlite:///${PLACE}/offsets.db"
[jobs.identity]
timestamp = "json:$.ts"
unit = "s"
id = "json:$.meta.id"
id_order = "increasing"
[[jobs]]
home = "prod"
name = "views"
group = "readers"
topics = ["views"]
offsets = "kafka-group:"
"""
"""Every table, for an environment with SECRET and PLACE."""

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
