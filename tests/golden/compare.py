"""Golden files: texts under ``formats`` and ``words`` that the product's output is compared with."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
KINDS = ("formats", "words")
RECORD = "--record-goldens"
COMMAND = f".venv/bin/pytest tests/golden {RECORD} -n 0"


def kept() -> set[str]:
    """The golden files that are there, as KIND/NAME."""
    return {str(path.relative_to(ROOT)) for kind in KINDS for path in (ROOT / kind).rglob("*") if path.is_file()}


@dataclass
class Goldens:
    """Compares texts with golden files, or writes them; remembers which files tests have asked for."""

    record: bool
    asked: set[str] = field(default_factory=set)

    def check(self, name: str, text: str) -> None:
        """Fail with a diff unless ``text`` is what the golden file ``name`` holds."""
        assert name.startswith(KINDS)
        assert name not in self.asked, f"two tests use the golden file {name}"
        self.asked.add(name)
        path = ROOT / name
        if self.record:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
            return
        if not path.is_file():
            pytest.fail(f"There is no golden file {name}. Record it with: {COMMAND}", pytrace=False)
        expected = path.read_bytes().decode()
        if text != expected:
            diff = _diff(expected, text, name)
            pytest.fail(f"{name} has changed. If that is on purpose: {COMMAND}\n{diff}", pytrace=False)

    def orphans(self) -> set[str]:
        """Golden files that no test has asked for; removed when goldens are recorded."""
        found = kept() - self.asked
        if self.record:
            for name in found:
                (ROOT / name).unlink()
            return set()
        return found


def _diff(expected: str, text: str, name: str) -> str:
    lines = difflib.unified_diff(
        expected.splitlines(keepends=True), text.splitlines(keepends=True), f"golden/{name}", "now"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)
