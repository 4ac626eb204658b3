"""A command line that names no configuration takes the one that is found here, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.terminal.help import CONFIG_VARIABLE
from tests.golden.corpus import Estate
from tests.golden.world import World

TOLD = "Configuration: ./reconciler.toml, found here. Another is named with -c FILE.\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    return world


def test_the_configuration_that_is_found_here_is_used_and_named(world: World) -> None:
    named, found = world.run("plan", "-c", "reconciler.toml"), world.run("plan")
    assert (found.code, found.out) == (named.code, named.out)
    assert (named.err, found.err) == ("", TOLD)


def test_a_plan_made_so_shows_commands_that_name_it(world: World) -> None:
    assert "Next: reconciler apply p.json -c reconciler.toml" in world.run("plan", "--job", "ready", "-o", "p.json").out


def test_the_environment_goes_first(world: World) -> None:
    world.file("other.toml", "")
    world.environ(**{CONFIG_VARIABLE: "other.toml"})
    ended = world.run("plan")
    assert ended.code == 2
    assert "\nother.toml: " in ended.err


def test_one_that_is_not_there_is_said_to_come_from_the_environment(world: World) -> None:
    world.environ(**{CONFIG_VARIABLE: "gone.toml"})
    ended = world.run("plan")
    assert ended.code == 2
    assert ended.err.startswith("Configuration: gone.toml, named by RECONCILER_CONFIG.")
    assert "There is no configuration file gone.toml." in ended.err


def test_an_option_without_its_file_says_nothing_of_the_one_that_is_found_here(world: World) -> None:
    said = world.run("plan", "-c").err
    assert said.endswith("argument -c/--config: expected one argument\n")


# ---------------------------------------------------------------- commands that need none

UNSIGNED = "The plan is not signed, and a trusted key must have signed it."
NAMED = "Configuration: strict.toml, named by RECONCILER_CONFIG. Another is named with -c FILE.\n"


@pytest.fixture
def strict(world: World) -> World:
    """A plan without a signature, and a configuration besides ./reconciler.toml that requires one."""
    assert world.run("plan", "--job", "ready", "-o", "p.json").code == 0
    text = world.read("reconciler.toml")
    world.file("strict.toml", f'{text}\n[trust]\nrequire_signature = true\ntrusted_keys = ["a"]\n')
    return world


def test_a_configuration_of_the_environment_decides_who_must_sign(strict: World) -> None:
    named = strict.run("show", "p.json", "-c", "strict.toml")
    strict.environ(**{CONFIG_VARIABLE: "strict.toml"})
    found = strict.run("show", "p.json")
    assert (found.code, found.out, found.err) == (named.code, named.out, NAMED + named.err)
    assert (found.code, UNSIGNED in found.err) == (5, True)
    strict.environ(**{CONFIG_VARIABLE: ""})
    assert strict.run("show", "p.json").code == 0
