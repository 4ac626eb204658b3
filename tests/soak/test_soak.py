"""Moves there and back with faults, under both ways to name topics: nothing is lost, and what comes again was shown."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import ROOT
from tests.sizes import SEED

MOVES = 5
TIMEOUT_S = 900


@pytest.mark.system
@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_every_record_is_counted_over_moves_there_and_back(policy: str) -> None:
    words = ["-m", "tests.soak", "--moves", str(MOVES), "--seed", str(SEED), "--policy", policy]
    ended = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    *moves, last = map(json.loads, ended.stdout.splitlines())
    assert [each["move"] for each in moves] == list(range(1, MOVES + 1))
    assert last["produced"] > 100 * MOVES
