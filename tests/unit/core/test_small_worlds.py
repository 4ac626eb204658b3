"""Every world of a few records: no combination of re-sends, deletions, markers and lags breaks a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import pytest
from oracle import complain, failures_of
from simulate import SOURCE_BASE, Case, Made, true_disorder

from reconciler.core.anchors import Anchor, Names, fingerprint
from reconciler.core.question import Limits

Runs = tuple[range, ...]
KINDS = ("increasing", "opaque", "content", "time")
LAST_AND_NEXT = pytest.mark.parametrize("names", [Names.LAST, Names.NEXT])


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
            tuple(tuple(one) for one in runs),
            Anchor(names=names),
            processed + (names is Names.NEXT),
            Limits(true_disorder(list(source), False)),
            declared=True,
            ids=kind if kind in ("increasing", "opaque") else "none",
        ),
        kind,
    )


def anchored(case: Case, kind: str) -> Case:
    """The case with the anchor that its ``anchor_index`` asks for."""
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


def size(case: Case) -> int:
    return sum(map(len, case.runs))


def removes_something(case: Case, cleaned: int) -> bool:
    """The cleaner's last record removed another of its key: else a smaller prefix is the same world."""
    keys = [case.source[index].key for one in case.runs for index in one][:cleaned]
    return keys[-1] in keys[:-1]


def test_every_chain_of_runs_keeps_the_model() -> None:
    chains = list(all_runs(3, 3))
    assert len(chains) == len(set(chains)) > 100
    assert all(after.start <= before.stop for chain in chains for before, after in pairwise(chain))


@LAST_AND_NEXT
@pytest.mark.parametrize(("count", "times"), [(2, (10, 20, 30)), (3, (10, 20, 30)), (4, (10, 20))])
def test_one_resend(count: int, times: tuple[int, ...], names: Names) -> None:
    failures = failures_of(worlds(count, times, names))
    assert not failures, complain(failures)


@LAST_AND_NEXT
def test_two_resends_cut_anywhere(names: Names) -> None:
    failures = failures_of(worlds(3, (10, 20), names, runs=3))
    assert not failures, complain(failures)


@LAST_AND_NEXT
@pytest.mark.parametrize(("count", "runs"), [(3, 2), (2, 3)])
def test_whatever_prefix_retention_has_deleted(count: int, runs: int, names: Names) -> None:
    failures = failures_of(
        replace(case, deleted=deleted)
        for case in worlds(count, (10, 20), names, runs=runs)
        for deleted in range(1, size(case) + 1)
    )
    assert not failures, complain(failures)


@LAST_AND_NEXT
@pytest.mark.parametrize("told", [True, None])
@pytest.mark.parametrize(("count", "runs", "keys"), [(3, 2, 9), (3, 2, 2), (2, 3, 9)])
def test_however_far_the_cleaner_came(count: int, runs: int, keys: int, told: bool | None, names: Names) -> None:
    failures = failures_of(
        replace(case, cleaned=cleaned, compacted=told)
        for case in worlds(count, (10, 20), names, runs=runs, keys=keys)
        for cleaned in range(2, size(case) + 1)
        if removes_something(case, cleaned)
    )
    assert not failures, complain(failures)


def test_a_marker_anywhere() -> None:
    failures = failures_of(
        replace(case, markers=frozenset({place}), deleted=deleted)
        for case in worlds(3, (10, 20))
        for place in range(size(case))
        for deleted in {0, place}
    )
    assert not failures, complain(failures)


@pytest.mark.parametrize("lag", [1, 2])
def test_anchors_that_lag(lag: int) -> None:
    failures = failures_of(
        anchored(replace(case, anchor_index=case.processed - lag, lag=lag), kind)
        for kind in KINDS
        for case in worlds(3, (10, 20))
        if case.processed >= lag and case.ids == (kind if kind in ("increasing", "opaque") else "none")
    )
    assert not failures, complain(failures)
