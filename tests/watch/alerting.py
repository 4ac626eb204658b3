"""Jobs that can go wrong each in its own way, a watch over all of them, and a Prometheus with the rules as shipped.

Faults are made on a real cluster and in real stores. Only the times of the rules are changed, since a test does not
wait 15 minutes, and only the intervals and addresses of the configuration.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.kafka.reader import KafkaLogReader
from reconciler.lab.kafka import HOST, free_ports
from reconciler.lab.processes import Child
from tests.lab.kafka import KafkaCluster
from tests.lab.servers.prometheus import PrometheusServer
from tests.mirror.written import CHECKPOINTS, checkpoint_key, checkpoint_value, text
from tests.waiting import wait_until
from tests.world import ROOT, CommandResult, World, run_process, source_record

T = TypeVar("T")
PROMETHEUS = ROOT / "deploy" / "prometheus"
EVERY_S = 2
FOR = "2s"
HOUR_MS = 3_600_000

HEAD = """
[source]
alias = "a"
[destination]
bootstrap_servers = "{bootstrap}"
[search]
deadline = "{deadline}"
[policy]
max_replay = 3
[watch]
requests_per_second = 1000
[metrics]
textfile = "{textfile}"
"""


def with_short_times(rules: str) -> str:
    """The rules, but for how long a condition must last, and how old the last whole check may be in any case."""
    text, count = re.subn(r"^( +for:) \S+$", rf"\1 {FOR}", rules, flags=re.MULTILINE)
    assert count == rules.count("for: "), "every 'for' stands on a line of its own"
    text, count = re.subn(r"\), 150\)$", "), 1)", text, flags=re.MULTILINE)
    assert count == 1, "the freshness of short rounds"
    return text


# ---------------------------------------------------------------- jobs, their faults and the way back


@dataclass(frozen=True, slots=True)
class Subject:
    """A job that is well once ``begin`` was called, until ``harm`` and again from ``heal``."""

    world: World
    begin: Callable[[World], None]
    harm: Callable[[World], None]
    heal: Callable[[World], None]


def has_read(number: int, *, age_ms: int = 0) -> Callable[[World], None]:
    """The job has processed records up to this one, on the source, and said so ``age_ms`` ago."""
    return lambda world: world.save({0: replace(source_record(number).stored, written_at_ms=clock_ms() - age_ms)})


def has_mirrored(count: int, number: int) -> Callable[[World], None]:
    """So many records are there, and the job has processed up to that one."""

    def act(world: World) -> None:
        world.deliver(count)
        has_read(number)(world)

    return act


def lives_here(number: int) -> Callable[[World], None]:
    """The job has processed records up to this one, on the watched cluster."""

    def act(world: World) -> None:
        reader = KafkaLogReader({"bootstrap.servers": world.cluster.bootstrap}, timeout_s=30)
        try:
            cluster = reader.describe([world.mirrored])
        finally:
            reader.close()
        offset, topic = world.offset_of(number), cluster.topics[world.mirrored]
        assert topic is not None
        anchor = replace(
            source_record(number).anchor, offset=offset, cluster_id=cluster.cluster_id, topic_id=topic.topic_id
        )
        world.save({0: StoredOffset(offset + 1, anchor, clock_ms())}, topic=world.mirrored)

    return act


def topic_is_deleted(world: World) -> None:
    world.cluster.admin().delete_topics([world.mirrored], operation_timeout=30)[world.mirrored].result(timeout=30)
    wait_until(lambda: world.cluster.partitions(world.mirrored) == 0, "the topic is gone")


def topic_is_recreated(world: World) -> None:
    """From a backup that begins later: the same records at other offsets."""
    topic_is_deleted(world)
    world.cluster.create_topic(world.mirrored)
    world.append({0: range(3, 9)})


def retention_passes(number: int) -> Callable[[World], None]:
    return lambda world: world.cluster.delete_records(world.mirrored, 0, world.offset_of(number))


def anchor_is_lost(world: World) -> None:
    world.save({0: StoredOffset(source_record(5).offset + 1, None, clock_ms())})


def anchor_stays_behind(world: World) -> None:
    """Ten records were read since the anchor was taken: more than ``max_replay``."""
    stored = source_record(2).stored
    world.save({0: replace(stored, offset=stored.offset + 10, written_at_ms=clock_ms())})


def store_is_gone(world: World) -> None:
    (world.folder / "offsets.db").rename(world.folder / "elsewhere.db")


def store_is_back(world: World) -> None:
    (world.folder / "elsewhere.db").rename(world.folder / "offsets.db")


def rows_are_gone(world: World) -> None:
    world.save({0: None})


def sink_has_batches(world: World) -> None:
    """Of a query that ran on another checkpoint: the failover's new one begins at batch 0."""
    log = world.folder / "output" / "_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_text("v1", encoding="utf-8")


def sink_is_another(world: World) -> None:
    (world.folder / "output").rename(world.folder / "old output")


def internal(world: World, topic: str, key: bytes, value: bytes) -> None:
    """A record as MirrorMaker writes it to a topic of its own."""
    from confluent_kafka import Producer

    if world.cluster.partitions(topic) == 0:
        world.cluster.create_topic(topic)
    producer = Producer({"bootstrap.servers": world.cluster.bootstrap})
    producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def mirror_has_synced(number: int) -> Callable[[World], None]:
    """MirrorMaker has put the group behind this record; the job had processed up to record 5."""

    def act(world: World) -> None:
        key, offset = checkpoint_key(world.group, world.mirrored), world.offset_of(number) + 1
        internal(world, CHECKPOINTS, key, checkpoint_value(source_record(5).offset + 1, offset))

    return act


