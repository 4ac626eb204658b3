"""How long checks took, as a histogram."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of a check's durations, in seconds."""


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram: the number of values in each bucket; the last one is for values above ``BUCKETS_S``."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)
    total_s: float = 0.0

    def plus(self, seconds: float) -> Durations:
        place = bisect_left(BUCKETS_S, seconds)
        counts = tuple(count + (number == place) for number, count in enumerate(self.counts))
        return Durations(counts, self.total_s + seconds)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        ends = [*(str(end) for end in BUCKETS_S), "+Inf"]
        return [(end, float(count)) for end, count in zip(ends, accumulate(self.counts), strict=True)]
