"""A small world to try the search in: a source partition, a mirror, a failover.

A case is made from a seed alone. The world keeps, for every offset of the destination, which source record lies there,
so that the oracle can say what was skipped and what was read again.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from reconciler.core.anchors import (
    Anchor,
    Identity,
    IdOrder,
    Names,
    Record,
    StoredOffset,
    fingerprint,
    record_timestamp,
)
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.engine import Found, Inquiry, run
from reconciler.ports import TopicPartition
from reconciler.readers.memory import MemoryLog, MemoryPartition

LOCAL = -1
"""What the oracle writes down for a record that a local writer made: never processed."""
SOURCE_BASE = 500
"""The source's first offset, so that the two numberings never agree by chance."""
PLACE = TopicPartition("events", 0)


@dataclass(frozen=True, slots=True)
class Made:
    """A record as its producer made it. ``event_ms`` is in the payload, ``stamp_ms`` is the Kafka timestamp."""

    event_ms: int
    stamp_ms: int
    id: bytes | None
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Case:
    """One partition's story. ``runs`` are the source indexes each run of the mirror delivered, in order.

    The cleaner has been over the first ``cleaned`` records; ``compacted`` is what the search is told about that.
    """

    seed: int
    source: tuple[Made, ...]
    processed: int
    runs: tuple[tuple[int, ...], ...]
    anchor: Anchor
    anchor_index: int
    limits: Limits
    declared: bool
    order: str = "monotone"
    ids: str = "opaque"
    event_time: bool = False
    append_time: bool = False
    append_skew_ms: int = 0
    lag: int = 0
    local: tuple[Made, ...] = ()
    markers: frozenset[int] = frozenset()
    deleted: int = 0
    cleaned: int = 0
    drops_tombstones: bool = False
    compacted: bool | None = False


@dataclass(frozen=True, slots=True)
class World:
    """A case carried out: the destination, and for each offset still held the source index (or ``LOCAL``)."""

    log: MemoryLog
    held: dict[int, int]
    delivered: dict[int, int]

    def holds(self, index: int) -> bool:
        return index in self.held.values()

    def holds_first_copy_of(self, index: int) -> bool:
        first = min((offset for offset, found in self.delivered.items() if found == index), default=None)
        return first in self.held


def header_id(record: Record) -> bytes | None:
    return dict(record.headers).get("id")


def payload_time(record: Record) -> int | None:
    return None if record.value is None else int(json.loads(record.value)["ts"])


def identity_of(case: Case) -> Identity:
    return Identity(
        timestamp_of=payload_time if case.event_time else record_timestamp,
        id_of=None if case.ids == "none" else header_id,
        id_order=IdOrder.INCREASING if case.ids == "increasing" else IdOrder.OPAQUE,
        record_time=not case.event_time,
    )


# ---------------------------------------------------------------- making a case


def make_case(seed: int) -> Case:
    """Everything about one case, from its seed."""
    rng = random.Random(seed)
    order = rng.choice(("monotone", "ties", "ties", "bounded", "unbounded", "future"))
    ids = rng.choice(("increasing", "opaque", "opaque", "none"))
    event_time = rng.random() < 0.15
    count = rng.randint(5, 40)
    source = _make_source(rng, count, order, ids, event_time)
    lag = rng.choice((0,) * 9 + (rng.randint(1, 3),))
    processed = rng.randrange(lag, count)
    runs = _make_runs(rng, count)
    newest = max(made.stamp_ms for made in source if made.stamp_ms < 10**9)
    local = _make_local(rng, newest, ids)
    append_time = rng.random() < 0.08
    skew = rng.choice((0, 0, 15)) if append_time else 0
    declared = rng.random() < 0.6
    disorder = true_disorder([*source, *local], event_time) if declared else 0
    if declared and append_time:  # the broker's clock belongs to the statement
        disorder = max(disorder, *(max(made.event_ms, made.stamp_ms) - (newest - skew) for made in source))
    limits = Limits(disorder)
    if rng.random() < 0.35:
        limits = Limits(disorder, rng.randint(1, 12), rng.randint(0, 8))
    sent = sum(map(len, runs)) + len(local)
    anchor_index = processed - lag
    cleaned = rng.randint(0, sent) if rng.random() < 0.2 else 0
    names = rng.choice((Names.LAST,) * 7 + (Names.NEXT, Names.MAX_TIME)) if not lag else Names.LAST
    if names is Names.NEXT:
        anchor_index = min(processed + 1, count - 1)
        processed = anchor_index - 1
    return Case(
        seed,
        source,
        processed,
        runs,
        _make_anchor(rng, source, anchor_index, names, ids, event_time),
        anchor_index,
        limits,
        declared,
        order,
        ids,
        event_time,
        append_time,
        skew,
        lag=lag,
        local=local,
        markers=frozenset(i for i in range(sent) if rng.random() < 0.15) if rng.random() < 0.25 else frozenset(),
        deleted=rng.randint(0, sent) if rng.random() < 0.3 else 0,
        cleaned=cleaned,
        drops_tombstones=rng.random() < 0.5,
        compacted=None if rng.random() < 0.3 else cleaned > 0 or rng.random() < 0.05,
    )


