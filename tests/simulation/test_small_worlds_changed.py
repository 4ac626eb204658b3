"""Every world of a few records with cleaners, markers and lagging anchors, which patterns leave out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import pytest

from reconciler.core.anchors import Anchor, Names, fingerprint
from reconciler.core.question import Limits
from tests.simulation.worlds.cases import SOURCE_BASE, Case, Made, Run, true_disorder
from tests.simulation.worlds.mirrored import describe_case, try_case

Runs = tuple[range, ...]
KINDS = ("increasing", "opaque", "content", "time")


def small_case(
    times: tuple[int, ...], runs: Runs, processed: int, kind: str, names: Names = Names.LAST, *, keys: int = 9
) -> Case:
    """One world of a few records; the true disorder is stated."""
    source = tuple(Made(ms, ms, b"%d" % (7 * i), b"k%d" % (i % keys), b"v%d" % i) for i, ms in enumerate(times))
    return anchored(
        Case(
            -1,
            source,
            processed,
            tuple(Run(tuple(one)) for one in runs),
            Anchor(names=names),
            processed + (names is Names.NEXT),
            Limits(true_disorder(list(source), False)),
            declared=True,
            ids=kind if kind in ("increasing", "opaque") else "none",
        ),
        kind,
    )


def anchored(case: Case, kind: str) -> Case:
    """The case with the anchor for its ``anchor_index``."""
    made, named, marked = (
        case.source[case.anchor_index],
        kind in ("increasing", "opaque"),
        kind in ("content", "opaque"),
    )
    anchor = Anchor(
        SOURCE_BASE + case.anchor_index,
        made.stamp_ms,
        made.id if named else None,
        fingerprint(made.key, made.value) if marked else None,
        "source",
        "source/events",
        case.anchor.names,
    )
    return replace(case, anchor=anchor)


def all_runs(count: int, most: int) -> Iterator[Runs]:
    """Every first run, and up to ``most`` - 1 more that each start at or before the end of the one before."""
    for sent in range(count + 1):
        yield from longer((range(sent),), count, most)


def longer(runs: Runs, count: int, most: int) -> Iterator[Runs]:
    yield runs
    if len(runs) < most:
        for first in range(runs[-1].stop + 1):
            for last in range(first + 1, count + 1):
                yield from longer((*runs, range(first, last)), count, most)


def worlds(
    count: int, times: tuple[int, ...], names: Names = Names.LAST, *, runs: int = 2, keys: int = 9
) -> Iterator[Case]:
    for stamps, sent, kind in product(product(times, repeat=count), all_runs(count, runs), KINDS):
        for processed in range(-1 if names is Names.NEXT else 0, count - (names is Names.NEXT)):
            yield small_case(stamps, sent, processed, kind, names, keys=keys)


def failures_of(cases: Iterable[Case]) -> list[str]:
    tried = ((case, try_case(case).broken) for case in cases)
    return ["\n  ".join([describe_case(case), *broken]) for case, broken in tried if broken]


def complain(failures: list[str]) -> str:
    return f"{len(failures)} cases break a promise, such as\n" + "\n".join(failures[:3])


def size(case: Case) -> int:
    return case.sent


def removes_something(case: Case, cleaned: int) -> bool:
    """The cleaner's last record removed another of its key: else a smaller prefix is the same world."""
    keys = [case.source[index].key for run in case.runs for index in run.sent][:cleaned]
    return keys[-1] in keys[:-1]


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (True, Names.LAST),
        (None, Names.NEXT),
        pytest.param(True, Names.NEXT, marks=pytest.mark.thorough),
        pytest.param(None, Names.LAST, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(("count", "runs", "keys"), [(3, 2, 9), (3, 2, 2), (2, 3, 9)])
def test_however_far_the_cleaner_came_nothing_is_skipped(
    count: int, runs: int, keys: int, told: bool | None, names: Names
) -> None:
    failures = failures_of(
        replace(case, cleaned=cleaned, compacted=told)
        for case in worlds(count, (10, 20), names, runs=runs, keys=keys)
        for cleaned in range(2, size(case) + 1)
        if removes_something(case, cleaned)
    )
    assert not failures, complain(failures)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_with_a_marker_anywhere_nothing_is_skipped(count: int) -> None:
    failures = failures_of(
        replace(case, markers=((place, 40),), deleted=deleted)
        for case in worlds(count, (10, 20))
        for place in range(size(case))
        for deleted in {0, place}
    )
    assert not failures, complain(failures)


@pytest.mark.parametrize("lag", [1, 2])
def test_with_anchors_that_lag_nothing_is_skipped(lag: int) -> None:
    failures = failures_of(
        anchored(replace(case, anchor_index=case.processed - lag, lag=lag), kind)
        for kind in KINDS
        for case in worlds(3, (10, 20))
        if case.processed >= lag and case.ids == (kind if kind in ("increasing", "opaque") else "none")
    )
    assert not failures, complain(failures)
