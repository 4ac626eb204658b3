"""Everything of the product's inside that golden tests use. A module that moves changes its path here only.

``patched`` puts clusters in memory in the place of Kafka's and fixes the clock, the version and the user.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reconciler.cli import main
from reconciler.cli.commands import init
from reconciler.cli.commands import mirror as mirror_command
from reconciler.cli.main import COMMANDS, full_parser
from reconciler.cli.terminal import progress
from reconciler.core import anchor_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown
from reconciler.core.verdicts import Verdict
from reconciler.failover import check, inputs
from reconciler.failover.checkpoint import clone as checkpoint_clone
from reconciler.jobs.watch import metrics
from reconciler.kafka import reading_process, requests
from reconciler.places.hbase import cdap, cloudera
from reconciler.places.hbase.flowlet import Flowlet
from reconciler.places.hbase.table import HBaseCell
from reconciler.places.postgresql import own as postgresql_own
from reconciler.places.registry import open_store
from reconciler.places.sql_rows import to_columns
from reconciler.places.sqlite.store import SqliteStore
from reconciler.places.zookeeper import layouts as zookeeper_layouts
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, PlanAnchor
from reconciler.ports import Change, TopicPartition
from tests.memory_log import MemoryLog

__all__ = [
    "COMMANDS",
    "NOW_MS",
    "Anchor",
    "Change",
    "Flowlet",
    "HBaseCell",
    "MemoryLog",
    "Names",
    "StoredOffset",
    "TopicPartition",
    "Verdict",
    "actions_of",
    "anchor_fields",
    "break_reads",
    "cdap",
    "cloudera",
    "exact_plan",
    "fingerprint",
    "lose_answers_of_writes",
    "mirror_command",
    "open_store",
    "patched",
    "postgresql_tables",
    "postgresql_types",
    "run_main",
    "to_columns",
    "write_rows",
    "zookeeper_layouts",
]

NOW_MS = 1_800_000_000_000
PID = 4242
_VERSIONED = (main, init, check, metrics, checkpoint_clone)

run_main = main.main


def actions_of(command: str) -> list[str]:
    """The words of a command's own actions, like ``export`` of ``anchors``."""
    return [*full_parser().actions[command].actions]


_OPEN_LOG, _SURVEYOR = reading_process.open_log, requests.Surveyor


def _reader(logs: Mapping[str, MemoryLog], client: Mapping[str, str], **more: Any) -> Any:
    """The log of the cluster at ``bootstrap.servers``; a Kafka client where that is none of the clusters in memory."""
    return logs.get(client["bootstrap.servers"]) or _OPEN_LOG(client, **more)


def _surveyor(logs: Mapping[str, MemoryLog], client: Mapping[str, str], **more: Any) -> Any:
    """The survey of the cluster at ``bootstrap.servers``, as ``_reader`` reads it."""
    log = logs.get(client["bootstrap.servers"])
    return _SURVEYOR(client, **more) if log is None else _Surveyor(log)


class _Surveyor:
    """The topics of a cluster in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def topics(self) -> dict[str, int]:
        described = self._log.describe(sorted(self._log.topic_ids)).topics
        return {name: len(topic.partitions) for name, topic in described.items()}

    def groups(self) -> list[str]:
        return ["clicks", "ready", "stuck"]

    def close(self) -> None:
        """Nothing to close."""


def patched(monkeypatch: pytest.MonkeyPatch, logs: Mapping[str, MemoryLog], now_ms: Any) -> None:
    """Let every command read ``logs`` (by bootstrap servers), as one user, at the time that ``now_ms()`` gives."""
    reader = partial(_reader, logs)
    monkeypatch.setattr(reading_process, "open_log", reader)
    monkeypatch.setattr(init, "open_log", reader)
    for module in (init, requests):
        monkeypatch.setattr(module, "Surveyor", partial(_surveyor, logs))
    for module in _VERSIONED:
        monkeypatch.setattr(module, "__version__", "0.0.0")
    monkeypatch.setattr(inputs, "who", lambda: "ada@ops-1")
    monkeypatch.setattr(time, "time_ns", lambda: now_ms() * 1_000_000)
    monkeypatch.setattr(os, "getpid", lambda: PID)
    monkeypatch.setattr(progress, "FIRST_S", math.inf)  # a busy machine would be told that it waits


def lose_answers_of_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write to a SQLite store end without an answer."""

    def write(*_: object, **__: object) -> None:
        raise OutcomeUnknown("The answer to the write was lost.", hint="Run it again.")

    monkeypatch.setattr(SqliteStore, "write", write)


def break_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read of a SQLite store run into a bug."""

    def read(*_: object, **__: object) -> None:
        raise RuntimeError("the golden test's own bug")

    monkeypatch.setattr(SqliteStore, "read", read)


def postgresql_types() -> Mapping[str, str]:
    """The columns of a row in PostgreSQL, with their types, in the order of ``to_columns``."""
    return postgresql_own._TYPES


def postgresql_tables() -> list[str]:
    """The statements that make the product's tables in PostgreSQL."""
    store = postgresql_own.OwnStore(None, None, "postgresql://db.example/offsets")  # type: ignore[arg-type]
    return [statement.as_string(None) for statement in store._definitions()]


def write_rows(address: str, group: str, rows: Mapping[TopicPartition, StoredOffset]) -> None:
    """Store rows as a job does, in the store at ``address``."""
    store = open_store(address)
    try:
        store.create()
        versions = {row.key: row.version for row in store.read(group)}
        changes = [Change(key, versions.get(key), row) for key, row in rows.items()]
        assert not store.write(group, changes, reason="record", now_ms=NOW_MS - 60_000).conflicts
    finally:
        store.close()


def exact_plan() -> str:
    """A plan's text, all of whose fields are fixed here, its prose too."""
    known = PlanAnchor(4_513, 1_767_225_600_123, "4046d7935d63ce7bedd1898040e076c3", "00ffa7c24bd01a5e")
    moved = PartitionPlan(
        source_topic="events",
        topic="a.events",
        topic_id="6Wk2yVnJQ2mYc0o3m2T4RA",
        partition=0,
        stored_offset=4_514,
        anchor=known,
        finding=Verdict.EXACT,
        resume_offset=3_679,
        replay_at_most=0,
        replay_exact=0,
        matched_by="id",
        record_offset=3_678,
        probes=7,
        rounds=2,
        detail='fixed prose: Ärger, 计划, \\ and "quotes"',
    )
    stopped = replace(
        moved,
        partition=1,
        anchor=None,
        finding=Verdict.UNRESOLVED,
        resume_offset=None,
        replay_at_most=None,
        replay_exact=None,
        matched_by=None,
        record_offset=None,
        detail="fixed prose",
    )
    by_hand = replace(stopped, partition=2, finding=Verdict.LOST, resume_offset=9, replay_at_most=0, set_by_hand=True)
    halves = (replace(moved, position="start"), replace(moved, position="end", resume_offset=3_700, replay_exact=None))
    jobs = (
        JobPlan("clicks", "readers", "sqlite:////srv/clicks/offsets.db", (moved, stopped, by_hand)),
        JobPlan("counts", "counts", "checkpoint:/srv/counts", halves),
        JobPlan("empty", "empty", "kafka-group:", ()),
    )
    times = "2027-01-15T07:00:00Z", "2027-01-16T07:00:00Z"
    return Plan("0.0.0", *times, "a", "b", "cluster-a", "kafka-b:9092", "cluster-b", jobs).to_text()
