"""How ``reconciler watch`` bears many jobs for a long time: its memory, its scrapes, what the broker is asked.

    python -m tests.bench.running.watch_load [--jobs 200] [--partitions 3] [--minutes 10] [--every 10]
        [--json FILE]

Starts a broker, a topic a job, and one store; half of the jobs run on the source, the other half on the broker itself.
Then it scrapes once a second, and prints every half minute: resident memory and CPU seconds of the watch and of the
process that reads for it, open files and threads of the watch, the slowest scrape, scrapes that failed, rounds, and
requests a second: as the limit counts them, and as they passed through a go-between in front of the broker. With
``--outage MINUTE …`` the broker is gone at each, for ``--gone`` seconds. At the end: what a round took, and its
requests by kind, the first round aside.
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import NewTopic

from reconciler.artifacts import kafka_jars
from reconciler.clock import clock_ms
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.lab.kafka import HOST, free_ports
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.bench.common import below, cpu_s, memory_mb, print_json
from tests.lab.kafka import KafkaCluster

BEGIN_MS = 1_780_000_000_000
REPORT_S = 30
COLUMNS = (
    *("minute", "RSS MB", "CPU s", "files", "threads", "rounds", "overruns", "jobs up"),
    *("scrape s", "failed", "counted/s", "passed/s"),
)
KINDS = {
    **{1: "Fetch", 2: "ListOffsets", 3: "Metadata", 9: "OffsetFetch", 10: "FindCoordinator", 18: "ApiVersions"},
    **{32: "DescribeConfigs", 60: "DescribeCluster", 75: "DescribeTopicPartitions"},
}


class Counting:
    """Passes connections on to ``port`` of the broker, and counts the requests by their kind (Kafka's api_key)."""

    def __init__(self, here: int, port: int) -> None:
        self.seen: Counter[str] = Counter()
        self._port = port
        self._server = socket.create_server((HOST, here), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            try:
                broker = socket.create_connection((HOST, self._port))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        held = b""
        with suppress(OSError):
            while part := client.recv(1 << 16):
                broker.sendall(part)
                held += part
                while len(held) >= 6:
                    length, kind = struct.unpack(">ih", held[:6])
                    if len(held) < 4 + length:
                        break
                    held = held[4 + length :]
                    self.seen[KINDS.get(kind, f"kind {kind}")] += 1
        _end(client, broker)

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while part := broker.recv(1 << 16):
                client.sendall(part)
        _end(client, broker)


def _end(*both: socket.socket) -> None:
    for each in both:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--limit", type=int, default=50, help="requests a second")
    parser.add_argument("--store", help="the address of the jobs' store (default: one SQLite file)")
    parser.add_argument("--outage", type=float, metavar="MINUTE", nargs="*", default=[])
    parser.add_argument("--gone", type=float, metavar="SECONDS", default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        options.store = options.store or f"sqlite:///{place}/offsets.db"
        plain, controller, counted, front = free_ports(4)
        doors = {"PLAINTEXT": plain, "COUNTED": front}
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,COUNTED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in doors.items()),
        }
        cluster = KafkaCluster(
            "b", place / "b", kafka_jars(print), listeners={"COUNTED": counted}, properties=properties
        )
        cluster.brokers[0].ports = (plain, controller)
        counting = Counting(front, counted)
        with cluster:
            fill(cluster, options)
            store(cluster, options)
            rows = watch(place, write_config(place, f"{HOST}:{front}", options), cluster, counting, options)
    print_json("running.watch_load", vars(options), rows, options.json)


# ---------------------------------------------------------------- what is watched


def topics(options: argparse.Namespace) -> list[str]:
    return [f"a.topic-{number}" for number in range(options.jobs)]


def fill(cluster: KafkaCluster, options: argparse.Namespace) -> None:
    """Records a second apart, the same in every partition of every topic."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
    new = [NewTopic(topic, num_partitions=options.partitions, replication_factor=1) for topic in topics(options)]
    for made in cluster.admin().create_topics(new, operation_timeout=60).values():
        made.result()
    for topic in topics(options):
        for partition in range(options.partitions):
            for number in range(options.records):
                stamp = BEGIN_MS + number * 1000
                producer.produce(topic, b"v%d" % number, b"k%d" % number, partition=partition, timestamp=stamp)
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker does not take the records")


def store(cluster: KafkaCluster, options: argparse.Namespace) -> None:
    """Offsets behind the middle record. Every other job runs on the broker itself."""
    described = cluster.admin().describe_topics(TopicCollection(topics(options)))
    middle = options.records // 2
    name = fingerprint(b"k%d" % middle, b"v%d" % middle)
    offsets = open_store(options.store, kafka_client={"bootstrap.servers": cluster.bootstrap})
    offsets.create()
    for number, topic in enumerate(topics(options)):
        here = number % 2 == 0
        at = middle if here else 9_000
        ids = (cluster.cluster_id, str(described[topic].result().topic_id)) if here else ("the-source", "its-topic")
        stored = StoredOffset(at + 1, Anchor(at, BEGIN_MS + middle * 1000, None, name, *ids))
        in_a_group = options.store.startswith("kafka-group:")  # it only knows the cluster's own topics
        keys = [TopicPartition(topic if here or in_a_group else topic[2:], n) for n in range(options.partitions)]
        changes = [Change(key, None, stored) for key in keys]
        offsets.write(f"group-{number}", changes, reason="benchmark", now_ms=clock_ms())
    offsets.close()


def write_config(place: Path, bootstrap: str, options: argparse.Namespace) -> Path:
    tables = "".join(
        f'[[jobs]]\nname = "job-{number}"\ngroup = "group-{number}"\ntopics = ["topic-{number}"]\n'
        f'store = "{options.store}"\n'
        for number in range(options.jobs)
    )
    path = place / "reconciler.toml"
    path.write_text(
        f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "{bootstrap}"\n'
        f"[watch]\nrequests_per_second = {options.limit}\n{tables}"
    )
    return path


# ---------------------------------------------------------------- watching it


def watch(
    place: Path, config: Path, cluster: KafkaCluster, counting: Counting, options: argparse.Namespace
) -> list[dict[str, Any]]:
    log = place / "watch.log"
    command = [sys.executable, "-m", "reconciler", "watch", "-c", str(config), "--every", f"{options.every:g}"]
    with log.open("w") as written:
        process = subprocess.Popen([*command, "--listen", f"{HOST}:0"], stderr=written)
    try:
        while (found := re.search(r"http://\S+", log.read_text())) is None:
            time.sleep(0.1)
        return observe(process, found[0], cluster, counting, options)
    finally:
        process.terminate()
        print(f"exit code {process.wait(60)}; it said:\n{log.read_text()}")


def observe(
    process: subprocess.Popen[bytes], url: str, cluster: KafkaCluster, counting: Counting, options: argparse.Namespace
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    print(" ".join(f"{name:>10}" for name in COLUMNS))
    began = time.monotonic()
    missed, slowest, requests_before, reported, outages = 0, 0.0, 0.0, 0, sorted(options.outage)
    seen: Counter[str] = Counter()
    for tick in range(int(options.minutes * 60)):
        time.sleep(max(0.0, began + tick - time.monotonic()))
        if outages and cluster.running and tick >= outages[0] * 60:
            cluster.stop()
            print(f"{tick / 60:6.1f}   the broker is gone")
        elif outages and not cluster.running and tick >= outages[0] * 60 + options.gone:
            outages.pop(0)
            threading.Thread(target=cluster.restart).start()
            print(f"{tick / 60:6.1f}   the broker comes back")
        asked = time.monotonic()
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        except OSError as error:
            missed += 1
            print(f"{tick / 60:6.1f}   missed: {error}")
            continue
        slowest = max(slowest, time.monotonic() - asked)
        if tick - reported >= REPORT_S or tick == 0:
            values = dict(re.findall(r"^(reconciler_\w+) (\S+)$", text, re.MULTILINE))
            up = len(re.findall(r"^reconciler_up\{.*\} 1\.0$", text, re.MULTILINE))
            requests, passed = float(values["reconciler_requests_total"]), counting.seen - seen
            rate = [(requests - requests_before) / REPORT_S, passed.total() / REPORT_S]
            proc, processes = Path(f"/proc/{process.pid}"), below(process.pid)
            rounds = [int(float(values[f"reconciler_watch_{name}_total"])) for name in ("rounds", "overruns")]
            cells = [
                *(round(tick / 60, 1), sum(map(memory_mb, processes)), round(sum(map(cpu_s, processes)), 1)),
                *(len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())), *rounds),
                *(up, round(slowest, 3), missed, round(rate[0], 1), round(rate[1], 1)),
            ]
            print(" ".join(f"{cell:>10}" for cell in cells), flush=True)
            rows.append({**dict(zip(COLUMNS, cells, strict=True)), "passed": dict(counting.seen)})
            reported, slowest, requests_before, seen = tick, 0.0, requests, Counter(counting.seen)
    tell_a_round(rows)
    return rows


def tell_a_round(rows: Sequence[Mapping[str, Any]]) -> None:
    """Between the first report with a round done and the last."""
    done = [row for row in rows if row["rounds"]]
    if not done or (rounds := done[-1]["rounds"] - done[0]["rounds"]) == 0:
        print("too short for a figure of a round")
        return
    first, last = done[0], done[-1]
    kinds = Counter(last["passed"]) - Counter(first["passed"])
    print(f"a round: {(last['CPU s'] - first['CPU s']) / rounds:.2f} s of CPU, {kinds.total() / rounds:.0f} requests:")
    print("  " + ", ".join(f"{kind} {count / rounds:.1f}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    main()
