"""What MirrorMaker's own offsets skip if the source is lost while a mirror that was restarted sends records again.

    python -m tests.bench.running.mirror_offsets [--records 30000] [--location target|source] [--json FILE]

Starts two clusters and a MirrorMaker, which delivers everything and syncs a group that has read two fifths. Then it is
killed and started again, and as soon as the group's synced offset lies among the records that were sent again, the
source is lost. Printed is, by every record's content, what a start at MirrorMaker's offset skips, and what a job skips
and repeats that starts where ``reconciler check`` says: with the number alone, by MirrorMaker's checkpoints or also by
its offset syncs, and with the anchors that ``reconciler track`` kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.artifacts import kafka_jars
from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.bench.common import print_json
from tests.lab.kafka import KafkaCluster, MirrorMaker, commit_group

TOPIC, THERE, GROUP, PARTITIONS = "events", "a.events", "clicks", 2
PATIENCE_S = 90
LINK_WAIT_MS = 10
SETTINGS = {
    "emit.heartbeats.enabled": "true",
    "b.offset.flush.interval.ms": "600000",  # after a kill it sends everything again
    # A narrow link: one batch of 20 records a fetch, and each fetch waits for more (LINK_WAIT_MS).
    "a.consumer.max.partition.fetch.bytes": "1",
    "a.consumer.fetch.min.bytes": "1000000",
    "b.producer.linger.ms": "0",
}

Numbers = Mapping[int, int]
"""The source's offset of each record of a destination's partition, by its place."""


@dataclass(frozen=True)
class Lost:
    """The source is gone. ``stored``: the group's offset at the source; ``synced``: MirrorMaker's, by partition.

    ``tracked`` is the configuration with the anchors that ``track`` kept.
    """

    destination: KafkaCluster
    config: Path
    tracked: Path
    stored: int
    synced: Mapping[int, int]
    there: Mapping[int, Numbers]

    def skipped(self, starts: Mapping[int, int]) -> int:
        """Records that the group has not read, and does not read from these offsets on."""
        return sum(
            len({each for each in numbers.values() if each >= self.stored} - _from(numbers, starts[partition]))
            for partition, numbers in self.there.items()
        )

    def repeated(self, starts: Mapping[int, int]) -> int:
        return sum(
            sum(at >= starts[partition] and number < self.stored for at, number in numbers.items())
            for partition, numbers in self.there.items()
        )


def _from(numbers: Numbers, start: int) -> set[int]:
    return {number for at, number in numbers.items() if at >= start}


@contextmanager
def lost_while_sending_again(
    folder: Path, jars: Path, count: int, location: str = "target", wait_ms: int = LINK_WAIT_MS
) -> Iterator[Lost]:
    """``count`` records in each partition, over a link on which 20 of them take ``wait_ms``."""
    stored = 2 * count // 5
    with KafkaCluster("a", folder / "a", jars) as source, KafkaCluster("b", folder / "b", jars) as destination:
        source.create_topic(TOPIC, PARTITIONS)
        produce(source, count)
        _until(lambda: committed(source, stored), "the group's coordinator")
        link = {"a.consumer.fetch.max.wait.ms": str(wait_ms)}
        settings = {**SETTINGS, **link, "offset-syncs.topic.location": location}
        mirror = MirrorMaker(source, destination, [TOPIC], folder / "mirror", jars, properties=settings).start()
        mirror.wait_until_mirrored(TOPIC)
        _until(lambda: len(synced(destination)) == PARTITIONS, "the group's offsets")
        config = configure(folder, destination, stored)
        tracked = config.with_name("tracked.toml")
        anchors = f'bootstrap_servers = "{source.bootstrap}"\n[anchors]\nstore = "sqlite:///{folder / "anchors.db"}"\n'
        tracked.write_text(config.read_text().replace("[destination]", f"{anchors}[destination]", 1))
        run("track", "-c", str(tracked), "--once")
        mirror.kill()
        mirror.start()
        _until(lambda: min(synced(destination).values()) > count, "an offset among the records that were sent again")
        mirror.kill()
        source.kill()
        there = {number: numbers(destination, number) for number in range(PARTITIONS)}
        yield Lost(destination, config, tracked, stored, synced(destination), there)


def run(*words: str) -> str:
    """What ``reconciler`` prints."""
    command = [sys.executable, "-m", "reconciler", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def produce(cluster: KafkaCluster, count: int) -> None:
    """Small batches, each record with its number as its value."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 20, "linger.ms": 5}
    producer = Producer(settings)
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        producer.poll(0)
        if number % 5_000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def committed(cluster: KafkaCluster, offset: int) -> bool:
    """Commit this offset in each partition; False if the coordinator is not ready yet."""
    from confluent_kafka import KafkaException

    try:
        commit_group(cluster, GROUP, TOPIC, dict.fromkeys(range(PARTITIONS), offset))
    except KafkaException:
        return False
    return True


