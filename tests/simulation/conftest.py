"""How many processes the campaigns take."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def jobs(thorough: bool) -> int:
    """Only this process, for few worlds: others take longer to start. As many as there are processors when thorough."""
    return (os.cpu_count() or 1) if thorough else 1
