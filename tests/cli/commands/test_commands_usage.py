"""Exit code 2: usage and configuration; and an interrupted run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import World, environment, source_record

pytestmark = pytest.mark.system


@pytest.fixture
def fine(world: World) -> World:
    world.deliver(6)
    world.processed(3)
    return world


def refused(world: World, *arguments: object) -> str:
    before = world.rows()
    ended = world.run(*arguments)
    assert ended.code == 2, ended.output
    assert ended.out == ""
    assert world.rows() == before
    return ended.err


def test_an_unknown_key_names_the_one_that_was_meant(fine: World) -> None:
    config = fine.config(extra="[search]\nmax_disordre = '5s'")
    said = refused(fine, "check", "-c", config)
    assert str(config) in said
    assert "[search] max_disordre is not a known key. Did you mean max_disorder?" in said


def test_a_secret_that_is_not_set_is_named(fine: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    config = fine.config(extra='[destination.client]\n"sasl.password" = "${NOT_SET_ANYWHERE}"')
    assert "${NOT_SET_ANYWHERE} is not set in the environment" in refused(fine, "check", "-c", config)


def test_a_topic_that_is_nowhere_is_refused(fine: World) -> None:
    said = refused(fine, "check", "-c", fine.config(fine.job("clicks", "misspelt")))
    assert 'The destination has no topic "a.misspelt", and the store holds no offset for "misspelt"' in said


def test_a_wrong_alias_is_refused(fine: World) -> None:
    empty = fine.job("clicks", f"{fine.topic}-new")
    said = refused(fine, "check", "-c", fine.config(empty, source='alias = "z"'))
    assert f'The destination has no topic "z.{fine.topic}-new"' in said


def test_a_destination_that_the_anchors_come_from_is_refused(world: World) -> None:
    anchor = source_record(3).anchor
    own = type(anchor)(3, anchor.timestamp_ms, anchor.id, anchor.fingerprint, world.cluster.cluster_id)
    world.save({0: StoredOffset(4, own)})
    said = refused(world, "check", "-c", world.config())
    assert f'[destination] has no topic "{world.mirrored}", and reports the cluster id' in said
    assert world.cluster.cluster_id in said


def test_source_and_destination_are_one(fine: World) -> None:
    source = f'alias = "a"\nbootstrap_servers = "{fine.cluster.bootstrap}"'
    said = refused(fine, "check", "-c", fine.config(source=source))
    assert "[source] and [destination] have the same bootstrap_servers" in said


@pytest.mark.parametrize(
    "line", ['"securty.protocol" = "SSL"', '"security.protocol" = "NONE"', '"socket.timeout.ms" = "soon"']
)
def test_a_client_property_that_the_client_refuses_is_a_usage_error(fine: World, line: str) -> None:
    said = refused(fine, "check", "-c", fine.config(extra=f"[destination.client]\n{line}"))
    assert "Correct [destination.client]" in said


def test_several_jobs_and_no_name(fine: World) -> None:
    config = fine.config(fine.job("clicks"), fine.job("views", store="memory:views"))
    said = refused(fine, "hook", "--to", "destination", "-c", config, "--plans", fine.folder / "plans", "--", "true")
    assert "Name it with --job: clicks, views." in said
    assert 'has no job "likes". It has: clicks, views.' in refused(fine, "check", "-c", config, "--job", "likes")


def test_a_missing_file_is_a_usage_error(fine: World) -> None:
    assert "There is no configuration file" in refused(fine, "check", "-c", fine.folder / "none.toml")
    assert "There is no plan" in refused(fine, "apply", fine.folder / "none.json", "-c", fine.config())
    nowhere = fine.folder / "none" / "plan.json"
    assert "cannot be written" in refused_after_printing(fine, "plan", "-c", fine.config(), "-o", nowhere)


def refused_after_printing(world: World, *arguments: object) -> str:
    ended = world.run(*arguments)
    assert ended.code == 2, ended.output
    return ended.err


def test_a_rollback_of_what_was_never_applied(fine: World) -> None:
    fine.plan(fine.config())
    said = refused(fine, "rollback", fine.plan_file, "-c", fine.config(), "--yes")
    assert "There is nothing to roll back" in said
    assert "no store holds a row that this plan wrote" in said


def test_a_rollback_by_a_copy_of_the_plan_says_that_it_was_applied_and_where_its_snapshot_is(fine: World) -> None:
    config, copy = fine.config(), fine.folder / "elsewhere.json"
    fine.plan(config)
    copy.write_bytes(fine.plan_file.read_bytes())
    assert fine.run("apply", fine.plan_file, "-c", config, "--yes").code == 0
    rows = fine.rows()
    said = refused(fine, "rollback", copy, "-c", config, "--yes")
    assert f"There is no snapshot {copy}.applied.json, but the plan was applied" in said
    assert "Run this with the copy of the plan that was applied" in said
    assert fine.rows() == rows
    mistaken = fine.run("rollback", f"{fine.plan_file}.applied.json", "-c", config, "--yes")
    assert (mistaken.code, fine.rows()) == (5, rows)
    assert f"That is the snapshot beside a plan. Name the plan: {fine.plan_file}\n" in mistaken.err


def test_two_source_topics_with_one_name_at_the_destination(fine: World) -> None:
    """Two rows for one destination partition: the right offset is ambiguous."""
    names = f'[topics.names]\n"one" = "{fine.mirrored}"\n"two" = "{fine.mirrored}"'
    assert fine.mirrored in refused(fine, "check", "-c", fine.config(fine.job("clicks", "one", "two"), extra=names))


@pytest.mark.parametrize("command", ["check", "plan", "apply", "rollback", "hook", "show", "anchors", "demo"])
def test_every_command_helps_with_an_example(world: World, command: str) -> None:
    ended = world.run(command, "--help")
    assert ended.code == 0
    assert f"  reconciler {command}" in ended.out.partition("\nexamples:\n")[2]
    assert "--log-format" in ended.out


@pytest.mark.parametrize("arguments", [(), ("chekc",), ("check",), ("check", "-c", "x", "--accept", "perhaps")])
def test_a_wrong_command_line_prints_the_usage(world: World, arguments: tuple[str, ...]) -> None:
    ended = world.run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "usage: reconciler" in ended.err


@pytest.mark.parametrize("arguments", [("check",), ("watch", "--once")], ids=" ".join)
def test_a_command_interrupted_at_a_silent_broker_ends_quietly(world: World, arguments: Sequence[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        world.save({0: source_record(3).stored})
        config = world.config(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}")
        command = [sys.executable, "-m", "reconciler", *arguments, "-c", str(config)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment(), **pipes) as ended:
            held, _ = silent.accept()  # the client is connected now, and gets no answer
            with held:
                ended.send_signal(signal.SIGINT)
                out, err = ended.communicate(timeout=30)
    assert (ended.returncode, out) == (130, "")
    assert err == "Interrupted. Nothing was written.\n"
