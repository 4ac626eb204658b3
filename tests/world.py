"""A failed-over world for tests of commands: a "mirrored" topic on a real cluster, a job's store, a configuration.

No mirror runs: the tests write the copies themselves. Record ``n`` of a partition had offset ``BASE + n`` at the
source; at the destination it lies where ``deliver`` puts it, with gaps where a transaction ended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.places.registry import open_store
from reconciler.ports import Change, Row, TopicPartition
from tests import ROOT
from tests.demo.lab.kafka import KafkaCluster
from tests.starting import with_empty_state, with_state
from tests.waiting import LIMIT_S

BASE = 5_000
BEGIN = 1_700_000_000_000
SOURCE_ID = "the-source-cluster"
ONE_SEGMENT = "10000000000000"
"""A marker is dated now; behind back-dated records that would begin a new segment (``segment.ms`` is a week)."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One record as the source had it."""

    offset: int
    timestamp_ms: int
    id: bytes
    key: bytes
    value: bytes | None

    @property
    def anchor(self) -> Anchor:
        digest = fingerprint(self.key, self.value)
        return Anchor(self.offset, self.timestamp_ms, self.id, digest, SOURCE_ID, "the-source-topic")

    @property
    def stored(self) -> StoredOffset:
        """The stored offset of a job that has processed this record last."""
        return StoredOffset(self.offset + 1, self.anchor, self.timestamp_ms + 1)


