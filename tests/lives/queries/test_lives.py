"""Lives of queries with several partitions and topics, retention, killed hooks, and an operator who errs.

Nothing is skipped, no bound is too small, no start that is repeated changes anything, and the original stays as it was.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lives.queries.life import Kind, Life
from tests.sizes import sampled

LIVES = 12
PLAIN = Kind(grows=False, removes=False, kills=False, undoes=False)
KINDS = {
    "several partitions": replace(PLAIN, grows=True),
    "one name": replace(PLAIN, grows=True, one_name=True),
    "removed records": replace(PLAIN, removes=True),
    "killed": replace(PLAIN, kills=True),
    "undone": replace(PLAIN, undoes=True),
    "identities": PLAIN,
    "same records": replace(PLAIN, grows=True, removes=True, bare=True),
    "a sink": Kind(sink=True),
    "everything": Kind(apart=True),
    "everything, one name": Kind(one_name=True),
}
IDENTITIES = [
    'id = "header:id"',
    'id = "key"',
    'timestamp = "json:$.t"',
    'id = "json:$.n"\ntimestamp = "json:$.t"',
    'id = "json:$.n"\nunique_ids = true',
]


def lived(folder: Path, seed: int, kind: Kind) -> Counter[str]:
    draw = random.Random(seed)
    identity = "" if kind.bare else draw.choice(IDENTITIES if kind == PLAIN else ["", *IDENTITIES])
    kind = replace(kind, identity=identity, disorder_ms=draw.choice([0, 5_000]), topics=draw.choice([1, 2]))
    folder.mkdir()
    life = Life(folder, draw, kind)
    life.live()
    return life.tally


CASES = [(name, block) for block in range(8) for name in KINDS]


@pytest.mark.parametrize(("name", "block"), sampled(CASES, keep=0, always=lambda case: case == ("killed", 0)))
def test_a_query_skips_nothing_whatever_happens_to_it(tmp_path: Path, name: str, block: int, thorough: bool) -> None:
    tally: Counter[str] = Counter()
    for seed in range(block * LIVES, (block + 1) * LIVES if thorough else block * LIVES + 2):
        tally += lived(tmp_path / str(seed), seed, KINDS[name])
    assert tally
