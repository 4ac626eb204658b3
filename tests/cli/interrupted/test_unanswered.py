"""A command that waits for a cluster or a store reports for what, how much longer, and why; it does not wait where
waiting cannot help.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep

import pytest

from reconciler.cli.main import main, module_of
from reconciler.cli.terminal import progress
from reconciler.config.settings import SearchSettings
from reconciler.core.errors import ExitCode
from reconciler.waits import for_seconds, note_answer, under_way, waiting
from tests.sizes import sampled
from tests.starting import with_state

UNREACHABLE = int(ExitCode.UNREACHABLE)
KAFKA = "kafka-group:"
STORES = {
    "kafka": KAFKA,
    "hbase": "hbase://{place}/t?layout=cloudera&timeout=1",
    "zookeeper": "zookeeper://{place}/kafka?layout=consumers&timeout=1",
    "postgresql": "postgresql://{place}/db?timeout=1",
}


@pytest.fixture
def closed() -> Iterator[str]:
    """An address that refuses connections: its port is bound, and nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 0.3)
    monkeypatch.setattr(progress, "EVERY_S", 0.3)
    monkeypatch.setattr(progress, "LOOK_S", 0.02)


def exported(
    folder: Path, store: str, kafka: str, *words: str, deadline_s: int = 1, command: Sequence[str] | None = None
) -> int:
    """The exit code of a command, else of one that reads the store, and Kafka if the store is there."""
    config = folder / "reconciler.toml"
    config.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{kafka}"\n[search]\ndeadline = "{deadline_s}s"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "{store}"\n'
    )
    command = command or (["plan"] if store == KAFKA else ["anchors", "export"])
    return main([*words, *command, "-c", str(config)])


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("system", ["kafka", "hbase", "zookeeper"])
def test_a_wait_for_what_refuses_connections_names_place_time_and_cause(
    tmp_path: Path, closed: str, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = STORES[system].format(place=closed).replace("timeout=1", "timeout=3")
    assert exported(tmp_path, store, closed, deadline_s=3) == UNREACHABLE
    err = capsys.readouterr().err
    assert re.search(rf"^waiting for .*{closed}, [0-3] s left: .*Connection refused$", err, re.MULTILINE), err


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("system", sampled(STORES, 0, always=lambda system: system == "postgresql"))
def test_a_wait_for_a_silent_server_is_told_in_each_log_format(
    tmp_path: Path, silent: str, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = STORES[system].format(place=silent)
    assert exported(tmp_path, store, silent, "--log-format", "json") == UNREACHABLE
    first, *_ = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"]) == ("info", "reconciler.waits")
    assert re.search(rf"waiting for .*{silent}.*, \d s left: \w", first["message"])


@pytest.mark.usefixtures("soon")
def test_a_wait_for_a_file_system_of_other_machines_is_told(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reconciler.places.folder.TIMEOUT_S", 1.0)
    assert exported(tmp_path, f"files:webhdfs://{silent}/offsets", silent) == UNREACHABLE
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"waiting for webhdfs://{silent}/offsets, [01] s left: no answer yet", first)


@pytest.mark.parametrize("system", STORES)
def test_a_name_that_does_not_resolve_is_not_waited_for(
    tmp_path: Path, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "no-such-host.invalid:9999"
    store = STORES[system].format(place=place).replace("timeout=1", "timeout=60")
    began = monotonic()
    assert exported(tmp_path, store, place, deadline_s=60) == UNREACHABLE
    assert monotonic() - began < 30
    err = capsys.readouterr().err
    assert "no-such-host.invalid" in err
    assert "(DNS)" in err


@pytest.mark.parametrize("command", ["anchors export", "track --once"])
def test_the_deadline_of_a_search_limits_the_requests_for_groups_as_well(
    tmp_path: Path, silent: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "reconciler.toml"
    config.write_text(
        f'[clusters.a]\nbootstrap_servers = "localhost:{silent.rpartition(":")[2]}"\n[clusters.b]\n'
        f'bootstrap_servers = "{silent}"\n[search]\ndeadline = "1s"\n[state]\n'
        f'store = "sqlite:///{tmp_path}/state.db"\n[[jobs]]\nhome = "a"\nname = "clicks"\n'
        f'topics = ["events"]\noffsets = "{KAFKA}"\n'
    )
    with_state(config)
    assert main([*command.split(), "-c", str(config)]) == UNREACHABLE
    said = " ".join("".join(capsys.readouterr()).split())
    assert "gave no answer in 1 s" in said
    assert "in 10 s" not in said


@pytest.mark.parametrize("command", sampled(["plan", "drill", "hook"], keep=2))
def test_a_cluster_that_stays_silent_is_named_with_all_the_time_that_was_waited(
    tmp_path: Path, silent: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of some requests of half a second each, the last one's time says little."""
    monkeypatch.setattr(SearchSettings, "request_timeout_s", 0.5)
    words = command.split() + (["-o", str(tmp_path / "p.json")] if command == "plan" else [])
    exported(tmp_path, KAFKA, silent, deadline_s=2, command=["show", "nothing"])
    with_state(tmp_path / "reconciler.toml", to="b")
    assert main([*words, "-c", str(tmp_path / "reconciler.toml")]) == UNREACHABLE
    (said,) = re.findall(r"gave no answer in (\S+) s", capsys.readouterr().err.splitlines()[-1])
    assert 2 <= float(said) < 10


def test_a_quick_command_says_nothing_of_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def quick(_: object) -> int:
        with waiting("kafka-b:9092", for_seconds(10)):
            sleep(2 * progress.LOOK_S)
        return 0

    monkeypatch.setattr(f"{module_of('show')}.run", quick)
    assert main(["show", "any.plan.json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_wait_begins_again_with_every_answer() -> None:
    with waiting("kafka-b:9092", for_seconds(10), lambda: "no route"):
        sleep(0.05)
        (before,) = under_way()
        note_answer()
        (after,) = under_way()
    assert before.waited_s >= 0.05
    assert after.waited_s < before.waited_s
    assert (before.cause, after.cause) == ("no route", "")
