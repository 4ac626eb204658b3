"""A query that its hook moves from cluster to cluster and back: nothing is skipped, and no bound is too small."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from reconciler.core.verdicts import Verdict
from tests.lives.query_lives import Life
from tests.sizes import sampled

NAMES = {"one name": {"a": "o", "b": "o"}, "two names": {"a": "o", "b": "p"}}
LIVES = 40
VERDICTS = {each.value for each in (Verdict.MATCH, Verdict.MOVED, Verdict.BOUNDED, Verdict.BEHIND, Verdict.NEW)}


@pytest.mark.parametrize("block", sampled(range(20), keep=0, always=lambda block: block == 0))
@pytest.mark.parametrize("names", NAMES)
def test_a_query_skips_nothing_over_several_failovers(tmp_path: Path, names: str, block: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(block * LIVES, (block + 1) * LIVES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        life = Life(folder, random.Random(seed), NAMES[names])
        life.live()
        tally += life.tally
    assert block or set(tally) >= VERDICTS, tally  # another block may lack one of them
