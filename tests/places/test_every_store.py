"""A store of the table is in every other list of stores: the extras and the documents; and no other room imports it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.config.addresses import without_secrets
from reconciler.config.stores import STORES, Behind
from tests import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PLACES = "reconciler.places."
ROOMS = {spec.room for spec in STORES.values()}
OTHERS: dict[str, tuple[str, ...]] = {
    "checkpoint": ("reconciler",),
    "postgresql": ("reconciler.failover.sinks", "reconciler.spark", "reconciler.state"),
    "delta.table": ("reconciler.failover.sinks",),
    "iceberg.table": ("reconciler.failover.sinks",),
    "hbase": ("reconciler.state",),
    "sqlite": ("reconciler.state",),
}
"""Which other rooms may import what of a store: a client's connection and errors, or a checkpoint's reader."""
FOR_TESTS = {"memory"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def opens_addresses(path: Path) -> bool:
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == "open_address" for node in nodes)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_every_module_that_opens_addresses_is_in_the_table() -> None:
    found = {name_of(path) for path in (ROOT / "reconciler" / "places").rglob("*.py") if opens_addresses(path)}
    assert found == {spec.module for spec in STORES.values()}, "STORES of reconciler/config/stores.py"


def test_a_store_is_opened_through_the_registry_alone_and_knows_no_other_one() -> None:
    wrong = []
    for path in (ROOT / "reconciler").rglob("*.py"):
        user = name_of(path)
        for name in imported(path):
            room = next((each for each in ROOMS if is_within(name, each)), None)
            if room is None or is_within(user, room):
                continue
            allowed = [users for part, users in OTHERS.items() if is_within(name, PLACES + part)]
            if user.startswith(PLACES) or not any(is_within(user, each) for users in allowed for each in users):
                wrong.append(f"{user} imports {name}")
    assert not wrong


@pytest.mark.parametrize("scheme", [name for name, each in STORES.items() if each.behind is Behind.SERVERS])
def test_a_login_at_a_wrong_place_of_a_servers_address_is_not_shown(scheme: str) -> None:
    for address in (f"{scheme}:/u:hunter2@h/db", f"{scheme}://u:hunter@h//u:hunter2@h:5432/db"):
        assert "hunter" not in without_secrets(address)


@pytest.mark.parametrize("scheme", STORES)
def test_a_stores_extra_is_one(scheme: str) -> None:
    assert STORES[scheme].extra in (None, *EXTRAS), "pyproject.toml: [project.optional-dependencies]"


def test_all_is_every_extra() -> None:
    (whole,) = EXTRAS["all"]
    assert {*re.findall(r"[\w-]+", whole.partition("[")[2])} == {*EXTRAS} - {"all", "test", "s3", "gcs", "azure"}


@pytest.mark.parametrize("scheme", STORES)
def test_a_store_is_in_the_documents(scheme: str) -> None:
    table = (ROOT / "docs/reference/stores.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[?`{scheme}:.*", table, re.MULTILINE)
    assert row, "docs/reference/stores.md has no row for it"
    if scheme not in FOR_TESTS:
        assert "](stores/" in row[0], (
            "its row in docs/reference/stores.md has no link to a page in docs/reference/stores"
        )
