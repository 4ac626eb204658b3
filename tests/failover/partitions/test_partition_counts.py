"""Topics that a forwarder wrote on to more or fewer partitions, by key or in turn, and jobs that stopped in them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any
from zlib import crc32

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.places.memory import MemoryStore
from tests.in_memory import BEGIN, GROUP, Memory

RECORDS = 60
"""A source partition."""
DRAWS = 5
KINDS = ("keyed", "in turn")
NARROWER = pytest.mark.parametrize(("partitions", "wanted"), [(2, 1), (5, 3)])
WIDER = pytest.mark.parametrize(("partitions", "wanted"), [(1, 3), (2, 3), (4, 6)])


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as a log holds it; its value is its number among all of its source topic's."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that has processed the first records of each source partition; ``done`` are their numbers."""

    rows: Mapping[int, StoredOffset]
    done: frozenset[int]


def stopped(sent: Sequence[Sent], counts: Mapping[int, int]) -> Stopped:
    """``counts``: how many records it has processed of each partition; where it is none there is no row."""
    rows, done = {}, set()
    for partition, number in counts.items():
        processed = [record for record in sent if record.partition == partition][:number]
        done |= {record.number for record in processed}
        if processed:
            last = processed[-1]
            digest = fingerprint(last.key, last.value)
            anchor = Anchor(last.offset, last.timestamp_ms, None, digest, "the-source", "the-source-topic")
            rows[partition] = StoredOffset(last.offset + 1, anchor, last.timestamp_ms)
    return Stopped(rows, frozenset(done))


def somewhere(sent: Sequence[Sent], seed: int) -> Stopped:
    """Stopped at a random place of each partition, behind its first record."""
    rng = random.Random(seed)
    sizes = Counter(record.partition for record in sent)
    return stopped(sent, {partition: rng.randint(1, sizes[partition]) for partition in sorted(sizes)})


def broken_promises(rows: Mapping[int, Mapping[str, Any]], held: Sequence[Sent], job: Stopped) -> Iterator[str]:
    """``rows``: a plan's, as JSON values, by partition; ``held``: all records of the destination."""
    for partition, row in rows.items():
        resume, replay = row["resume_offset"], row["replay"]
        what = f"{row['finding']} {partition}, resume {resume}:"
        if resume is None:
            continue
        here = [record for record in held if record.partition == partition]
        lost = [record.offset for record in here if record.offset < resume and record.number not in job.done]
        again = sum(record.offset >= resume and record.number in job.done for record in here)
        if lost:
            yield f"{what} skips {lost}"
        if again > replay["at_most"]:
            yield f"{what} replays {again}, promised at most {replay['at_most']}"
        if replay["exact"] not in (None, again):
            yield f"{what} replays {again}, promised exactly {replay['exact']}"


class Partitioner:
    """Chooses a record's partition by its key, or the next one."""

    def __init__(self, kind: str, partitions: int) -> None:
        self._keyed, self._partitions, self._turn = kind == "keyed", partitions, -1

    def choose(self, key: bytes) -> int:
        self._turn += 1
        return (crc32(key) if self._keyed else self._turn) % self._partitions


def sent_by(kind: str, partitions: int, rng: random.Random) -> list[Sent]:
    """All records of the source topic, in the order of their times."""
    partitioner, ends, stamp = Partitioner(kind, partitions), [0] * partitions, BEGIN
    sent = []
    for number in range(RECORDS * partitions):
        stamp += 1_000 * rng.choice((0, 1, 2))
        key = b"%d" % rng.randrange(40)
        to = partitioner.choose(key)
        sent.append(Sent(to, ends[to], number, stamp, key, b"%d" % number))
        ends[to] += 1
    return sent


def interleaved(rng: random.Random, sent: Iterable[Sent]) -> Iterator[Sent]:
    """Each partition's in order, some of one and some of another: as fetches bring them."""
    waiting: dict[int, list[Sent]] = {}
    for record in sent:
        waiting.setdefault(record.partition, []).append(record)
    while waiting:
        partition = rng.choice(sorted(waiting))
        size = rng.randint(1, 6)
        yield from waiting[partition][:size]
        waiting[partition] = waiting[partition][size:]
        if not waiting[partition]:
            del waiting[partition]