def synced(cluster: KafkaCluster) -> dict[int, int]:
    """The offsets that MirrorMaker has synced for the group."""
    return cluster.group_offsets(GROUP, THERE)


def numbers(cluster: KafkaCluster, partition: int) -> dict[int, int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([KafkaPartition(THERE, partition, 0)])
    found: dict[int, int] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found[message.offset()] = int(message.value())
    consumer.close()
    return found


def configure(folder: Path, destination: KafkaCluster, stored: int) -> Path:
    """A job of the group's that has stored its numbers alone, in a table of its own."""
    address = f"sqlite:///{folder / 'offsets.db'}"
    store = open_store(address, kafka_client={})
    store.create()
    changes = [Change(TopicPartition(TOPIC, number), None, StoredOffset(stored)) for number in range(PARTITIONS)]
    assert store.write(GROUP, changes, reason="bench", now_ms=clock_ms()).written
    store.close()
    path = folder / "reconciler.toml"
    path.write_text(
        f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "{destination.bootstrap}"\n'
        f'[[jobs]]\nname = "{GROUP}"\ngroup = "{GROUP}"\ntopics = ["{TOPIC}"]\nstore = "{address}"\n'
    )
    return path


def _until(arrived: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not arrived():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=30_000, help="in each of the two partitions (default: 30000)")
    parser.add_argument("--location", choices=("target", "source"), default="target", help="of the offset syncs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jars = kafka_jars(print)
        with lost_while_sending_again(Path(folder), jars, options.records, options.location) as lost:
            held = sum(len(set(numbers.values())) for numbers in lost.there.values())
            sent = sum(len(numbers) for numbers in lost.there.values()) - held
            print(f"records {held:,}, sent again {sent:,}, stored offset {lost.stored:,} in each partition")
            rows = [{"starts": "MirrorMaker's", **outcome(lost, lost.synced, "MirrorMaker's offsets")}]
            without = lost.config.with_name("checkpoints.toml")
            nowhere = '[mirror]\noffset_syncs_topic = "nowhere"\n[destination]'
            without.write_text(lost.config.read_text().replace("[destination]", nowhere, 1))
            for what, config in (("checkpoints", without), ("offset syncs", lost.config), ("tracked", lost.tracked)):
                judged = json.loads(run("check", "-c", str(config), "--format", "json"))["jobs"][0]["partitions"]
                ours = {row["partition"]: row["resume_offset"] for row in judged}
                rows.append({"starts": what, **outcome(lost, ours, f"by {what}")})
                for row in judged:
                    print(f"    {row['verdict']}, at most {row['replay']['at_most']}: {row['detail']}")
            print(run("mirror", "-c", str(lost.config)))
    print_json("running.mirror_offsets", {**vars(options), "held": held, "sent_again": sent}, rows, options.json)


def outcome(lost: Lost, starts: Mapping[int, int], name: str) -> dict[str, int]:
    found = {"skipped": lost.skipped(starts), "repeated": lost.repeated(starts)}
    print(f"{name} {dict(starts)}: skip {found['skipped']:,}, repeat {found['repeated']:,}")
    return found


if __name__ == "__main__":
    main()
