"""Records that a log only counts change no answer: neither the finding nor what it took to find it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from reconciler.core.matching import Processed
from reconciler.core.probes import Chunk
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import Inquiry, SearchResult, run
from reconciler.ports import ReadRequest
from tests.memory_log import MemoryLog
from tests.simulation.worlds.carrying import carry_out, reading_little
from tests.simulation.worlds.cases import PLACE
from tests.simulation.worlds.making import make_case

MOST = 1_500
"""Worlds that the thorough run compares."""


class InFull(MemoryLog):
    """Counts nothing instead of reading it."""

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return super().read([replace(request, full_until_ms=None) for request in requests])


class Counting(MemoryLog):
    """Notes what it has counted."""

    counted = 0

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        chunks = super().read(requests)
        Counting.counted += sum(chunk.counted.count for chunk in chunks if chunk.counted is not None)
        return chunks


def found(seed: int, kind: type[MemoryLog]) -> SearchResult[Finding]:
    case = make_case(seed)
    log = carry_out(case).log
    log.__class__ = kind
    inquiry = Inquiry(PLACE, lambda: reconcile(case.question))
    if not case.small_reads:
        return run(log, {0: inquiry}, clock=lambda: 0.0).found[0]
    with reading_little():
        return run(log, {0: inquiry}, clock=lambda: 0.0).found[0]


def different(seeds: range) -> Iterator[int]:
    return (seed for seed in seeds if found(seed, Counting) != found(seed, InFull))


def test_the_answer_is_the_same_and_as_many_probes_are_told(thorough: bool) -> None:
    seeds = MOST if thorough else 500
    Counting.counted = 0
    assert list(different(range(seeds))) == []
    assert Counting.counted > seeds


@pytest.mark.thorough
def test_copies_among_the_counted_records_that_are_not_asked_for_again_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Processed, "examines_since", lambda self, oldest_ms: False)
    assert next(different(range(MOST)), None) is not None
