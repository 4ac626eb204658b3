"""CONTRIBUTING.md names what is there: every path, every command of the Makefile, every room and constant."""

from __future__ import annotations

import importlib.util
import itertools
import re
import tomllib

import pytest

import tests

TEXT = (tests.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRODUCT = tests.ROOT / "reconciler"


def paths() -> list[str]:
    """Texts in backticks that look like a path, and every link. ``make setup`` makes ``.venv``: a clone has none."""
    quoted = re.findall(r"`([\w./-]+)`", TEXT)
    linked = re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT)
    found = {each for each in (*quoted, *linked) if "/" in each or each.endswith((".md", ".py", ".toml"))}
    return sorted(each for each in found if not each.startswith(".venv/"))


@pytest.mark.parametrize("path", paths())
def test_every_path_is_there(path: str) -> None:
    assert any((place / path).exists() for place in (tests.ROOT, PRODUCT)), path


@pytest.mark.parametrize("target", re.findall(r"`make ([\w -]+)`", TEXT))
def test_every_target_is_in_the_makefile(target: str) -> None:
    known = set(re.findall(r"^([\w-]+):", (tests.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(target.split()) <= known


def rows() -> list[list[str]]:
    """The rooms in the table, from top to bottom."""
    table = TEXT.partition("| room |")[2].partition("\n\n")[0]
    return [re.findall(r"`([\w-]+)`", row) for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)]


def test_the_table_has_every_room_and_no_other() -> None:
    rooms = {path.stem for path in PRODUCT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(name for row in rows() for name in row) == sorted(rooms - {"__init__", "__main__"})


def test_imports_point_downwards_in_the_table() -> None:
    """As the contract has it: no room stands above one of a higher layer. A room may be in parts, which are skipped."""
    contracts = tomllib.loads((tests.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    row_of = {name: number for number, row in enumerate(rows()) for name in row}
    rooms = [re.findall(r"reconciler\.(\w+)(?![.\w])", layer) for layer in layers]
    places = [[row_of[room] for room in layer] for layer in rooms if layer]
    assert len(places) > 10
    for above, below in itertools.pairwise(places):
        assert max(above) <= min(below)


@pytest.mark.parametrize("module", re.findall(r"-[mp] (tests\.[\w.]+)", TEXT))
def test_every_module_to_run_is_there(module: str) -> None:
    assert importlib.util.find_spec(module)


def test_every_name_is_in_the_code() -> None:
    named = {*re.findall(r"`(_?[A-Z]{2}\w+|[A-Z]\w+[a-z])`", TEXT)}
    sources = [*PRODUCT.rglob("*.py"), *(tests.ROOT / "tests").rglob("*.py")]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert named <= words | {"NAME_case"}
