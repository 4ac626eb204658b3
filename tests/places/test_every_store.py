"""A store of the registry is in every other list of stores: the import contracts, the extras, the documents."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from reconciler.config.addresses import without_secrets
from reconciler.places.registry import SCHEMES
from tests import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {each["name"]: each for each in PYPROJECT["tool"]["importlinter"]["contracts"]}
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
STORES = ROOT / "reconciler" / "places"
SHARED = {"checkpoint", "postgresql"}
"""Other rooms use parts of these: the checkpoint's reader, and PostgreSQL's connection."""
FOR_TESTS = {"memory"}
README_WORDS = {"checkpoint": "Structured Streaming checkpoint", "delta": "Delta", "iceberg": "Iceberg"}
"""The README's words for stores that it does not name by their scheme."""


def room(scheme: str) -> str:
    """A store's folder or module, as ``reconciler.places.NAME``."""
    return ".".join(SCHEMES[scheme].module.split(".")[:3])


def opens_addresses(path: Path) -> bool:
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == "open_address" for node in nodes)


def test_every_module_that_opens_addresses_is_in_the_registry() -> None:
    found = {path.relative_to(ROOT).with_suffix("") for path in STORES.rglob("*.py") if opens_addresses(path)}
    modules = {".".join(path.parts).removesuffix(".__init__") for path in found}
    assert modules == {scheme.module for scheme in SCHEMES.values()}, "SCHEMES of reconciler/places/registry.py"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_store_is_in_the_contracts_about_imports(scheme: str) -> None:
    apart = CONTRACTS["stores of different systems do not know each other"]["modules"]
    assert room(scheme) in apart, 'pyproject.toml: the contract "stores of different systems do not know each other"'
    if scheme not in SHARED:
        kept = CONTRACTS["these stores are opened through the registry alone"]["protected_modules"]
        assert {room(scheme), SCHEMES[scheme].module} & {*kept}, (
            'pyproject.toml: the contract "these stores are opened through the registry alone"'
        )


@pytest.mark.parametrize("scheme", [name for name, each in SCHEMES.items() if "://HOST" in each.example])
def test_a_login_at_a_wrong_place_of_a_servers_address_is_not_shown(scheme: str) -> None:
    for address in (f"{scheme}:/u:hunter2@h/db", f"{scheme}://u:hunter@h//u:hunter2@h:5432/db"):
        assert "hunter" not in without_secrets(address), "_SERVERS of reconciler/config/addresses.py"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_stores_extra_is_one(scheme: str) -> None:
    assert SCHEMES[scheme].extra in (None, *EXTRAS), "pyproject.toml: [project.optional-dependencies]"


def test_all_is_every_extra() -> None:
    (whole,) = EXTRAS["all"]
    assert {*re.findall(r"[\w-]+", whole.partition("[")[2])} == {*EXTRAS} - {"all", "test"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_store_is_in_the_documents(scheme: str) -> None:
    table = (ROOT / "docs/reference/stores.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[?`{scheme}:.*", table, re.MULTILINE)
    assert row, "docs/reference/stores.md has no row for it"
    if scheme not in FOR_TESTS:
        assert "](stores/" in row[0], (
            "its row in docs/reference/stores.md has no link to a page in docs/reference/stores"
        )
        readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it works with")[2]
        word = README_WORDS.get(scheme, f"`{scheme}:")
        assert word in readme, "README.md does not name it under What it works with today"
