"""The commands behind the documents' figures are there, and every benchmark keeps its figures with its machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
NAMED = re.compile(r"python -m ((?:tests|docs)\.[\w.]+[^\n`]*)")
COMMANDS = sorted({found for page in PAGES for found in NAMED.findall(page.read_text())})
PROGRAMS = [path for path in sorted((ROOT / "docs/benchmarks").glob("*.py")) if "ArgumentParser(" in path.read_text()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_has_its_module_and_options(command: str) -> None:
    module, *arguments = command.split()
    place = ROOT / Path(*module.split("."))
    path = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    assert path.exists(), module
    source = path.read_text("utf-8")
    missing = [each for each in arguments if each.startswith("--") and f'"{each}"' not in source]
    assert missing == []


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 7


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_prints_its_figures_with_machine_and_versions(path: Path) -> None:
    source = path.read_text("utf-8")
    assert "print_json(" in source
    assert '"--json"' in source
