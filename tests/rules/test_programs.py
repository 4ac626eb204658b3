"""Programs that tests run in the Pythons of other PySparks, which have the product's requirements alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.parametrize(
    "module",
    [
        "failover.checkpoint.restarted.stateful_queries",
        "failover.checkpoint.restarted.late_queries",
        "failover.sinks.queries",
    ],
)
def test_a_program_of_another_python_needs_no_pytest(module: str) -> None:
    code = f"import sys; sys.modules['pytest'] = None; import tests.{module}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