def source_record(number: int, partition: int = 0) -> SourceRecord:
    """Record ``number`` of a partition; three share each millisecond, every seventh is a tombstone."""
    value = None if number % 7 == 6 else b"value %d of %d" % (number, partition)
    stamp = BEGIN + 1_000 * (number // 3)
    return SourceRecord(BASE + number, stamp, b"%d/%d" % (partition, number), b"key %d" % number, value)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        return self.out + self.err


class World:
    """One test's topics, store and configuration on a shared cluster. ``runner`` runs commands in this process."""

    def __init__(
        self, cluster: KafkaCluster, folder: Path, name: str, runner: Callable[[list[str]], CommandResult]
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = name
        self.group = f"readers of {name}"
        self.address = f"sqlite:///{folder / 'offsets.db'}"
        self.plan_file = folder / "failover.plan.json"
        self._runner = runner

    @property
    def mirrored(self) -> str:
        """The mirrored topic's name."""
        return f"a.{self.topic}"

    # ------------------------------------------------------------ the destination

    def deliver(self, *counts: int, topic: str | None = None, burst: int = 4, segment: str = ONE_SEGMENT) -> None:
        """Make the mirrored topic and write ``counts[p]`` records to partition p: a marker follows every burst."""
        self.cluster.create_topic(topic or self.mirrored, len(counts), {"segment.ms": segment})
        self.append({partition: range(count) for partition, count in enumerate(counts)}, topic=topic, burst=burst)

    def append(self, numbers: Mapping[int, Iterable[int]], *, topic: str | None = None, burst: int = 4) -> None:
        """Write more records, in transactions."""
        from confluent_kafka import Producer

        name = f"{self.topic}-{time.monotonic_ns()}"
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(30)
        waiting = [(partition, number) for partition, each in numbers.items() for number in each]
        for first in range(0, len(waiting), burst):
            producer.begin_transaction()
            for partition, number in waiting[first : first + burst]:
                record = source_record(number, partition)
                producer.produce(
                    topic or self.mirrored,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp=record.timestamp_ms,
                    headers=[("message-id", record.id)],
                )
            producer.commit_transaction(30)

    def offset_of(self, number: int, partition: int = 0, topic: str | None = None) -> int:
        """Where the destination holds a record; found by reading the log from its start with a plain client."""
        wanted = source_record(number, partition).id
        for offset, headers in self.read_log(partition, topic):
            if ("message-id", wanted) in headers:
                return offset
        raise LookupError(f"record {number} is not in {topic or self.mirrored}-{partition}")

    def read_log(self, partition: int = 0, topic: str | None = None) -> list[tuple[int, list[tuple[str, bytes]]]]:
        from confluent_kafka import Consumer, KafkaError
        from confluent_kafka import TopicPartition as KafkaPartition

        settings = {"bootstrap.servers": self.cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        at_once = {"fetch.wait.max.ms": 10}  # a broker keeps an answer back for half a second, at the log's end
        consumer = Consumer({**settings, **at_once, "auto.offset.reset": "earliest", "enable.partition.eof": True})
        try:
            consumer.assign([KafkaPartition(topic or self.mirrored, partition, 0)])
            found = []
            while True:
                message = consumer.poll(30)
                assert message is not None, "the log's end did not come"
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    return found
                found.append((message.offset(), message.headers() or []))
        finally:
            consumer.close()

    # ------------------------------------------------------------ the store

    def save(
        self, rows: Mapping[int, StoredOffset | None], *, topic: str | None = None, address: str | None = None
    ) -> None:
        """Put the job's rows into its store, replacing what is there; None removes a row."""
        store = self._open(address)
        try:
            store.create()
            names = {row.key: row.version for row in store.read(self.group)}
            keys = {TopicPartition(topic or self.topic, partition): stored for partition, stored in rows.items()}
            changes = [Change(key, names.get(key), stored) for key, stored in keys.items()]
            assert not store.write(self.group, changes, reason="test", now_ms=BEGIN).conflicts
        finally:
            store.close()

    def processed(self, *numbers: int) -> None:
        """The job has processed records up to ``numbers[p]`` of each partition p, on the source."""
        self.save({partition: source_record(number, partition).stored for partition, number in enumerate(numbers)})

    def rows(self, address: str | None = None) -> list[Row]:
        """All rows of the job's group with their versions: equal lists mean that nothing was written between."""
        store = self._open(address)
        try:
            return store.read(self.group)
        finally:
            store.close()

    def offsets(self, topic: str | None = None) -> dict[int, int]:
        """Stored offsets of one topic by partition (of the mirrored one, if none is named)."""
        return {
            row.key.partition: row.stored.offset for row in self.rows() if row.key.topic == (topic or self.mirrored)
        }

    def _open(self, address: str | None) -> Any:
        client = {"bootstrap.servers": self.cluster.bootstrap}
        return open_store(address or self.address, kafka_client=client)

    # ------------------------------------------------------------ commands

    def job(
        self,
        name: str = "clicks",
        *topics: str,
        store: str | None = None,
        new: str | None = None,
        sink: str | None = None,
        **identity: str,
    ) -> str:
        """A ``[[jobs]]`` table; with ``new`` the job is called new, and starts there."""
        lines = [f'{key} = "{value}"' for key, value in {"id": "header:message-id", **identity}.items()]
        return (
            f"[[jobs]]\nhome = 'a'\nname = {json.dumps(name)}\ngroup = {json.dumps(self.group)}\n"
            f"topics = {json.dumps(list(topics) or [self.topic])}\n"
            f"offsets = {json.dumps(store or self.address)}\n"
            + (f"new = {json.dumps(new)}\n" if new else "")
            + (f"sink = {json.dumps(sink)}\n" if sink else "")
            + "[jobs.identity]\n"
            + "\n".join(lines)
        )

    def config(
        self,
        *jobs: str,
        bootstrap: str | None = None,
        extra: str = "",
        source: str = "",
        lives: str | None = None,
        to: str | None = None,
    ) -> Path:
        """Write the configuration: ``extra`` is more TOML between the clusters and the jobs.

        Its state store knows no job; with ``lives`` they live there, with ``to`` they live at home, and are moving.
        """
        path = self.folder / f"reconciler-{time.monotonic_ns()}.toml"
        servers = json.dumps(bootstrap or self.cluster.bootstrap)
        head = f"[clusters.a]\n{source}\n[clusters.b]\nbootstrap_servers = {servers}"
        text = "\n".join([head, extra, *(jobs or (self.job(),)), ""])
        path.write_text(secrets_in_files(text, self.folder), encoding="utf-8")
        return with_empty_state(path) if lives is None and to is None else with_state(path, lives=lives, to=to)

    def run(self, *arguments: object) -> CommandResult:
        """Run a command in this process, as ``reconciler ARGUMENTS`` would."""
        return self._runner([str(argument) for argument in arguments])

    def plan(self, config: Path, *arguments: object) -> dict[str, Any]:
        """Make the plan file; its content."""
        ended = self.run("plan", "-c", config, "-o", self.plan_file, *arguments)
        assert ended.code in (0, 4), ended.output
        return json.loads(self.plan_file.read_text())

    def checked(self, config: Path, *arguments: object) -> dict[int, dict[str, Any]]:
        """The only job's rows by partition, from ``check --format json``."""
        ended = self.run("plan", "-c", config, "--format", "json", *arguments)
        assert ended.out, ended.err
        (job,) = json.loads(ended.out)["jobs"]
        return {row["partition"]: row for row in job["partitions"]}


_PLAIN_SECRET = re.compile(
    r"""^(?P<key>\S*(?:password|secret|key\.pem|jaas\.config)"?|store|offsets)\ =\ (?P<value>"(?!file:|\$\{).*")$""",
    re.MULTILINE | re.VERBOSE,
)


def secrets_in_files(text: str, folder: Path) -> str:
    """A configuration whose plain passwords, and addresses with one, have gone to files of their own."""

    def to_file(found: re.Match[str]) -> str:
        value = json.loads(found["value"])
        if found["key"] in ("store", "offsets") and not re.search(r"://[^/]*:[^/]*@", value):
            return found[0]
        place = folder / f"secret-{time.monotonic_ns()}"
        place.write_text(value, encoding="utf-8")
        return f"{found['key']} = {json.dumps(f'file:{place}')}"

    return _PLAIN_SECRET.sub(to_file, text)


def commands_here(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], CommandResult]:
    """Runs commands in this process, for ``World``."""

    def runner(arguments: list[str]) -> CommandResult:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        return CommandResult(code, *capsys.readouterr())

    return runner


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a ``reconciler`` of its own."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def run_process(*arguments: object, options: tuple[str, ...] = (), **more: str) -> CommandResult:
    """Run ``python -m reconciler`` as a process of its own."""
    command = [sys.executable, *options, "-m", "reconciler", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, env=environment(**more), check=False)
    return CommandResult(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def free_port() -> int:
    """A port with nothing behind it."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
