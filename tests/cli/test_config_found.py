"""A command line that names no configuration takes the one that is found here, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.terminal.usage import CONFIG_VARIABLE
from tests.golden.corpus import Estate
from tests.golden.world import World

TOLD = "Configuration: ./reconciler.toml, found here. Another is named with -c FILE.\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    return world


def test_the_configuration_that_is_found_here_is_used_and_named(world: World) -> None:
    named, found = world.run("check", "-c", "reconciler.toml"), world.run("check")
    assert (found.code, found.out) == (named.code, named.out)
    assert (named.err, found.err) == ("", TOLD)


def test_a_plan_made_so_shows_commands_that_name_it(world: World) -> None:
    assert "Next: reconciler apply p.json -c reconciler.toml" in world.run("plan", "--job", "ready", "-o", "p.json").out


def test_the_environment_goes_first(world: World) -> None:
    world.file("other.toml", "")
    world.environ(**{CONFIG_VARIABLE: "other.toml"})
    ended = world.run("check")
    assert ended.code == 2
    assert ended.err.startswith("other.toml: ")


def test_without_one_the_command_line_is_wrong(world: World) -> None:
    (world.folder / "reconciler.toml").rename(world.folder / "other.toml")
    ended = world.run("check")
    assert ended.code == 2
    assert "There is no ./reconciler.toml. Give the configuration with -c FILE" in ended.err


def test_help_explains_the_words_that_it_uses(world: World) -> None:
    shown = world.run("hook", "--help").out
    assert "verdict  the finding for one partition" in shown
    assert "anchor  the identity of the last record" in world.run("track", "--help").out.replace("\n", " ")
