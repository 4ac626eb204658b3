"""The hook before a query that keeps its offsets in a checkpoint: it starts on a copy, now and at every later start."""

from __future__ import annotations

import json
import os
import re
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


def test_a_checkpoint_that_needs_correcting_does_not_start_without_a_place_for_the_copy(query: Query) -> None:
    ended = query.hook()
    assert ended.returncode == 4
    assert "needs correcting, which is done in a copy" in ended.stderr
    assert "--clone-to NEW_PATH" in ended.stderr
    assert not query.started.exists()


def test_a_folder_that_is_no_copy_of_this_checkpoint_is_not_started_on(query: Query) -> None:
    other = Files(query.copy)
    other.began({f"a.{query.topic}": {0: 0}})
    other.batch(0, {f"a.{query.topic}": {0: 1}})
    content = other.content()
    ended = query.hook("--clone-to", query.copy)
    assert ended.returncode == 2
    assert f"{query.copy} is there, and is no copy of {query.files.path}" in ended.stderr
    assert not query.started.exists()
    assert other.content() == content


def test_a_plan_of_a_query_that_stopped_within_a_batch_has_both_of_its_ends(query: Query) -> None:
    query.files.planned(1, {query.topic: {0: STORED + 4}})
    plan = query.folder / "query.plan.json"
    planned = query.run("plan", "-o", plan)
    assert planned.returncode == 0, planned.stderr
    rows = json.loads(plan.read_text())["jobs"][0]["partitions"]
    assert [(row["position"], row["stored_offset"], row["resume_offset"]) for row in rows] == [
        ("start", STORED, RIGHT),
        ("end", STORED + 4, RIGHT),  # no anchor was kept for it: the batch is repeated empty
    ]
    assert re.findall(r"-0 (start|end) +(\w+) ", planned.stdout) == [("start", "moved"), ("end", "bounded")]
    assert "0 records will be read again" in planned.stdout
    (next_step,) = [line.partition("Next: ")[2] for line in planned.stdout.splitlines() if "Next: " in line]
    assert next_step.startswith(f"reconciler checkpoint clone {query.files.path} NEW_PATH --plan {plan} --job counts")

    applied = query.run("apply", plan, "--yes")
    assert applied.returncode == 4
    assert "a checkpoint is only read, and corrected in a copy" in applied.stderr
    words = next_step.replace("NEW_PATH", str(query.copy)).split()[1:]
    cloned = query.run(" ".join(words))
    assert cloned.returncode == 0, cloned.stderr
    assert read_checkpoint(str(query.copy)).repeats_a_batch


def test_a_copy_is_a_write_like_any_other_where_plans_are_signed(query: Query) -> None:
    """By hand, and by the hook."""
    key = query.folder / "ada.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", f"{key}.pub"], check=True)
    plain = query.config.read_text()
    table = f'[trust]\nrequire_signature = true\ntrusted_keys = ["{key}.pub"]\n'
    query.config.write_text(table + plain)
    plan, by_hand = query.folder / "plan.json", query.folder / "by-hand"
    assert query.run("plan", "-o", plan).returncode == 0
    clone = ("checkpoint clone", query.files.path, by_hand, "--plan", plan)
    unsigned = query.run(*clone)
    assert (unsigned.returncode, "The plan is not signed" in unsigned.stderr) == (5, True), unsigned.stderr
    assert not by_hand.exists()
    assert query.run("sign", plan, "--key", key, "--yes").returncode == 0
    assert query.run(*clone).returncode == 0

    asks = query.hook("--clone-to", query.copy)
    assert (asks.returncode, "must be signed by a person first" in asks.stderr) == (4, True), asks.stderr
    assert not query.copy.exists()
    query.config.write_text(f'{table}signing_key = "{key}"\n{plain}')
    started = query.hook("--clone-to", query.copy)
    assert (started.returncode, query.started.read_text()) == (0, str(query.copy)), started.stderr
