"""Making a case from its seed: every known fault of logs and mirrors, alone and combined."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from reconciler.core.anchors import Anchor, Names, fingerprint
from reconciler.core.question import Limits
from tests.simulation.worlds.cases import FAR_AHEAD, SOURCE_BASE, Case, Made, Run, time_of, true_disorder

ORDERS = ("monotone", "ties", "ties", "one time", "bounded", "unbounded", "future", "clock back")


def make_case(seed: int) -> Case:
    """Everything about one case, from its seed."""
    rng = random.Random(seed)
    order, ids = rng.choice(ORDERS), rng.choice(("increasing", "opaque", "opaque", "none"))
    event_time, small = rng.random() < 0.15, rng.random() < 0.3
    count = rng.randint(5, 40) if rng.random() < 0.99 else rng.randint(300, 3000)
    source = _make_source(rng, count, order, ids, event_time)
    lag = rng.choice((0,) * 9 + (rng.randint(1, 3),))
    processed, base = rng.randrange(lag, count), SOURCE_BASE
    again = random.Random(f"again {seed}")
    if event_time and ids != "increasing" and again.random() < 0.5:
        first, second = sorted(again.randrange(count) for _ in range(2))
        source = _write_again(source, first, second)
        processed = min(again.choice((first, second)) + lag, count - 1)
        base = second - first  # the number that the first one has at the source is the second one's here
        small = small or again.random() < 0.7
    runs = _make_runs(rng, count)
    newest = max(made.stamp_ms for made in source if made.stamp_ms < FAR_AHEAD)
    local, among = _make_local(rng, newest, ids), _make_among(rng, source, runs)
    append_time = rng.random() < 0.08
    skew = rng.choice((0, 0, 15)) if append_time else 0
    declared = rng.random() < 0.6
    disorder = _disorder(source, runs, among, local, event_time) if declared else 0
    if declared and append_time:  # the broker's clock belongs to the statement
        disorder = max(disorder, *(max(made.event_ms, made.stamp_ms) - (newest - skew) for made in source))
    limits = Limits(disorder)
    if rng.random() < 0.35:
        limits = Limits(disorder, rng.randint(1, 12), rng.randint(0, 8))
    written = sum(len(run.sent) for run in runs) + len(local)
    anchor_index = processed - lag
    cleaned = rng.randint(0, written) if rng.random() < 0.2 else 0
    names = rng.choice((Names.LAST,) * 7 + (Names.NEXT, Names.MAX_TIME)) if not lag else Names.LAST
    if names is Names.NEXT:
        anchor_index = min(processed + 1, count - 1)
        processed = anchor_index - 1
    return Case(
        seed,
        source,
        processed,
        runs,
        _make_anchor(rng, source, anchor_index, names, event_time, base),
        anchor_index,
        limits,
        declared,
        order,
        ids,
        event_time,
        append_time,
        skew,
        lag=lag,
        among=among,
        local=local,
        markers=_make_markers(rng, source, newest, written),
        deleted=rng.randint(0, written) if rng.random() < 0.3 else 0,
        cleaned=cleaned,
        drops_tombstones=rng.random() < 0.5,
        compacted=None if rng.random() < 0.3 else cleaned > 0 or rng.random() < 0.05,
        small_reads=small,
        base=base,
    )


# ---------------------------------------------------------------- records


def _make_source(rng: random.Random, count: int, order: str, ids: str, event_time: bool) -> tuple[Made, ...]:
    times = _make_times(rng, count, order)
    names = _make_ids(rng, count, ids)
    keys = count if rng.random() < 0.7 else 5
    delay = rng.choice(((0, 6), (0, 0), (-6, 6)))  # from the event to its Kafka timestamp
    tombstones = 0.2 if keys == 5 else 0.0
    made = [
        _made(time, time + (rng.randint(*delay) if event_time else 0), place, name, keys)
        for place, (time, name) in enumerate(zip(times, names, strict=True))
    ]
    if ids != "increasing" and rng.random() < 0.1:  # a producer that tried again: one record twice, whole
        made[rng.randrange(count)] = made[rng.randrange(count)]
    return tuple(replace(one, value=None) if rng.random() < tombstones else one for one in made)


def _write_again(source: tuple[Made, ...], first: int, second: int) -> tuple[Made, ...]:
    """A producer that tried again: one record in two places, but in each with its own Kafka timestamp."""
    twin = replace(source[first], stamp_ms=source[second].stamp_ms)
    return (*source[:second], twin, *source[second + 1 :])


def _made(event_ms: int, stamp_ms: int, place: int, name: bytes | None, keys: int) -> Made:
    value = json.dumps({"ts": event_ms, "place": place}).encode()
    return Made(event_ms, stamp_ms, name, b"k%d" % (place % keys), value)


def _make_times(rng: random.Random, count: int, order: str) -> list[int]:
    times = [1000]
    for _ in range(count - 1):
        step = {"ties": rng.choice((0, 0, 0, 1)), "one time": 0}.get(order, rng.randint(1, 9))
        times.append(times[-1] + step)
    if order == "bounded":
        return [time + rng.randint(-12, 12) for time in times]
    if order == "unbounded":
        rng.shuffle(times)
    if order == "future":
        times[rng.randrange(count)] = FAR_AHEAD
    if order == "clock back":
        first = rng.randrange(count)
        times[first:] = [time - 40 for time in times[first:]]
    return times


def _make_ids(rng: random.Random, count: int, ids: str) -> list[bytes | None]:
    if ids == "none":
        return [None] * count
    names: list[bytes | None] = [b"%d" % (7 * place) for place in range(count)]
    if ids == "opaque":
        names = [b"%016x" % rng.getrandbits(64) for _ in range(count)]
        if rng.random() < 0.3:  # the producer gives an id twice, to records with other content
            names[rng.randrange(count)] = names[rng.randrange(count)]
    if rng.random() < 0.15:  # some records came without the header
        names = [None if rng.random() < 0.2 else name for name in names]
    return names


def _make_local(rng: random.Random, newest: int, ids: str) -> tuple[Made, ...]:
    if rng.random() < 0.6:
        return ()
    name = b"%d" % 10**6 if ids == "increasing" and rng.random() < 0.5 else None
    return tuple(_made(newest + 20 + i, newest + 20 + i, 10_000 + i, name, 10**6) for i in range(rng.randint(1, 6)))


def _make_among(rng: random.Random, source: tuple[Made, ...], runs: tuple[Run, ...]) -> tuple[tuple[int, Made], ...]:
    """A local writer's clock is not behind what was mirrored before it wrote."""
    if rng.random() < 0.9:
        return ()
    sent = [index for run in runs for index in run.sent]
    found = []
    for number in range(rng.randint(1, 4)):
        place = rng.randint(0, len(sent))
        earlier = [source[index].stamp_ms for index in sent[:place] if source[index].stamp_ms < FAR_AHEAD]
        time = max(earlier, default=1000) + rng.choice((0, 1, 5))
        found.append((place, _made(time, time, 20_000 + number, None, 10**6)))
    return tuple(sorted(found, key=lambda item: item[0]))


