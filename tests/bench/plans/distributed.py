"""What a plan of many partitions costs on Spark's executors, beside the local engine.

    python -m tests.bench.plans.distributed [--partitions 10000] [--records 20] [--brokers 1] [--per-task 2000]
        [--json FILE]

Starts brokers, makes topics of 2,500 partitions each, writes the records, stores moved offsets, and plans with
--engine local and with --engine spark on a small cluster of Spark's (local-cluster: two executors in processes of their
own). Prints wall and CPU seconds (of all processes, looked at ten times a second), the memory of every process, whether
the plans are the same, and for one task alone its requests to the broker and their bytes. ``--driver-only N``: no
servers; what N stored offsets cost the driver (reading the store, cutting tasks, making the plan).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reconciler.artifacts import kafka_jars
from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.verdicts import Finding, Verdict
from reconciler.engine import Inquiry, Outcome, SearchResult
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import Change, TopicPartition
from reconciler.spark.distributed.tasks import Orders, answered, tasks_of
from reconciler.stores.registry import open_store
from tests.bench.common import below, cpu_s, memory_mb, print_json
from tests.bench.plans.speed import BEGIN_MS, fill, value
from tests.lab.kafka import KafkaCluster

PER_TOPIC = 2_500
STATISTICS_MS = 1_000
EXECUTORS = {
    "spark.master": "local-cluster[2,1,512]",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=20, help="records a partition, of about 90 bytes")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--per-task", type=int, default=2_000)
    parser.add_argument("--task-only", action="store_true", help="only one task's requests")
    parser.add_argument("--driver-only", type=int, metavar="N")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = drive(place, options.driver_only) if options.driver_only else compare(place, options)
    versions = {"spark": importlib.metadata.version("pyspark")}
    print_json("plans.distributed", vars(options), rows, options.json, versions=versions)


# ---------------------------------------------------------------- both engines on real brokers


def compare(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    topics = [f"events-{number}" for number in range(-(-options.partitions // PER_TOPIC))]
    each = options.partitions // len(topics)
    # A partition takes three files and, as the lab has it, maps of its indexes: small ones keep a broker small.
    properties = {"log.index.size.max.bytes": "4096", "num.network.threads": "2", "num.io.threads": "4"}
    jars = kafka_jars(print)
    with KafkaCluster("b", place / "b", jars, brokers=options.brokers, heap="2g", properties=properties) as cluster:
        began = time.perf_counter()
        for topic in topics:
            fill(cluster, topic, each, options.records)
        print(f"{each * len(topics):,} partitions made and filled in {time.perf_counter() - began:.0f} s")
        print(f"broker: {memory_mb(cluster.pid):,} MB resident")
        config = write_config(place, cluster.bootstrap, topics)
        save(place, topics, each, options.records // 2)
        rows = {} if options.task_only else compare_engines(place, config, options.per_task)
        return {**rows, "one task": count_requests(cluster.bootstrap, config, topics, options.per_task)}


def compare_engines(place: Path, config: Path, per_task: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    rows["local"], local = planned(place, config, "local", [])
    (place / "events").mkdir()
    settings = {**EXECUTORS, "spark.eventLog.dir": (place / "events").as_uri()}
    conf = [part for name, text in settings.items() for part in ("--conf", f"{name}={text}")]
    spark = ["--engine", "spark", "--per-task", str(per_task), *conf]
    rows["spark"], distributed = planned(place, config, "spark", spark)
    rows["same plan"] = distributed == local
    print("the same plan but for times:", rows["same plan"])
    tell_tasks(place / "events")
    return rows


def planned(place: Path, config: Path, name: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """Make a plan in a process of its own: what it cost, and its jobs without what a slow broker changes."""
    path = place / f"{name}.json"
    peak: dict[str, int] = defaultdict(int)
    used: dict[int, float] = {}
    began = time.perf_counter()
    command = [sys.executable, "-m", "reconciler", "plan", "-c", str(config), "-o", str(path), *arguments]
    home = spark_home(place)
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
    )
    watching = threading.Thread(target=watch, args=(process, peak, used))
    watching.start()
    _, said = process.communicate()
    watching.join()
    if process.returncode != 0:
        sys.exit(said.decode())
    took, cpu = time.perf_counter() - began, sum(used.values())
    print(f"--engine {name}: {took:.1f} s, {cpu:.1f} s of CPU in all its processes")
    print("  memory at most, MB: " + ", ".join(f"{what} {top:,}" for what, top in sorted(peak.items())))
    plan = json.loads(path.read_text())
    rows = [row for job in plan["jobs"] for row in job["partitions"]]
    probes = sum(row["evidence"].pop("probes") for row in rows) / len(rows)
    rounds = max(row["evidence"].pop("rounds") for row in rows)
    print(f"  {len(rows):,} rows, {probes:.2f} probes each, {rounds} rounds, plan of {path.stat().st_size:,} bytes")
    cost = {"wall_s": took, "cpu_s": cpu, "peak_mb": dict(peak)}
    return {**cost, "rows": len(rows), "probes_a_row": probes, "rounds": rounds}, plan["jobs"]


def tell_tasks(events: Path) -> None:
    """What Spark noted of the search: without the start of the cluster, which here are five processes."""
    (log,) = [path for path in events.iterdir() if path.suffix != ".crc"]
    told = [json.loads(line) for line in log.read_text().splitlines()]
    begun = [each["Submission Time"] for each in told if each["Event"] == "SparkListenerJobStart"]
    ended = [each["Completion Time"] for each in told if each["Event"] == "SparkListenerJobEnd"]
    ran = [each["Task Metrics"]["Executor Run Time"] for each in told if each["Event"] == "SparkListenerTaskEnd"]
    wall = sum(end - start for start, end in zip(begun, ended, strict=True)) / 1000
    print(f"  Spark's jobs took {wall:.1f} s: {len(ran)} tasks of {min(ran) / 1000:.1f} to {max(ran) / 1000:.1f} s")


def count_requests(bootstrap: str, config: Path, topics: Sequence[str], per_task: int) -> dict[str, float]:
    """Run one task here, with a client that counts what it sends and receives."""
    heard: list[str] = []
    client = {"bootstrap.servers": bootstrap, "statistics.interval.ms": STATISTICS_MS, "stats_cb": heard.append}
    loaded = load_config(config)
    first = Counted()
    reader = KafkaLogReader({"bootstrap.servers": bootstrap})
    outside = Outside(reader, open_store, time.monotonic, lambda: BEGIN_MS, run=first)
    with suppress(Stop):
        check(loaded, loaded.jobs, outside)
    tasks = tasks_of(first.asked[:per_task], {}, per_task)
    cpu = time.process_time()
    answer = answered(tasks[0], Orders(client, 10.0, 300.0, 0), Lingering)
    used = time.process_time() - cpu
    print(f"one task of {len(answer.found):,} partitions: {len(tasks[0]):,} bytes, {used:.2f} s of CPU")
    sums: dict[str, int] = defaultdict(int)
    last = {said["name"]: said["brokers"] for said in map(json.loads, heard)}
    for brokers in last.values():
        for broker in brokers.values():
            for kind, count in broker["req"].items():
                sums[kind] += count
            sums["bytes sent"] += broker["txbytes"]
            sums["bytes received"] += broker["rxbytes"]
    print("  " + ", ".join(f"{kind} {count:,}" for kind, count in sums.items() if count))
    return {"partitions": len(answer.found), "bytes": len(tasks[0]), "cpu_s": used, **sums}


class Lingering(KafkaLogReader):
    """Waits before the end, until its clients have told what they counted."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders.client, timeout_s=orders.timeout_s)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.poll(3 * STATISTICS_MS / 1000)
        super().close()


