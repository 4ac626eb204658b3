"""The hook before a query that keeps its offsets in a checkpoint: it starts on a copy, now and at every later start."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.checkpoints.reading import read_checkpoint
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests import ROOT
from tests.checkpoints.checkpoint_files import Files
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.system
STORED, RIGHT = 5, 2
"""Five records of the source; at the destination the last two of them, a mark, and one more."""


@dataclass(frozen=True)
class Query:
    """A stopped query of the lost source, in files, and the hook before it."""

    files: Files
    folder: Path
    topic: str
    config: Path

    def hook(self, *options: object) -> subprocess.CompletedProcess[str]:
        return self.run(
            "hook",
            "--to",
            "destination",
            *options,
            "--",
            "sh",
            "-c",
            f'printf "$RECONCILER_CHECKPOINT" > {self.started}',
        )

    def run(self, command: str, *options: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "reconciler", *command.split(), "-c", str(self.config), *map(str, options)]
        plans = {"RECONCILER_PLANS": str(self.folder / "plans"), "PYTHONPATH": str(ROOT)}
        return subprocess.run(words, env={**os.environ, **plans}, capture_output=True, text=True, timeout=LIMIT_S)

    @property
    def started(self) -> Path:
        """Where the query that was started says on which checkpoint."""
        return self.folder / "started"

    @property
    def copy(self) -> Path:
        return self.folder / "copy"


@pytest.fixture
def query(clusters: Any, tmp_path: Path, topic_name: str) -> Query:
    there = Kafka(clusters.destination.bootstrap)
    there.create(f"a.{topic_name}")
    mirrored = [Sent(value=b"x"), Sent(value=b"y", timestamp_ms=BASE_MS + 1)]
    there.send(f"a.{topic_name}", mirrored, transaction=topic_name)
    there.send(f"a.{topic_name}", [Sent(value=b"z", timestamp_ms=BASE_MS + 2)])
    files = Files(tmp_path / "checkpoint")
    files.began({topic_name: {0: 0}})
    files.batch(0, {topic_name: {0: STORED}})
    anchors = open_store(f"sqlite:///{tmp_path}/anchors.db")
    y = Anchor(STORED - 1, BASE_MS + 1, None, fingerprint(b"k", b"y"), "lost", "lost/topic")
    kept = Change(TopicPartition(topic_name, 0), None, StoredOffset(STORED, y, BASE_MS))
    anchors.write("counts", [kept], reason="track", now_ms=BASE_MS)
    config = tmp_path / "reconciler.toml"
    config.write_text(
        f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "{there.bootstrap}"\n'
        f'[anchors]\nstore = "{anchors.address}"\n[[jobs]]\nname = "counts"\ngroup = "counts"\n'
        f'topics = ["{topic_name}"]\nstore = "checkpoint:{files.path}"\n'
    )
    return Query(files, tmp_path, topic_name, config)


def test_a_query_starts_on_a_copy_that_is_made_once_and_checked_at_every_start(query: Query) -> None:
    before = query.files.content()
    first = query.hook("--clone-to", query.copy)
    assert (first.returncode, first.stdout) == (0, "")
    assert query.started.read_text() == str(query.copy)
    assert query.files.content() == before
    (source,) = read_checkpoint(str(query.copy)).positions
    assert source.start == {(f"a.{query.topic}", 0): RIGHT}
    made = query.files.content(query.copy)

    query.started.unlink()
    again = query.hook("--clone-to", query.copy)
    assert again.returncode == 0, again.stderr
    assert query.started.read_text() == str(query.copy)
    assert query.files.content(query.copy) == made, "it was right, and stays as it is"

    running = Files(query.copy)  # the query goes on, and stops
    running.batch(1, {f"a.{query.topic}": {0: RIGHT + 2}})
    query.started.unlink()
    later = query.hook("--clone-to", query.copy)
    assert later.returncode == 0, later.stderr
    assert query.started.read_text() == str(query.copy)
