"""The counts of the demo's stateful query, compared with a plain count of the produced records."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.demo.lab.traffic import Event, user_of

WINDOW_MINUTES = 4
WINDOW_MS = WINDOW_MINUTES * 60_000

Counts = Mapping[tuple[int, str], int]
"""Clicks by the window's start (epoch ms) and user."""


def plain_counts(events: Iterable[Event]) -> Counts:
    """The counts of a reader without a failover."""
    return Counter((event.timestamp_ms // WINDOW_MS * WINDOW_MS, user_of(event)) for event in events)


def counts_in(folders: Iterable[Path]) -> Counts:
    """The last count of each window and user in the output of successive runs of the query."""
    found: dict[tuple[int, str], int] = {}
    for folder in folders:
        for part in sorted(folder.glob("batch-*/part-*.csv")):
            with part.open(newline="", encoding="utf-8") as file:
                found |= {(int(begin), user): int(count) for begin, user, count in csv.reader(file)}
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts compared with the plain ones: how many are equal, and the clicks that are missing or too many."""

    counts: int
    equal: int
    too_few: int
    too_many: int

    @property
    def is_equal(self) -> bool:
        return self.counts == self.equal and not self.too_few and not self.too_many


def compare(found: Counts, plain: Counts) -> Comparison:
    """Compare the counts with the plain ones, by window and user."""
    differences = [found.get(name, 0) - plain.get(name, 0) for name in {*found, *plain}]
    return Comparison(
        len(differences),
        differences.count(0),
        -sum(each for each in differences if each < 0),
        sum(each for each in differences if each > 0),
    )
