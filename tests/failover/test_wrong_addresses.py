"""Wrong addresses are reported before a cluster is asked: an unreachable one would be waited for first."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import ExitCode
from tests.golden.corpus import HEAD, Estate, job
from tests.golden.world import Result, World
from tests.starting import with_state

WRONG = "hbase://h:1/t?layout=nonsense"
SAID = "layout='nonsense' is not one of cloudera"
COMMANDS = {
    "plan": "plan -c wrong.toml -o p.json",
    "hook": "hook -c wrong.toml --plans plans",
    "move": "move -c wrong.toml --to b",
    "drill": "drill -c wrong.toml",
    "mirror": "mirror -c wrong.toml",
    "watch": "watch -c wrong.toml --once",
    "export": "anchors export -c wrong.toml",
    "import": "anchors import -c wrong.toml lines",
}
CHECKS = ("plan", "hook", "move", "drill", "watch")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An estate whose destination fails the test if it is asked anything."""
    world = World(tmp_path, monkeypatch)
    Estate(world)
    world.file("lines", "")
    for name in ("describe", "read", "topics", "offsets_for_times"):
        monkeypatch.setattr(type(world.destination), name, asked, raising=False)
    return world


def asked(*_: object, **__: object) -> None:
    raise AssertionError("a cluster was asked")


def run(world: World, name: str) -> Result:
    with_state(world.folder / "wrong.toml", to="b" if name == "hook" else None)
    return world.run(*COMMANDS[name].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_store_address_is_reported_before_the_cluster_is_asked(world: World, name: str) -> None:
    world.file("wrong.toml", HEAD + job("clicks", ["events"], store=WRONG))
    ended = run(world, name)
    assert (ended.code, SAID in ended.err) == (ExitCode.USAGE, True), ended.err


@pytest.mark.parametrize("name", CHECKS)
def test_a_wrong_sink_address_is_reported_before_the_cluster_is_asked(world: World, name: str) -> None:
    text = job("clicks", ["events"]).replace("[jobs.identity]", 'sink = "delta:/t?nonsense=1"\n[jobs.identity]')
    world.file("wrong.toml", HEAD + text)
    ended = run(world, name)
    assert (ended.code, "'nonsense' is not one of its parameters" in ended.err) == (ExitCode.USAGE, True), ended.err


def test_every_wrong_address_is_reported(world: World) -> None:
    other = "zookeeper://h/c?layout=nonsense"
    world.file("wrong.toml", HEAD + job("clicks", ["a"], store=WRONG) + job("views", ["b"], store=other))
    ended = world.run("plan", "-c", "wrong.toml")
    assert ended.code == ExitCode.USAGE
    assert SAID in ended.err
    assert "The address of a ZooKeeper store is wrong: layout='nonsense'" in ended.err


def test_a_job_with_a_wrong_address_is_reported_at_once_and_hides_no_other(tmp_path, monkeypatch) -> None:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    world.file("wrong.toml", HEAD + job("ready", ["same", "fresh"]) + job("bad", ["events"], store=WRONG))
    ended = world.run("plan", "-c", "wrong.toml")
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith('job "bad": The address of an HBase store is wrong: ')
    assert "Must not start: bad." in ended.out
