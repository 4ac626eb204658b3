"""Words people read: the help of every command, and the errors for command lines that make no sense."""

from __future__ import annotations

import sys

import pytest

from tests.golden.compare import Goldens
from tests.golden.internals import COMMANDS, actions_of
from tests.golden.world import World

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="every Python's argparse has words of its own, and these are of 3.11"
)

NONSENSE = (
    "reconciler --version",
    "reconciler nonsense",
    "reconciler chekc -c reconciler.toml",
    "reconciler check",
    "reconciler check -c reconciler.toml --fromat json",
    "reconciler check -c reconciler.toml --format xml",
    "reconciler check -c reconciler.toml --accept unresolved",
    "reconciler plan -c reconciler.toml",
    "reconciler apply -c reconciler.toml",
    "reconciler hook -c reconciler.toml --wait soon",
    "reconciler anchors -c reconciler.toml",
    "reconciler checkpoint clone a b",
    "reconciler help nonsense",
)


@pytest.fixture
def narrow(world: World) -> World:
    world.columns(80)
    return world


def test_the_overview(narrow: World, goldens: Goldens) -> None:
    goldens.check("words/help/overview.txt", narrow.session("--help", ""))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help(narrow: World, goldens: Goldens, name: str) -> None:
    lines = [f"{name} --help", *(f"{name} {action} --help" for action in actions_of(name))]
    goldens.check(f"words/help/{name}.txt", narrow.session(*lines))


def test_a_command_line_that_makes_no_sense(narrow: World, goldens: Goldens) -> None:
    goldens.check("words/usage.txt", narrow.session(*(line.removeprefix("reconciler ") for line in NONSENSE)))
