"""An output that cannot be written is refused before a cluster or a store is asked."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from reconciler.core.errors import ExitCode
from tests.golden.corpus import Estate
from tests.golden.world import DESTINATION, World

COMMANDS = {
    "plan": "plan -c gone.toml -o PLACE",
    "anchor lines": "anchors export -c gone.toml PLACE",
    "page": "show no-plan.json --html PLACE",
    "configuration": f"init --bootstrap-servers {DESTINATION} --alias a --force -o PLACE",
    "audit as JSON": "audit -c gone.toml no-plan.json --json PLACE",
    "variables": "hook -c gone.toml --job clicks --plans plans --env-file PLACE",
}
PLACES = {
    "folder": "Is a directory",
    "/proc/p.json": "No such file or directory",
    "file/x": "Not a directory",
    "fifo": "It is a pipe or a device, and not a file",
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Every log and store refuses to be opened."""
    world = World(tmp_path, monkeypatch)
    Estate(world)
    config = (tmp_path / "reconciler.toml").read_text()
    world.file("gone.toml", config)
    for name in ("gone.toml", "reconciler.toml"):
        world.located(name, to="b")
    world.file("file", "")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return world


def asked(*_: object, **__: object) -> None:
    raise AssertionError("a cluster or a store was asked")


def nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reconciler.kafka.reading_process.open_log", "reconciler.places.registry.open_store"):
        monkeypatch.setattr(name, asked)


@pytest.mark.parametrize("line", COMMANDS.values(), ids=list(COMMANDS))
@pytest.mark.parametrize(("place", "why"), PLACES.items(), ids=["folder", "proc", "below a file", "pipe"])
def test_an_output_that_cannot_be_written_is_refused_first(
    world: World, monkeypatch: pytest.MonkeyPatch, line: str, place: str, why: str
) -> None:
    nothing_is_asked(monkeypatch)
    ended = world.run(*shlex.split(line.replace("PLACE", place)))
    assert (ended.code, f"{place} cannot be written: {why}" in ended.err) == (ExitCode.USAGE, True), ended.err


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (COMMANDS["plan"], "plan --format json prints a plan."),
        (COMMANDS["audit as JSON"], "--format json prints the result."),
        (COMMANDS["variables"], "Without a command, the hook prints the variables."),
    ],
)
def test_a_dash_is_no_name_for_a_file(world: World, monkeypatch: pytest.MonkeyPatch, line: str, instead: str) -> None:
    nothing_is_asked(monkeypatch)
    world.file("-", "kept")
    ended = world.run(*shlex.split(line.replace("PLACE", "-")))
    assert (ended.code, f"- would be stdout. {instead}" in ended.err) == (ExitCode.USAGE, True), ended.err
    assert world.read("-") == "kept"


def test_a_page_goes_to_stdout(world: World) -> None:
    assert world.run(*shlex.split("plan -c reconciler.toml --job clicks -o p.json")).code == ExitCode.OK
    assert world.run(*shlex.split("show p.json --html p.html")).code == ExitCode.OK
    ended = world.run(*shlex.split("show p.json --html -"))
    assert (ended.code, ended.out, ended.err) == (ExitCode.OK, world.read("p.html"), "")
    assert not (world.folder / "-").exists()


def test_a_check_of_the_place_leaves_what_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.file("p.json", "kept")
    monkeypatch.setattr("reconciler.failover.apart.check", asked)
    world.run(*shlex.split("plan -c reconciler.toml --job nobody -o p.json"))
    assert world.read("p.json") == "kept"
    assert {path.name for path in world.folder.iterdir()} >= {"p.json"}
    assert not [path for path in world.folder.iterdir() if path.name.startswith(".p.json")]


def test_the_hook_looks_at_its_folder_of_plans_before_the_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_is_asked(monkeypatch)
    (world.folder / "plans").mkdir(mode=0o500)
    monkeypatch.setattr("tempfile.mkstemp", denied)
    ended = world.run(*shlex.split("hook -c reconciler.toml --job clicks --plans plans"))
    assert (ended.code, "Permission denied. Choose another --plans." in ended.err) == (ExitCode.USAGE, True), ended.err


def denied(*_: object, **__: object) -> None:
    raise PermissionError(13, os.strerror(13))
