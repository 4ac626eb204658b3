"""Helpers shared by the fixtures of real servers."""

from __future__ import annotations

from typing import NoReturn

import pytest


def cannot(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    """Skip the test, or fail it if servers are required."""
    import tests.conftest

    tests.conftest._cannot(reason)
    raise AssertionError("unreachable")
