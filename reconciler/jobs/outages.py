"""Logging outages: one line when a place becomes unreachable, one for each new cause, one when it answers again."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

MOST_CAUSES = 5
"""The most causes of one outage that are logged: some texts differ at each try."""


@dataclass(slots=True)
class _Outage:
    since: float
    causes: set[str] = field(default_factory=set)


class Outages:
    """Outages by place, written to ``log``.

    ``every_s`` is the caller's retry interval, which the lines mention; None if it does not try again.
    """

    def __init__(
        self,
        every_s: float | None,
        monotonic: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._log = log
        self._known: dict[str, _Outage] = {}

    def __contains__(self, place: str) -> bool:
        """True if an outage of this place is known."""
        return place in self._known

    def tell(self, troubles: Mapping[str, Exception]) -> None:
        """Report all places that a round could not reach; the others answer again."""
        for place, error in troubles.items():
            self.began(place, error)
        self.answered(troubles)

    def began(self, place: str, error: Exception) -> None:
        """Log an outage at once, or the new cause of one that is known. Causes that differ in numbers are one."""
        outage = self._known.setdefault(place, _Outage(self._monotonic()))
        cause = f"{type(error).__name__}: {re.sub('[0-9]+', '0', str(error))}"
        if cause in outage.causes or len(outage.causes) >= MOST_CAUSES:
            return
        outage.causes.add(cause)
        again = "" if self._every_s is None else f" Trying again every {self._every_s:g} s."
        self._log.warning("%s%s", error, again)

    def answered(self, troubles: Collection[str]) -> None:
        """Report that all places but these answer again."""
        for place in [place for place in self._known if place not in troubles]:
            self._log.info("%s answers again after %.0f s", place, self._monotonic() - self._known.pop(place).since)
