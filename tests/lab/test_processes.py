"""A child process that fails says why in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconciler.core.errors import Unreachable
from reconciler.lab.processes import Child


def test_the_end_of_a_log_is_shown_in_one_line(tmp_path: Path) -> None:
    """A terminal shows a message's line feeds as escapes."""
    log = tmp_path / "broker.log"
    child = Child("cluster a", [sys.executable, "-c", "print('one'); print('two')"], log, cwd=tmp_path)
    with pytest.raises(Unreachable) as caught:
        child.wait_until(lambda: False, 30, "its first answer")
    assert caught.value.hint == f"Its log, {log}, ends: one | two"
