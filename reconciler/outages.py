"""Logging outages: one line when a place becomes unreachable, one when it answers again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping


class Outages:
    """Outages by place, written to ``log``; beyond ``most`` a round only their number.

    ``every_s`` is the caller's retry interval, which the lines mention; None if it does not try again.
    """

    def __init__(
        self, every_s: float | None, monotonic: Callable[[], float], log: logging.Logger, *, most: int = sys.maxsize
    ) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._log = log
        self._most = most
        self._since: dict[str, float] = {}
        self._begun = 0

    def tell(self, troubles: Mapping[str, Exception]) -> None:
        """Report all places that a round could not reach; the others answer again."""
        for place, error in troubles.items():
            self.began(place, error)
        if self._begun > self._most:
            self._log.warning("%d more like these, each in the metrics.", self._begun - self._most)
        self._begun = 0
        ended = [place for place in self._since if place not in troubles]
        for place in ended[: self._most]:
            self._log.info("%s answers again after %.0f s", place, self._monotonic() - self._since[place])
        if len(ended) > self._most:
            self._log.info("and so do %d more", len(ended) - self._most)
        for place in ended:
            del self._since[place]

    def began(self, place: str, error: Exception) -> None:
        """Log an outage at once, unless it is known already."""
        if place in self._since:
            return
        self._since[place] = self._monotonic()
        self._begun += 1
        if self._begun <= self._most:
            again = "" if self._every_s is None else f" Trying again every {self._every_s:g} s."
            self._log.warning("%s%s", error, again)
