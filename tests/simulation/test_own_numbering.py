"""A job's own cluster: the verdict for a log that was not cut."""

from __future__ import annotations

from dataclasses import replace

from reconciler.core.verdicts import Verdict
from tests.simulation.worlds.cases import PLACE
from tests.simulation.worlds.own import HERE_TOPIC, answer, carry_out, make_own


def test_a_log_that_was_not_cut_is_a_match_or_a_loss() -> None:
    for seed in range(500):
        own = replace(make_own(seed), cut=None, rewritten=(), topic_id=HERE_TOPIC, recreated=False)
        log, _ = carry_out(own)
        expected = Verdict.LOST if log.partitions[PLACE].start > own.processed + 1 else Verdict.EXACT
        assert answer(own, log).verdict is expected
