"""The promises, held against an oracle: thousands of random worlds, and every world of a few records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from simulate import (
    PLACE,
    SOURCE_BASE,
    Case,
    Made,
    answer,
    broken_promises,
    carry_out,
    describe,
    make_case,
    question_of,
    true_disorder,
    try_seed,
)

from reconciler.core import candidates, scan, search, timebound
from reconciler.core.anchors import Anchor, Names, fingerprint
from reconciler.core.question import Limits

KINDS = ("increasing", "opaque", "content", "time")


def complain(failures: list[str]) -> str:
    return f"{len(failures)} cases break a promise, such as\n" + "\n".join(failures[:3])


@pytest.mark.parametrize("first_seed", range(0, 5000, 500))
def test_random_worlds(first_seed: int) -> None:
    failures = []
    for seed in range(first_seed, first_seed + 500):
        case, world, found, broken = try_seed(seed)
        if broken:
            failures.append("\n  ".join([describe(case, world, found), *broken]))
    assert not failures, complain(failures)


@pytest.mark.parametrize("first_seed", range(5000, 7000, 500))
def test_random_worlds_read_in_small_bites(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With reads of a few records these small logs take the ways of long ones: bisection, many chunks."""
    for module in (scan, search, timebound, candidates):
        for name, size in (("FIRST_READ", 2), ("LARGEST_READ", 4), ("PEEK", 2)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    failures = []
    for seed in range(first_seed, first_seed + 500):
        case, world, found, broken = try_seed(seed)
        if broken:
            failures.append("\n  ".join([describe(case, world, found), *broken]))
    assert not failures, complain(failures)


def test_the_same_world_gets_the_same_answer() -> None:
    for seed in range(300):
        case = make_case(seed)
        first, second = (answer(carry_out(case), question_of(case)) for _ in range(2))
        assert first == second


# ---------------------------------------------------------------- every small world


def small_case(times: tuple[int, ...], runs: tuple[range, ...], processed: int, kind: str, names: Names) -> Case:
    """One world of a few records; the true disorder is stated."""
    source = tuple(Made(ms, ms, b"%d" % (7 * i), b"k%d" % i, b"v%d" % i) for i, ms in enumerate(times))
    at = processed + (names is Names.NEXT)
    named, marked = kind in ("increasing", "opaque"), kind in ("content", "opaque")
    anchor = Anchor(
        SOURCE_BASE + at,
        source[at].stamp_ms,
        source[at].id if named else None,
        fingerprint(source[at].key, source[at].value) if marked else None,
        "source",
        "source/events",
        names,
    )
    ids = "none" if not named else kind
    limits = Limits(true_disorder(list(source), False))
    delivered = tuple(tuple(one) for one in runs)
    return Case(-1, source, processed, delivered, anchor, at, limits, declared=True, ids=ids)


def resends(count: int) -> Iterator[tuple[range, ...]]:
    """Every first run, and every second run that starts at or before its end, each cut anywhere."""
    for sent in range(count + 1):
        yield (range(sent),)
        for first in range(sent + 1):
            for last in range(first + 1, count + 1):
                yield (range(sent), range(first, last))


def small_worlds(count: int, times: tuple[int, ...], names: Names) -> Iterator[Case]:
    for stamps, runs, kind in product(product(times, repeat=count), resends(count), KINDS):
        for processed in range(-1 if names is Names.NEXT else 0, count - (names is Names.NEXT)):
            yield small_case(stamps, runs, processed, kind, names)


def failures_of(case: Case, *, deleted: int = 0) -> list[str]:
    world = carry_out(case)
    world.log.partitions[PLACE].delete_before(deleted)
    held = {at: index for at, index in world.held.items() if at >= deleted}
    world = type(world)(world.log, held, world.delivered)
    found = answer(world, question_of(case))
    broken = list(broken_promises(case, world, found.finding))
    return ["\n  ".join([describe(case, world, found), *broken])] if broken else []


@pytest.mark.parametrize("names", [Names.LAST, Names.NEXT])
@pytest.mark.parametrize(("count", "times"), [(2, (10, 20, 30)), (3, (10, 20, 30)), (4, (10, 20))])
def test_every_world_of_a_few_records(count: int, times: tuple[int, ...], names: Names) -> None:
    failures = [text for case in small_worlds(count, times, names) for text in failures_of(case)]
    assert not failures, complain(failures)


@pytest.mark.parametrize("names", [Names.LAST, Names.NEXT])
def test_every_world_of_three_records_after_retention(names: Names) -> None:
    """Whatever prefix has been deleted."""
    failures = [
        text
        for case in small_worlds(3, (10, 20), names)
        for deleted in range(1, sum(map(len, case.runs)) + 1)
        for text in failures_of(case, deleted=deleted)
    ]
    assert not failures, complain(failures)
