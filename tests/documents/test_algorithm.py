"""The pages that explain the code name modules, functions, tests and labels that are there."""

from __future__ import annotations

import re

import pytest

from tests import ROOT

CORE = ROOT / "reconciler" / "core"
PAGE = (ROOT / "docs" / "explanation" / "algorithm.md").read_text(encoding="utf-8")
CALL = (ROOT / "docs" / "explanation" / "what-plan-does.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w./]+)`", PAGE)))
IN_CALL = sorted(
    {each for each in re.findall(r"`([\w./]+)`", CALL) if re.search(r"\w/\w|/$|\.py$", each) and each != "reconciler/"}
)
SOURCES = {path: path.read_text(encoding="utf-8") for path in CORE.rglob("*.py")}
LABELS = {
    "search.py": ("F", "T", "W"),
    "mirrored/by_pairs.py": ("S", "U", "B", "C", "T", "O"),
}


@pytest.mark.parametrize("name", [name for name in NAMED if name.endswith((".py", "/"))])
def test_a_named_file_is_there(name: str) -> None:
    places = (ROOT, ROOT / "reconciler", CORE)
    assert any((place / name).exists() for place in places)


@pytest.mark.parametrize("name", IN_CALL)
def test_a_module_that_the_call_goes_through_is_there(name: str) -> None:
    assert (ROOT / "reconciler" / name).exists()


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("_")])
def test_a_named_function_is_there(name: str) -> None:
    assert any(f"def {name}(" in source for source in SOURCES.values())


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("test_")])
def test_a_named_test_is_there(name: str) -> None:
    assert any(f"def {name}(" in path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("module", LABELS)
def test_the_labels_of_a_module_are_those_of_the_page(module: str) -> None:
    source = SOURCES[CORE / module]
    for label in LABELS[module]:
        assert re.search(rf"^{label}   \w", source, re.MULTILINE), label
        assert re.search(rf"\*\*{label}[,.*]", PAGE), label
