"""Logging outages: one line when a place becomes unreachable, one for each new cause, one when it answers again."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

MOST_CAUSES = 5
"""Causes of one outage that are logged: some texts differ at each try."""


@dataclass(slots=True)
class _Outage:
    since: float
    causes: set[str] = field(default_factory=set)


class Outages:
    """Outages by place, written to ``log``; beyond ``most`` lines a round only their number.

    ``every_s`` is the caller's retry interval, which the lines mention; None if it does not try again. Outages of
    ``always`` are logged in any case.
    """

    def __init__(
        self,
        every_s: float | None,
        monotonic: Callable[[], float],
        log: logging.Logger,
        *,
        most: int = sys.maxsize,
        always: Collection[str] = (),
    ) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._log = log
        self._most = most
        self._always = always
        self._known: dict[str, _Outage] = {}
        self._begun = 0

    def __contains__(self, place: str) -> bool:
        """Whether an outage of this place is known."""
        return place in self._known

    def tell(self, troubles: Mapping[str, Exception]) -> None:
        """Report all places that a round could not reach; the others answer again."""
        for place, error in troubles.items():
            self.began(place, error)
        self.round_ended()
        self.answered(troubles)

    def began(self, place: str, error: Exception) -> None:
        """Log an outage at once, or the new cause of one that is known. Causes that differ in numbers are one."""
        outage = self._known.setdefault(place, _Outage(self._monotonic()))
        cause = f"{type(error).__name__}: {re.sub('[0-9]+', '0', str(error))}"
        if cause in outage.causes or len(outage.causes) >= MOST_CAUSES:
            return
        outage.causes.add(cause)
        if place not in self._always:
            self._begun += 1
            if self._begun > self._most:
                return
        again = "" if self._every_s is None else f" Trying again every {self._every_s:g} s."
        self._log.warning("%s%s", error, again)

    def round_ended(self) -> None:
        """Log how many outages of this round have no line of their own."""
        if self._begun > self._most:
            self._log.warning("%d more like these, each in the metrics.", self._begun - self._most)
        self._begun = 0

    def answered(self, troubles: Collection[str]) -> None:
        """Report that all places but these answer again."""
        ended = [place for place in self._known if place not in troubles]
        ended.sort(key=lambda place: place not in self._always)
        for place in ended[: self._most]:
            self._log.info("%s answers again after %.0f s", place, self._monotonic() - self._known[place].since)
        if len(ended) > self._most:
            self._log.info("and so do %d more", len(ended) - self._most)
        for place in ended:
            del self._known[place]
