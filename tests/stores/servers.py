"""What the fixtures of real servers share."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest


def cannot(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    """Skip, or fail where servers are required: as all tests with real servers do."""
    shared = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert shared is not None
    shared._cannot(reason)
    raise AssertionError("unreachable")
