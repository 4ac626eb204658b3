"""Words people read: the help of every command, and the errors for command lines that make no sense."""

from __future__ import annotations

import re

import pytest

from tests.golden.compare import Goldens
from tests.golden.internals import COMMANDS, actions_of
from tests.golden.world import World

NONSENSE = (
    "reconciler --version",
    "reconciler nonsense",
    "reconciler mvoe -c reconciler.toml",
    "reconciler move -c reconciler.toml --too b",
    "reconciler plan",
    "reconciler plan -c reconciler.toml --fromat json",
    "reconciler plan -c reconciler.toml --format xml",
    "reconciler plan -c reconciler.toml --accept unresolved",
    "reconciler plan -c reconciler.toml",
    "reconciler apply -c reconciler.toml",
    "reconciler hook -c reconciler.toml --wait soon",
    "reconciler anchors -c reconciler.toml",
    "reconciler checkpoint clone a",
    "reconciler help nonsense",
)


def as_of_3_11(text: str) -> str:
    """Later versions of argparse name an option's value once (``-c, --config FILE``), and do not quote choices."""

    def named_twice(found: re.Match[str]) -> str:
        short, long, value, gap = found.groups()
        return f"{short} {value}, {long} {value}{gap[len(value) + 1 :]}"

    def quoted(found: re.Match[str]) -> str:
        return f"(choose from {', '.join(repr(choice) for choice in found[1].split(', '))})"

    text = re.sub(r"(  -\w), (--[\w-]+) ([A-Z]+)( *)", named_twice, text)
    return re.sub(r"\(choose from ([^')]+)\)", quoted, text)


@pytest.fixture
def narrow(world: World) -> World:
    world.columns(80)
    return world


def test_the_overview(narrow: World, goldens: Goldens) -> None:
    goldens.check("words/help/overview.txt", as_of_3_11(narrow.session("--help", "")))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help(narrow: World, goldens: Goldens, name: str) -> None:
    lines = [f"{name} --help", *(f"{name} {action} --help" for action in actions_of(name))]
    goldens.check(f"words/help/{name}.txt", as_of_3_11(narrow.session(*lines)))


def test_a_command_line_that_makes_no_sense(narrow: World, goldens: Goldens) -> None:
    session = narrow.session(*(line.removeprefix("reconciler ") for line in NONSENSE))
    goldens.check("words/usage.txt", as_of_3_11(session))