def _make_markers(
    rng: random.Random, source: tuple[Made, ...], newest: int, written: int
) -> tuple[tuple[int, int], ...]:
    """Times of transaction markers, by the broker's clock: mostly after all records, or exactly a looked-up time."""
    if rng.random() < 0.75:
        return ()
    places = [place for place in range(written) if rng.random() < 0.15]
    at_a_record = rng.random() < 0.2
    return tuple((place, rng.choice(source).stamp_ms if at_a_record else newest + 30 + place) for place in places)


# ---------------------------------------------------------------- the mirror


def _make_runs(rng: random.Random, count: int) -> tuple[Run, ...]:
    """A run starts at or before the end of the run before it. Records deleted at the source stay deleted."""
    gone: set[int] = set()
    runs, last = [], 0
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        if rng.random() < 0.25:
            gone |= set(range(rng.randrange(count)))
        if rng.random() < 0.2:
            gone |= {index for index in range(count) if rng.random() < 0.3}
        first = rng.randint(0, last) if number else 0
        last = count if rng.random() < 0.4 else rng.randint(first, count)
        aborted: tuple[int, ...] = ()
        if rng.random() < 0.1:  # a transactional mirror that was cut off: the next run starts at what was committed
            last, cut = rng.randint(first, last), last
            aborted = tuple(index for index in range(last, cut) if index not in gone)
        runs.append(Run(tuple(index for index in range(first, last) if index not in gone), aborted))
    return tuple(runs)


def _disorder(
    source: tuple[Made, ...],
    runs: tuple[Run, ...],
    among: tuple[tuple[int, Made], ...],
    local: tuple[Made, ...],
    event_time: bool,
) -> int:
    """The least true ``max_disorder``: of the source's order, and of local writers' clocks against earlier records."""
    worst = true_disorder([*source, *local], event_time)
    sent = [source[index] for run in runs for index in run.sent]
    for place, made in among:
        before = [one.event_ms if event_time else one.stamp_ms for one in sent[:place]]
        worst = max(worst, max(before, default=0) - made.stamp_ms)
    return worst


def _make_anchor(
    rng: random.Random, source: tuple[Made, ...], index: int, names: Names, event_time: bool, base: int
) -> Anchor:
    processed = [time for one in source[: index + 1] if (time := time_of(one, event_time)) is not None]
    names = Names.LAST if names is Names.MAX_TIME and not processed else names
    full = anchor_for(source, index, Names.LAST, event_time, base)
    time, mark, name = full.timestamp_ms, full.fingerprint, full.id
    if names is Names.MAX_TIME:
        time = max(processed)
        name = mark = None
    else:
        kind = rng.choice(("full", "full", "no id", "no fingerprint", "no time", "time"))
        unique = sum(one.id == name for one in source) == 1
        if kind == "time" and time is not None:
            name = mark = None
        elif kind == "no id":
            name = None
        elif kind == "no fingerprint" and name is not None and unique:
            mark = None
        elif kind == "no time":
            time = None
    return replace(full, timestamp_ms=time, id=name, fingerprint=mark, names=names)


def anchor_for(source: tuple[Made, ...], index: int, names: Names, event_time: bool, base: int) -> Anchor:
    """The anchor that a job stores which knows everything of the record."""
    made = source[index]
    mark = fingerprint(made.key, made.value)
    return Anchor(base + index, time_of(made, event_time), made.id, mark, "source", "source/events", names)