class Stop(Exception):
    """Enough is known."""


class Counted:
    """Keeps the inquiries of a check's first pass, and ends it."""

    def __init__(self) -> None:
        self.asked: list[Inquiry[Any]] = []

    def __call__(self, _: Any, inquiries: Any, /, **_more: Any) -> Any:
        self.asked = list(inquiries.values())
        raise Stop


def spark_home(place: Path) -> Path:
    """Executors' working directories would else be in the installed package."""
    import pyspark

    home = place / "spark"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def watch(process: subprocess.Popen[bytes], peak: dict[str, int], used: dict[int, float]) -> None:
    """Until it ends: the largest resident memory of each kind of process below, in MB; each one's CPU seconds."""
    while process.poll() is None:
        now: dict[str, int] = defaultdict(int)
        for pid in below(process.pid):
            kind = kind_of(pid)
            now[kind] = max(now[kind], memory_mb(pid))
            used[pid] = max(used.get(pid, 0.0), cpu_s(pid))
        for kind, size in now.items():
            peak[kind] = max(peak[kind], size)
        time.sleep(0.1)


def kind_of(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "gone"
    if "CoarseGrainedExecutorBackend" in command:
        return "executor's JVM"
    if "pyspark.daemon" in command or "pyspark.worker" in command:
        return "executor's Python"
    return "driver's JVM" if "SparkSubmit" in command else "driver's Python" if "reconciler" in command else "other"


# ---------------------------------------------------------------- the driver alone


def drive(place: Path, count: int) -> dict[str, Any]:
    """Everything but the searches: their findings are made up, as long as real ones are."""
    topics = [f"events-{number}" for number in range(-(-count // PER_TOPIC))]
    began = time.process_time()
    save(place, topics, PER_TOPIC, 10)
    print(f"{count:,} offsets stored in {time.process_time() - began:.1f} s (not a part of a plan's cost)")
    config = load_config(write_config(place, "127.0.0.1:1", topics))
    sizes: list[int] = []

    def run(_: Any, inquiries: Any, /, **_more: Any) -> Any:
        keys, asked = list(inquiries), list(inquiries.values())
        if keys:
            at = time.process_time()
            sizes.extend(len(task) for task in tasks_of(asked, leaders(asked), 2_000))
            print(
                f"{len(sizes)} tasks of {sum(sizes) / len(asked):.0f} bytes a partition, cut in "
                f"{time.process_time() - at:.1f} s"
            )
        finding = Finding(
            Verdict.MOVED, 11, 0, 0, "fingerprint", 10, "the anchor's record was found; all behind it read"
        )
        return Outcome({key: SearchResult(finding, 3, 2) for key in keys}, {}, 2)

    outside = Outside(Described(topics), lambda address: open_store(address), time.monotonic, lambda: BEGIN_MS, run=run)
    began = time.process_time()
    plan = check(config, config.jobs, outside).plan
    checked_s, began = time.process_time() - began, time.process_time()
    print(f"checked in {checked_s:.1f} s of CPU, tasks included")
    length, made_s = len(plan.to_text()), time.process_time() - began
    print(f"plan of {length:,} bytes, made in {made_s:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"memory at most: {peak:,} MB")
    return {
        "checked_cpu_s": checked_s,
        "made_cpu_s": made_s,
        "plan_bytes": length,
        "tasks": len(sizes),
        "peak_mb": peak,
    }


def leaders(asked: Sequence[Inquiry[Any]]) -> dict[TopicPartition, int]:
    return {each.partition: each.partition.partition % 100 for each in asked}


class Described:
    """A destination that can be described and has nothing else."""

    def __init__(self, topics: Sequence[str]) -> None:
        from reconciler.ports import ClusterInfo, TopicInfo

        numbers = tuple(range(PER_TOPIC))
        self._info = ClusterInfo("b", {name: TopicInfo(name, f"id-of-{name}", numbers, False) for name in topics})

    def describe(self, _: Any) -> Any:
        return self._info


# ---------------------------------------------------------------- the job


def write_config(place: Path, bootstrap: str, topics: Sequence[str]) -> Path:
    path = place / "reconciler.toml"
    path.write_text(
        f'[destination]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n'
        '[search]\ndeadline = "300s"\n'
        f'[[jobs]]\nname = "moved"\ngroup = "moved"\ntopics = {json.dumps(list(topics))}\n'
        f'store = "sqlite:///{place}/offsets.db"\n'
    )
    return path


def save(place: Path, topics: Sequence[str], partitions: int, number: int) -> None:
    """Offsets right behind record ``number``, numbered by another cluster."""
    store = open_store(f"sqlite:///{place}/offsets.db")
    for topic in topics:
        changes = []
        for partition in range(partitions):
            digest = fingerprint(b"k%d" % number, value(partition, number))
            anchor = Anchor(9_000, BEGIN_MS + number * 1000, None, digest, "another-cluster", "another-topic")
            changes.append(Change(TopicPartition(topic, partition), None, StoredOffset(9_001, anchor)))
        store.write("moved", changes, reason="benchmark", now_ms=0)
    store.close()


if __name__ == "__main__":
    main()