@dataclass
class Estate:
    """A source topic, and a destination in memory that all of its records were written on to."""

    memory: Memory
    partitions: int
    wanted: int
    sent: list[Sent]
    held: list[Sent]
    stores: Iterator[int] = field(default_factory=count)

    @classmethod
    def of(cls, memory: Memory, kind: str, partitions: int, wanted: int) -> Estate:
        rng, there = random.Random(1), Partitioner(kind, wanted)
        sent, held = sent_by(kind, partitions, rng), []
        memory.log.create("a.events", wanted)
        left = list(sent)
        while left:  # the forwarder is now and then some turns behind
            size = rng.randint(1, 30 * partitions)
            for record in interleaved(rng, left[:size]):
                to = there.choose(record.key or b"")
                made = memory.log.partition("a.events", to).append(record.timestamp_ms, record.key, record.value)
                held.append(replace(record, partition=to, offset=made.offset))
            del left[:size]
        return cls(memory, partitions, wanted, sent, held)

    def checked(self) -> dict[int, dict[str, Any]]:
        return {row.partition: row.to_json() for row in self.memory.job().partitions}

    def kept(self, job: Stopped) -> dict[int, dict[str, Any]]:
        """What a check says when it has kept its promises; the job has a store of its own."""
        self.memory.store = MemoryStore(f"{self.memory.folder}/{next(self.stores)}")
        self.memory.moved = False
        self.memory.save(job.rows)
        rows = self.checked()
        assert set(rows) >= set(range(self.wanted))
        broken = list(broken_promises(rows, self.held, job))
        assert not broken, ({number: row.offset for number, row in job.rows.items()}, broken)
        return rows

    def handed_over(self, job: Stopped) -> None:
        """From check to a second check."""
        rows = self.kept(job)
        resumes = {number: row["resume_offset"] for number, row in rows.items()}
        self.memory.apply()
        stored = {row.key.partition: row.stored.offset for row in self.memory.store.read(GROUP, ["a.events"])}
        assert stored == resumes
        again = self.memory.check()
        assert not again.to_write
        assert {row.finding.value for row in again.plan.jobs[0].partitions} <= {"exact", "new"}

    def is_noticed(self, rows: Iterable[int], job: Stopped) -> bool:
        """True if an anchor of these rows is not in the partition of its own number: nothing else tells."""
        there = {record.number: record.partition for record in self.held}
        number = {(record.partition, record.offset): record.number for record in self.sent}
        return any(there[number[partition, job.rows[partition].offset - 1]] != partition for partition in rows)

    def noticed(self) -> Iterator[Stopped]:
        """Jobs of one partition, safe in any case; else those with an anchor in a partition of another number."""
        jobs = (somewhere(self.sent, seed) for seed in count())
        return (job for job in jobs if self.partitions == 1 or self.is_noticed(job.rows, job))


@pytest.mark.parametrize("kind", KINDS)
@NARROWER
def test_with_fewer_partitions_the_promises_hold(memory: Memory, kind: str, partitions: int, wanted: int) -> None:
    estate = Estate.of(memory, kind, partitions, wanted)
    for seed in range(DRAWS):
        job = somewhere(estate.sent, seed)
        assert {row["finding"] for row in estate.kept(job).values()} == {"early"}
        estate.handed_over(job)


@pytest.mark.parametrize("kind", KINDS)
@WIDER
def test_with_more_partitions_the_promises_hold(memory: Memory, kind: str, partitions: int, wanted: int) -> None:
    estate = Estate.of(memory, kind, partitions, wanted)
    for job in islice(estate.noticed(), DRAWS):
        estate.handed_over(job)


@pytest.mark.parametrize("kind", KINDS)
@WIDER
def test_with_more_partitions_of_which_one_is_hardly_begun_the_promises_hold(
    memory: Memory, kind: str, partitions: int, wanted: int
) -> None:
    """Partitions that were never read then begin with records that are younger than the oldest anchor."""
    estate, judged = Estate.of(memory, kind, partitions, wanted), 0
    for seed in range(12):
        rng = random.Random(seed)
        counts = {number: rng.randint(1, RECORDS // 2) for number in range(partitions)}
        job = stopped(estate.sent, {**counts, rng.randrange(partitions): rng.randint(1, 2)})
        if estate.is_noticed(job.rows, job):
            estate.kept(job)
            judged += 1
    assert judged


@pytest.mark.parametrize("kind", KINDS)
@NARROWER
def test_with_fewer_partitions_of_which_one_is_unread_the_promises_hold(
    memory: Memory, kind: str, partitions: int, wanted: int
) -> None:
    """Without a row, or with one that says so. All records of that partition are unprocessed, wherever they lie."""
    estate = Estate.of(memory, kind, partitions, wanted)
    for unread in range(partitions):
        job = stopped(estate.sent, {number: 0 if number == unread else RECORDS // 2 for number in range(partitions)})
        if unread < partitions - 1:  # no row reveals that a last one exists
            estate.kept(job)
        estate.kept(replace(job, rows={**job.rows, unread: StoredOffset(-1)}))


@pytest.mark.parametrize("kind", KINDS)
def test_with_more_partitions_and_anchors_without_a_time_the_promises_hold(memory: Memory, kind: str) -> None:
    estate = Estate.of(memory, kind, 2, 3)
    for job in islice(estate.noticed(), 2 * DRAWS):
        timeless = {
            number: replace(row, anchor=replace(row.anchor, timestamp_ms=None))
            for number, row in job.rows.items()
            if row.anchor is not None
        }
        estate.kept(replace(job, rows=timeless))
