"""CONTRIBUTING.md names what is there: every path, every command of the Makefile, every room."""

from __future__ import annotations

import re

import pytest

import tests

TEXT = (tests.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRODUCT = tests.ROOT / "reconciler"


def paths() -> list[str]:
    """Texts in backticks that look like a path, and every link."""
    quoted = re.findall(r"`([\w./-]+)`", TEXT)
    linked = re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT)
    return sorted({each for each in (*quoted, *linked) if "/" in each or each.endswith((".md", ".py", ".toml"))})


@pytest.mark.parametrize("path", paths())
def test_every_path_is_there(path: str) -> None:
    assert any((place / path).exists() for place in (tests.ROOT, PRODUCT)), path


@pytest.mark.parametrize("target", re.findall(r"`make ([\w -]+)`", TEXT))
def test_every_target_is_in_the_makefile(target: str) -> None:
    known = set(re.findall(r"^([\w-]+):", (tests.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(target.split()) <= known


def test_every_room_is_in_the_table() -> None:
    rooms = {path.stem for path in PRODUCT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    named = {
        word for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for word in re.findall(r"`([\w-]+)`", row)
    }
    assert rooms - {"__init__", "__main__"} <= named
