"""A command's output replaces an earlier one of its kind, and no other file; an applied plan stays, by any name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from reconciler.core.errors import ExitCode
from tests.golden.corpus import Estate
from tests.golden.world import Result, World

COMMANDS = {
    "a plan": "plan -c reconciler.toml --job clicks -o FILE",
    "an HTML page": "show p.json --html FILE",
    "an export of anchors": "anchors export -c reconciler.toml --job clicks FILE",
    "an audit's result": "audit -c reconciler.toml p.json --json FILE",
}
PLAN, APPLY = COMMANDS["a plan"], "apply FILE -c reconciler.toml --yes"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    world.with_state()
    assert run(world, PLAN, "p.json").code == ExitCode.OK
    return world


def run(world: World, line: str, file: str, *more: str) -> Result:
    return world.run(*shlex.split(line.replace("FILE", file)), *more)


def rows(world: World) -> str:
    return world.run("anchors", "export", "-c", "reconciler.toml", "--job", "clicks").out


@pytest.fixture
def filled(world: World) -> World:
    """With a file of every kind; ``link`` leads to the configuration."""
    assert run(world, APPLY, "p.json").code == ExitCode.OK
    assert run(world, COMMANDS["an HTML page"], "page").code == ExitCode.OK
    assert run(world, COMMANDS["an export of anchors"], "anchors").code == ExitCode.OK
    (world.folder / "link").symlink_to("reconciler.toml")
    return world


OWN = {"a plan": "p.json", "an HTML page": "page", "an export of anchors": "anchors"}


@pytest.mark.parametrize(("kind", "line"), COMMANDS.items())
def test_no_file_of_another_kind_is_replaced(filled: World, kind: str, line: str) -> None:
    others = {"reconciler.toml", "link", "offsets.db", *OWN.values()} - {OWN.get(kind)}
    for name in sorted(filter(None, others)):
        before = (filled.folder / name).read_bytes()
        ended = run(filled, line, name)
        assert (ended.code, ended.err) == (
            ExitCode.USAGE,
            f"{name} exists and is not {kind}. Name another file.\n",
        )
        assert (filled.folder / name).read_bytes() == before
    assert (filled.folder / "link").is_symlink()


def test_an_earlier_output_of_the_same_kind_and_an_empty_file_are_replaced(world: World) -> None:
    indented = world.run("plan", "-c", "reconciler.toml", "--job", "clicks", "--format", "json").out
    world.file("indented.json", indented)
    world.file("marked.json", "\ufeff" + indented.replace("\n", "\r\n"))
    world.file("empty", "")
    (world.folder / "dangling").symlink_to("nowhere")
    for name in ("p.json", "indented.json", "marked.json", "empty", "dangling"):
        assert run(world, PLAN, name).code == ExitCode.OK, name
        assert world.run("show", name).code == ExitCode.OK
    for kind in ("an HTML page", "an export of anchors"):
        for _ in range(2):
            assert run(world, COMMANDS[kind], "out").code == ExitCode.OK, kind
        (world.folder / "out").unlink()