def _make_source(rng: random.Random, count: int, order: str, ids: str, event_time: bool) -> tuple[Made, ...]:
    times = [1000]
    for _ in range(count - 1):
        times.append(times[-1] + (rng.choice((0, 0, 0, 1)) if order == "ties" else rng.randint(1, 9)))
    if order == "bounded":
        times = [time + rng.randint(-12, 12) for time in times]
    elif order == "unbounded":
        rng.shuffle(times)
    elif order == "future":
        times[rng.randrange(count)] = 10**12
    names = [b"%d" % (7 * place) for place in range(count)]
    if ids == "opaque":
        names = [b"%016x" % rng.getrandbits(64) for _ in range(count)]
        if rng.random() < 0.3:  # the producer gives an id twice, to records with other content
            names[rng.randrange(count)] = names[rng.randrange(count)]
    keys = count if rng.random() < 0.7 else 5
    delay = rng.choice(((0, 6), (0, 0), (-6, 6)))  # from the event to its Kafka timestamp
    tombstones = 0.2 if keys == 5 and not event_time else 0.0
    made = [
        _made(time, time + (rng.randint(*delay) if event_time else 0), place, name if ids != "none" else None, keys)
        for place, (time, name) in enumerate(zip(times, names, strict=True))
    ]
    return tuple(replace(one, value=None) if rng.random() < tombstones else one for one in made)


def _made(event_ms: int, stamp_ms: int, place: int, name: bytes | None, keys: int) -> Made:
    value = json.dumps({"ts": event_ms, "place": place}).encode()
    return Made(event_ms, stamp_ms, name, b"k%d" % (place % keys), value)


def _make_runs(rng: random.Random, count: int) -> tuple[tuple[int, ...], ...]:
    """A run starts at or before the end of the run before it. What is deleted at the source stays so."""
    gone: set[int] = set()
    runs, last = [], 0
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        if rng.random() < 0.25:
            gone |= set(range(rng.randrange(count)))
        if rng.random() < 0.2:
            gone |= {index for index in range(count) if rng.random() < 0.3}
        first = rng.randint(0, last) if number else 0
        last = count if rng.random() < 0.4 else rng.randint(first, count)
        runs.append(tuple(index for index in range(first, last) if index not in gone))
    return tuple(runs)


def _make_local(rng: random.Random, newest: int, ids: str) -> tuple[Made, ...]:
    if rng.random() < 0.6:
        return ()
    name = b"%d" % 10**6 if ids == "increasing" and rng.random() < 0.5 else None
    return tuple(_made(newest + 20 + i, newest + 20 + i, 1000 + i, name, 10**6) for i in range(rng.randint(1, 6)))


def _make_anchor(
    rng: random.Random, source: tuple[Made, ...], index: int, names: Names, ids: str, event_time: bool
) -> Anchor:
    made = source[index]
    time: int | None = made.event_ms if event_time else made.stamp_ms
    mark: str | None = fingerprint(made.key, made.value)
    name = made.id
    if names is Names.MAX_TIME:
        time = max(one.event_ms if event_time else one.stamp_ms for one in source[: index + 1])
        name = mark = None
    else:
        kind = rng.choice(("full", "full", "no id", "no fingerprint", "no time", "time"))
        unique = sum(one.id == name for one in source) == 1
        if kind == "time":
            name = mark = None
        elif kind == "no id":
            name = None
        elif kind == "no fingerprint" and name is not None and unique:
            mark = None
        elif kind == "no time":
            time = None
    return Anchor(SOURCE_BASE + index, time, name, mark, "source", "source/events", names)


def true_disorder(records: list[Made], event_time: bool) -> int:
    """The least d such that of any two records the earlier one's time is at most the later one's plus d.

    An event dated after its own Kafka timestamp is disorder too.
    """
    worst, largest = 0, 0
    for made in records:
        time = made.event_ms if event_time else made.stamp_ms
        worst, largest = max(worst, largest - time, made.event_ms - made.stamp_ms), max(largest, time)
    return worst


# ---------------------------------------------------------------- carrying it out


def carry_out(case: Case) -> World:
    """Mirror, fail over, write locally, compact, delete: what the job then finds at the destination."""
    log = MemoryLog("destination", {PLACE.topic: 1})
    part = log.partitions[PLACE]
    delivered: dict[int, int] = {}
    normal = [made.stamp_ms for made in case.source if made.stamp_ms < 10**9]
    clock = max(normal, default=0) - case.append_skew_ms
    story = [(case.source[index], index) for one in case.runs for index in one]
    for number, (made, index) in enumerate([*story, *((made, LOCAL) for made in case.local)]):
        if number in case.markers:
            part.append_marker(max(normal, default=0) + 30 + number)
        clock += 1
        stamp = clock if case.append_time else made.stamp_ms
        headers = () if made.id is None else (("id", made.id),)
        record = part.append(stamp, made.key, made.value, headers, append_time=case.append_time)
        delivered[record.offset] = index
    _clean(part, case.cleaned, case.drops_tombstones)
    part.delete_before(case.deleted)
    held = {record.offset: delivered[record.offset] for record in part.records}
    return World(log, held, delivered)


def _clean(part: MemoryPartition, count: int, drops_tombstones: bool) -> None:
    """Kafka's cleaner: of the first ``count`` records, the last of each key stays, until a tombstone's time is up."""
    dirty = part.records[:count]
    last = {record.key: record.offset for record in dirty}
    part.compact(
        record.offset
        for record in dirty
        if last[record.key] > record.offset or (record.value is None and drops_tombstones)
    )


def question_of(case: Case) -> Question:
    stored = StoredOffset(SOURCE_BASE + case.processed + 1, case.anchor)
    return Question(
        stored,
        "destination",
        "destination/events",
        identity_of(case),
        case.limits,
        anchor_lag=case.lag,
        compacted=case.compacted,
    )


def answer(world: World, question: Question) -> Found:
    outcome = run(world.log, {0: Inquiry(PLACE, lambda: reconcile(question))}, clock=lambda: 0.0)
    return outcome.found[0]
