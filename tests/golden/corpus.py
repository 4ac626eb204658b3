"""A failover in memory: jobs whose partitions have every verdict, and what a job stored of each."""

from __future__ import annotations

from tests.golden.internals import NOW_MS, Anchor, StoredOffset, fingerprint
from tests.golden.world import DESTINATION, SOURCE, World

BEGIN = 1_700_000_000_000
BASE = 700
"""The source's offset of record 0."""
WRITTEN = NOW_MS - 3_600_000


def content(number: int) -> tuple[int, bytes, bytes]:
    """Time, key and value of record ``number``: a second apart, except that 6 and 7 share one."""
    second = 6 if number == 7 else number
    return BEGIN + 1_000 * second, b"k%d" % number, b"v%d" % number


def stored(number: int, *, base: int = BASE, by: str = "id", lag: int = 0, topic: str = "events") -> StoredOffset:
    """What a job saved after record ``number``, told apart by id, fingerprint or time, or without anchor.

    ``lag``: the stored offset is so many offsets further than its anchor's.
    """
    stamp, key, value = content(number)
    if by == "nothing":
        return StoredOffset(base + number + 1, None, WRITTEN)
    named = {"id": b"id-%d" % number} if by == "id" else {}
    named |= {} if by == "time" else {"fingerprint": fingerprint(key, value)}
    anchor = Anchor(base + number, stamp, cluster_id="cluster-a", topic_id=f"cluster-a/{topic}", **named)
    return StoredOffset(base + number + 1 + lag, anchor, WRITTEN)


def deliver(world: World, topic: str, numbers: range, partition: int = 0, *, log: str = "destination") -> None:
    """Append copies of records to a topic, which is created if it is not there."""
    cluster = world.destination if log == "destination" else world.source
    if topic not in cluster.topic_ids:
        cluster.create(topic, 1)
    for number in numbers:
        stamp, key, value = content(number)
        cluster.partition(topic, partition).append(stamp, key, value, (("message-id", b"id-%d" % number),))


HEAD = f"""
[clusters.a]
bootstrap_servers = "{SOURCE}"
[clusters.b]
bootstrap_servers = "{DESTINATION}"
"""
JOB = """
[[jobs]]
home = "a"
name = "{name}"
topics = {topics}
offsets = "{store}"
[jobs.identity]
id = "{id}"
"""
OFFSETS = "sqlite:///offsets.db"


def job(name: str, topics: list[str], store: str = OFFSETS, id: str = "header:message-id") -> str:
    return JOB.format(name=name, topics=str(topics).replace("'", '"'), store=store, id=id)


class Estate:
    """Jobs that may start (``ready``), that need correcting (``clicks``) and that must not start (``stuck``)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ready()
        self._clicks()
        self._stuck()
        jobs = [
            job("ready", ["same", "fresh"]),
            job("clicks", ["events", "ties", "older"], id="none"),
            job("stuck", ["short", "cut", "fewer", "bare", "gone"]),
        ]
        self.head = HEAD
        self.jobs = "".join(jobs)
        world.file("reconciler.toml", self.head + self.jobs)

    def with_section(self, text: str, name: str = "reconciler.toml") -> None:
        """Write the configuration with another section."""
        self.world.file(name, f"{self.head}{text}\n{self.jobs}")

    def _ready(self) -> None:
        deliver(self.world, "a.same", range(10))
        self.world.destination.create("a.fresh", 1)
        self.world.store(OFFSETS, "ready", {("same", 0): stored(5, base=0, topic="same")})

    def _clicks(self) -> None:
        self.world.destination.create("a.events", 3)
        for partition in range(3):
            deliver(self.world, "a.events", range(10), partition)
        deliver(self.world, "a.ties", range(10))
        deliver(self.world, "a.older", range(10))
        events = {("events", partition): stored(3 + partition) for partition in range(2)}
        events[("events", 2)] = StoredOffset(-1, None, WRITTEN)
        events[("ties", 0)] = stored(6, by="time", topic="ties")
        events[("older", 0)] = stored(3, lag=4, topic="older", by="fingerprint")
        self.world.store(OFFSETS, "clicks", events)

    def _stuck(self) -> None:
        deliver(self.world, "a.short", range(3))
        deliver(self.world, "a.cut", range(20))
        self.world.destination.partition("a.cut", 0).delete_before(12)
        self.world.destination.create("a.fewer", 1)
        deliver(self.world, "a.fewer", range(10))
        deliver(self.world, "a.bare", range(10))
        rows = {
            ("short", 0): stored(5, topic="short"),
            ("cut", 0): stored(5, topic="cut"),
            ("fewer", 0): stored(4, topic="fewer"),
            ("fewer", 1): stored(5, topic="fewer"),
            ("bare", 0): stored(5, by="nothing"),
            ("gone", 0): stored(5, topic="gone"),
        }
        self.world.store(OFFSETS, "stuck", rows)


QUERY = "86b8d69f-40e2-47bc-acd1-662df118fed0"


class Checkpoint:
    """A Structured Streaming checkpoint of two partitions at ``checkpoint``, file by file as Spark writes it."""

    def __init__(self, world: World, *, committed: bool) -> None:
        self._world = world
        self._put("metadata", f'{{"id":"{QUERY}"}}')
        self._put("sources/0/0", '\0v1\n{"events":{"0":0,"1":0}}')
        self._offsets(0, '{"events":{"0":6,"1":7}}')
        self._offsets(1, '{"events":{"0":8,"1":9}}')
        self._put("commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
        if committed:
            self._put("commits/1", 'v1\n{"nextBatchWatermarkMs":0}')
        self._put("state/0/_metadata/metadata", 'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"}}')
        for batch in (1, 2):
            self._put(f"state/0/0/{batch}.delta", f"state {batch}")

    def _offsets(self, batch: int, line: str) -> None:
        metadata = f'{{"batchWatermarkMs":0,"batchTimestampMs":{WRITTEN},"conf":{{}}}}'
        self._put(f"offsets/{batch}", f"v1\n{metadata}\n{line}")

    def _put(self, name: str, text: str) -> None:
        path = self._world.file(f"checkpoint/{name}", text)
        (path.parent / f".{path.name}.crc").write_bytes(b"crc\0")


def tracked(world: World, *, committed: bool) -> None:
    """A query with a checkpoint and a state store, whose records are four offsets earlier at the destination."""
    Checkpoint(world, committed=committed)
    for log in (world.source, world.destination):
        log.create("events" if log is world.source else "a.events", 2)
    for partition in range(2):
        deliver(world, "events", range(14), partition, log="source")
        deliver(world, "a.events", range(4, 14), partition)
    world.file("reconciler.toml", HEAD + job("counts", ["events"], "checkpoint:checkpoint", id="none"))
    world.located()
