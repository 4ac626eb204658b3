"""Worlds in which partition counts differ: records come from some partitions and go to others, by key or in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from reconciler.core.anchors import Identity, record_timestamp
from reconciler.core.probes import Search
from reconciler.core.question import Limits, Question
from reconciler.core.timebound import remap
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import Inquiry, run
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.cases import Made, payload_time, true_disorder

Name = tuple[int, int]
"""A record's source partition and its index there."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Source partitions, the last processed index of each, and what each destination partition received."""

    seed: int
    sources: tuple[tuple[Made, ...], ...]
    processed: tuple[int, ...]
    partitions: tuple[tuple[Name, ...], ...]
    deleted: tuple[int, ...]
    markers: frozenset[Name]
    event_time: bool
    limits: Limits

    def anchor_times(self) -> list[int]:
        anchors = [made[last] for made, last in zip(self.sources, self.processed, strict=True)]
        return [made.event_ms if self.event_time else made.stamp_ms for made in anchors]


def make_spread(seed: int) -> Spread:
    """One to three partitions, mirrored into one to four others by key or in turn, with re-sends."""
    rng = random.Random(seed)
    event_time, keyed, count = rng.random() < 0.2, rng.random() < 0.5, rng.randint(1, 4)
    sources = tuple(_make_source(rng, event_time) for _ in range(rng.randint(1, 3)))
    partitions: list[list[Name]] = [[] for _ in range(count)]
    for number, index in _interleave(rng, [_make_runs(rng, len(source)) for source in sources]):
        key = sources[number][index].key
        partitions[sum(key) % count if keyed else rng.randrange(count)].append((number, index))
    disorder = max(true_disorder(list(source), event_time) for source in sources)
    return Spread(
        seed,
        sources,
        tuple(rng.randrange(len(source)) for source in sources),
        tuple(map(tuple, partitions)),
        tuple(rng.randint(0, len(held)) if rng.random() < 0.2 else 0 for held in partitions),
        frozenset((n, i) for n, held in enumerate(partitions) for i in range(len(held)) if rng.random() < 0.03),
        event_time,
        Limits(disorder, tail_records=rng.choice((0, 3, 100))),
    )


def _make_source(rng: random.Random, event_time: bool) -> tuple[Made, ...]:
    time, made = 1000 + rng.randint(0, 40), []
    wander = rng.choice((0, 0, 8))
    for place in range(rng.randint(1, 12)):
        time += rng.choice((0, 0, 3, 9))
        event = time + rng.randint(-wander, wander)
        stamp = event + rng.randint(-3, 3) if event_time else event
        value = b'{"ts": %d, "place": %d}' % (event, place)
        made.append(Made(event, stamp, None, b"k%d" % rng.randrange(5), value))
    return tuple(made)


def _make_runs(rng: random.Random, count: int) -> list[int]:
    """The sent records of one source partition, in order: each run starts at or before the end of the one before."""
    sent, last = [], 0
    for _ in range(rng.randint(1, 3)):
        first = rng.randint(0, last)
        last = rng.randint(first, count)
        sent += range(first, last)
    return sent


def _interleave(rng: random.Random, sent: list[list[int]]) -> Iterator[Name]:
    left = [list(reversed(one)) for one in sent]
    while any(left):
        number = rng.choice([n for n, one in enumerate(left) if one])
        yield number, left[number].pop()


def carry_out(spread: Spread) -> tuple[MemoryLog, list[dict[int, Name]]]:
    """The destination, and for each partition the source record at each offset still held."""
    log = MemoryLog("destination", {"events": len(spread.partitions)})
    held: list[dict[int, Name]] = []
    for number, names in enumerate(spread.partitions):
        part = log.partition("events", number)
        placed = {}
        for place, (source, index) in enumerate(names):
            if (number, place) in spread.markers:
                part.append_marker(5000)
            made = spread.sources[source][index]
            placed[part.append(made.stamp_ms, made.key, made.value).offset] = (source, index)
        part.delete_before(spread.deleted[number])
        held.append({at: name for at, name in placed.items() if at >= part.start})
    return log, held


def answers(spread: Spread, log: MemoryLog, meters: list[Meter] | None = None) -> list[Finding]:
    """One finding a destination partition."""
    times, counts = spread.anchor_times(), len(spread.partitions)
    identity = Identity(payload_time if spread.event_time else record_timestamp, record_time=not spread.event_time)
    question = Question(None, "destination", "destination/events", identity, spread.limits)
    watched = meters or [Meter() for _ in range(counts)]

    def search(number: int) -> Search[Finding]:
        return watched[number].watch(remap(question, min(times), max(times)))

    inquiries = {number: Inquiry(TopicPartition("events", number), partial(search, number)) for number in range(counts)}
    outcome = run(log, inquiries, clock=lambda: 0.0)
    return [outcome.found[number].finding for number in range(counts)]


def broken_promises(spread: Spread, held: dict[int, Name], finding: Finding) -> Iterator[str]:
    resume = finding.resume_offset
    assert resume is not None
    done = {at for at, (source, index) in held.items() if index <= spread.processed[source]}
    if lost := [at for at in held if at < resume and at not in done]:
        yield f"skips offsets {lost}"
    again = sum(at >= resume for at in done)
    if again > (finding.replay_at_most or 0):
        yield f"replays {again}, promised at most {finding.replay_at_most}"
    if finding.replay_exact not in (None, again):
        yield f"replays {again}, promised exactly {finding.replay_exact}"


def try_seed(seed: int) -> list[Trial]:
    spread = make_spread(seed)
    log, held = carry_out(spread)
    meters = [Meter() for _ in held]
    trials = []
    for number, (placed, finding) in enumerate(zip(held, answers(spread, log, meters), strict=True)):
        broken = tuple(broken_promises(spread, placed, finding))
        kinds = ("other partitions", *(("expired",) if spread.deleted[number] else ()))
        length = log.partition("events", number).end
        trials.append(Trial(seed, kinds, finding.verdict.value, meters[number], length, broken))
    return trials


def describe(seed: int) -> str:
    """Describe a case for a person."""
    spread = make_spread(seed)
    log, held = carry_out(spread)
    lines = [f"seed {seed}: other partitions; processed {spread.processed}, {spread.limits}"]
    for placed, finding in zip(held, answers(spread, log), strict=True):
        lines += [" ".join(f"{at}={source}/{index}" for at, (source, index) in placed.items()), f"  {finding}"]
    return "\n  ".join(lines)
