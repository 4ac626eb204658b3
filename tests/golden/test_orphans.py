"""The golden files themselves."""

from __future__ import annotations

import pytest

from tests.golden.compare import Goldens


def test_every_golden_file_has_its_test(goldens: Goldens, all_ran: bool) -> None:
    if not all_ran:
        pytest.skip("needs a run of all golden tests, on Python 3.11")
    assert goldens.orphans() == set()
