"""The result of one simulated question, in figures that a campaign can add up."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from reconciler.core.probes import Answer, Chunk, Read, Round, Search
from reconciler.core.verdicts import Finding


@dataclass(slots=True)
class Meter:
    """Counts a search's probes. ``reading_on`` are reads that begin where the read before ended: those of scans."""

    probes: int = 0
    reading_on: int = 0
    _next: int | None = None

    def watch(self, search: Search[Finding]) -> Search[Finding]:
        """Run a search and count its probes."""
        try:
            asked: Round = next(search)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        while True:
            self._count(asked)
            answers: tuple[Answer, ...] = yield asked
            (answer, *_) = answers
            self._next = answer.next_offset if isinstance(answer, Chunk) else None
            try:
                asked = search.send(answers)
            except StopIteration as stop:
                return stop.value

    def _count(self, asked: Round) -> None:
        (probe, *more) = asked
        if isinstance(probe, Read) and probe.again:
            return
        self.probes += len(asked)
        self.reading_on += isinstance(probe, Read) and not more and probe.offset == self._next

    @property
    def searching(self) -> int:
        """Probes outside of scans."""
        return self.probes - self.reading_on


@dataclass(frozen=True, slots=True)
class Trial:
    """One partition's question: the kind of log, the answer, and the promises that it broke.

    ``kinds`` are words for the log, such as "clock back" or "expired". ``length`` is the log's, in offsets.
    ``ordinary``: a mirrored log without disorder, deletion or another ill. ``cramped``: read in small bites or with a
    budget of a few records, so that its probes tell nothing of real ones.
    """

    seed: int
    kinds: tuple[str, ...]
    verdict: str
    meter: Meter
    length: int
    broken: tuple[str, ...]
    ordinary: bool = False
    cramped: bool = False

    @property
    def limit(self) -> float:
        """The most probes outside of scans that a log of this length may take. The smallest read takes 64 records."""
        return 2 * log2(max(64, self.length)) + 4
