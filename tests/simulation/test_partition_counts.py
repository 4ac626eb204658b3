"""Partition counts differ: the promises of ``remap``, and the variety of the simulation."""

from __future__ import annotations

from reconciler.core.verdicts import Verdict
from tests.simulation.worlds.spreads import answers, carry_out, make_spread


def test_only_an_expired_prefix_is_called_a_loss() -> None:
    for seed in range(500):
        spread = make_spread(seed)
        log, _ = carry_out(spread)
        for number, finding in enumerate(answers(spread, log)):
            assert finding.verdict in (Verdict.EARLY, Verdict.LOST)
            assert finding.verdict is Verdict.EARLY or log.partition("events", number).start > 0


def test_keyed_and_in_turn_more_and_fewer_are_all_tried() -> None:
    spreads = [make_spread(seed) for seed in range(200)]
    sizes = {(len(spread.sources), len(spread.partitions)) for spread in spreads}
    assert {(1, 4), (3, 1), (2, 2), (3, 2)} <= sizes
    assert any(spread.deleted != (0,) * len(spread.partitions) for spread in spreads)