def mirror_was_alive(age_ms: int) -> Callable[[World], None]:
    """The newest heartbeat is so old."""
    return lambda world: internal(
        world, "a.heartbeats", text("b") + text("a"), struct.pack(">hq", 0, clock_ms() - age_ms)
    )


def both(*acts: Callable[[World], None]) -> Callable[[World], None]:
    def act(world: World) -> None:
        for each in acts:
            each(world)

    return act


JOBS: Mapping[str, tuple[Callable[[World], None], Callable[[World], None], Callable[[World], None]]] = {
    "already": (both(lambda world: world.deliver(9), lives_here(5)), topic_is_recreated, lives_here(5)),
    "behind": (has_mirrored(6, 5), has_read(300), lambda world: world.append({0: range(6, 301)}, burst=100)),
    "budget": (has_mirrored(20, 12), anchor_stays_behind, has_read(12)),
    "idle": (has_mirrored(6, 5), has_read(5, age_ms=2 * HOUR_MS), has_read(5)),
    "lost": (has_mirrored(10, 2), retention_passes(5), has_read(8)),
    "missing": (has_mirrored(6, 5), topic_is_deleted, lambda world: world.deliver(6)),
    "synced": (
        both(has_mirrored(10, 5), mirror_has_synced(5)),
        both(mirror_has_synced(8), mirror_was_alive(HOUR_MS)),
        both(mirror_has_synced(5), mirror_was_alive(0)),
    ),
    "sunk": (has_mirrored(6, 5), sink_has_batches, sink_is_another),
    "unread": (has_mirrored(6, 5), store_is_gone, store_is_back),
    "rowless": (has_mirrored(6, 5), rows_are_gone, has_read(5)),
    "bare": (has_mirrored(6, 5), anchor_is_lost, has_read(5)),
    "well": (has_mirrored(6, 3), lambda world: None, lambda world: None),
}


class Night:
    """Everything that runs: the cluster and the jobs, the watch, the hook's figures, Prometheus."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.textfiles = folder / "textfiles"
        self.textfiles.mkdir()
        self.subjects = {name: self._subject(name) for name in JOBS}
        self.config = folder / "watch.toml"
        self._hook_config = folder / "hook.toml"
        self.config.write_text(self._text(deadline="2s"), encoding="utf-8")
        # No hook is to give up here, however busy the machine is.
        self._hook_config.write_text(self._text(deadline="60s"), encoding="utf-8")
        self._port = free_ports(1)[0]
        self.watch = self.start_watch()

    def _subject(self, name: str) -> Subject:
        def no_command(_: list[str]) -> CommandResult:
            raise AssertionError("commands run as processes of their own here")

        folder = self.folder / name
        folder.mkdir()
        return Subject(World(self.cluster, folder, name, no_command), *JOBS[name])

    def _text(self, *, deadline: str) -> str:
        head = HEAD.format(bootstrap=self.cluster.bootstrap, textfile=self.textfiles, deadline=deadline)
        sinks = {"sunk": f"files:{self.folder / 'sunk' / 'output'}"}
        jobs = [subject.world.job(name, sink=sinks.get(name)) for name, subject in self.subjects.items()]
        return "\n".join([head, *jobs, ""])

    # ------------------------------------------------------------ what happens

    def begin(self) -> None:
        for subject in self.subjects.values():
            subject.begin(subject.world)

    def harm(self) -> None:
        for subject in self.subjects.values():
            subject.harm(subject.world)

    def heal(self) -> None:
        for subject in self.subjects.values():
            subject.heal(subject.world)

    def hook(self, job: str) -> int:
        """What is in front of the job's start."""
        return run_process(
            "hook", "--to", "destination", "-c", self._hook_config, "--job", job, "--plans", self.folder / "plans"
        ).code

    def start_watch(self) -> Child:
        options = ["watch", "-c", str(self.config), "--listen", f"{HOST}:{self._port}", "--every", str(EVERY_S)]
        self.watch = Child("watch", [sys.executable, "-m", "reconciler", *options], self.folder / "watch.log", cwd=ROOT)
        return self.watch

    def reload(self, text: str) -> None:
        """Change the configuration, and ask for it to be read again."""
        self.config.write_text(text, encoding="utf-8")
        os.kill(self.watch.pid, signal.SIGHUP)

    def prometheus(self, figures_port: int) -> PrometheusServer:
        """A server with the configuration as shipped, other targets, and no patience."""
        folder = self.folder / "prometheus"
        folder.mkdir()
        rules = (PROMETHEUS / "reconciler.rules.yml").read_text(encoding="utf-8")
        (folder / "reconciler.rules.yml").write_text(with_short_times(rules), encoding="utf-8")
        shipped: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
        shipped["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        ports = {"reconciler": self._port, "node": figures_port}
        for scrape in shipped["scrape_configs"]:
            scrape["static_configs"] = [{"targets": [f"{HOST}:{ports.pop(scrape['job_name'])}"]}]
        assert not ports
        return PrometheusServer(folder, yaml.safe_dump(shipped))


@contextmanager
def textfile_collector(folder: Path) -> Iterator[int]:
    """What node_exporter's textfile collector does: serves what is in the folder's files. Gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = b"".join(path.read_bytes() for path in sorted(folder.glob("*.prom")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer((HOST, free_ports(1)[0]), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
