"""How long one fetch of many partitions waits for those that have not answered. No I/O: the clock is an argument."""

from __future__ import annotations

from collections.abc import Callable

STALL_S, STALL = 0.5, 2
"""Seconds without a new record or end for any waiting partition, after the first one, before the fetch size grows, or
the read is complete; and so many times the first one's, over a slow link.

Ends come a moment after the last records. A read that gave up sooner would be repeated, and on a busy machine the same
inputs would cost other numbers of probes.
"""
DRIP_S = 0.25
DRIP = 0.1
"""If all batches are above the fetch size, each answer of a broker holds one batch, of one partition (KIP-74). So where
less than this part of the partitions without a record got one in so many seconds, the others need a larger fetch."""


class FetchWait:
    """The wait of one fetch of ``partitions``; ``clock`` gives monotonic seconds.

    Until the first news it lasts up to ``wait_s``, since silence says nothing about the fetch size. ``last``: no larger
    fetch is left, so that partitions without an answer are waited for as long.
    """

    def __init__(self, partitions: int, wait_s: float, *, last: bool, clock: Callable[[], float]) -> None:
        self._partitions, self._wait_s, self._last, self._clock = partitions, wait_s, last, clock
        self._stall_s = STALL_S
        self._last_news_s = clock()
        self._counted_s: float | None = None
        """When the answers were counted; at first, when the first came."""
        self._answered = 0

    def on_news(self, answered: Callable[[], int]) -> bool:
        """Take note of new records or ends; True if the rest comes too slowly for this fetch size.

        ``answered`` counts the partitions with a record or an end.
        """
        before_s, self._last_news_s = self._last_news_s, self._clock()
        if self._counted_s is None:
            self._stall_s = min(max(STALL_S, STALL * (self._last_news_s - before_s)), self._wait_s)
            self._counted_s = self._last_news_s
        if self._last or self._last_news_s - self._counted_s <= DRIP_S:
            return False
        before, self._answered, self._counted_s = self._answered, answered(), self._last_news_s
        return 0 < self._answered - before < DRIP * (self._partitions - self._answered)

    def is_over(self, any_unanswered: Callable[[], bool]) -> bool:
        """True if no news is to be expected any more, at a look that found none."""
        waits_long = self._counted_s is None or (self._last and any_unanswered())
        return self._clock() - self._last_news_s > (self._wait_s if waits_long else self._stall_s)
