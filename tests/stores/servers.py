"""What the fixtures of real servers share."""

from __future__ import annotations

from typing import NoReturn

import pytest


def cannot(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    """Skip, or fail where servers are required: as all tests with real servers do."""
    import tests.conftest

    tests.conftest._cannot(reason)
    raise AssertionError("unreachable")
