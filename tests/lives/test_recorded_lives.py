"""A job that stores its own offsets, moved from cluster to cluster and back: nothing is skipped, no bound is too small.

``with anchors``: in SQLite, as range batches write them. ``bare``: numbers alone, whose records ``track`` keeps.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from reconciler.core.verdicts import Verdict
from tests.lives.recorded_lives import Life
from tests.sizes import sampled

NAMES = {"one name": {"a": "o", "b": "o"}, "two names": {"a": "o", "b": "p"}}
LIVES = 3
USUAL = {each.value for each in (Verdict.EXACT, Verdict.NEW)}
BLOCKS = 20


@pytest.mark.parametrize("block", sampled(range(BLOCKS), keep=0, always=lambda block: block == 0))
@pytest.mark.parametrize("bare", [False, True], ids=["with anchors", "bare"])
@pytest.mark.parametrize("names", NAMES)
def test_a_job_skips_nothing_over_several_failovers(tmp_path: Path, names: str, bare: bool, block: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(block * LIVES, (block + 1) * LIVES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        life = Life(folder, random.Random(seed), NAMES[names], bare=bare)
        life.live()
        tally += life.tally
    usual = USUAL - {Verdict.EXACT.value} if bare else USUAL
    assert block or set(tally) >= usual, tally  # another block may lack one of them
