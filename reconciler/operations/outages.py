"""What cannot be reached is said once, and once more when it is back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping


class Outages:
    """Outages by place, told to ``log``. ``every_s`` is how often whoever tells tries again."""

    def __init__(self, every_s: float, monotonic: Callable[[], float], log: logging.Logger) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._log = log
        self._since: dict[str, float] = {}

    def tell(self, troubles: Mapping[str, Exception]) -> None:
        """All that a round could not reach; what is not among it answers again."""
        for place, error in troubles.items():
            self.began(place, error)
        for place in [place for place in self._since if place not in troubles]:
            self.ended(place)

    def began(self, place: str, error: Exception) -> None:
        """Said at once, unless it was."""
        if place not in self._since:
            self._since[place] = self._monotonic()
            self._log.warning("%s Trying again every %g s.", error, self._every_s)

    def ended(self, place: str) -> None:
        """It answers; said if it did not before."""
        since = self._since.pop(place, None)
        if since is not None:
            self._log.info("%s answers again after %.0f s", place, self._monotonic() - since)
