"""The lab of ``reconciler lab``: found and ended by its command lines, and never confused with anything else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.lab import standing
from reconciler.lab.ports import HOST, free_ports, this_or_free
from reconciler.lab.servers import servers_in
from reconciler.lab.standing import StandingLab
from tests.waiting import LIMIT_S, wait_until
from tests.world import environment

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that sleeps, with these words on its command line."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeping(*words: object) -> subprocess.Popen[bytes]:
        idle = "import sys; print(flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", idle, *map(str, words)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield sleeping
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a lab whose first ``up`` was killed in the middle."""
    place = tmp_path / "lab"
    for name in ("a", "b", "mirror"):
        (place / name).mkdir(parents=True)
    (place / ".reconciler-lab").touch()
    return place


def servers(start: Start, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    return {
        "a": start("kafka.Kafka", folder / "a" / "server.properties"),
        "b": start("kafka.tools.StorageTool", "format", "-c", folder / "b" / "server.properties"),
        "mirror": start("org.apache.kafka.connect.mirror.MirrorMaker", folder / "mirror" / "mm2.properties"),
    }


def test_down_ends_servers_that_no_file_remembers_and_no_other_process(
    start: Start, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = servers(start, folder)
    others = [
        start("kafka.Kafka", tmp_path / "other" / "a" / "server.properties"),
        start("less", folder / "a" / "server.properties"),
    ]
    assert {each.name: each.pid for each in servers_in(folder)} == {name: each.pid for name, each in ours.items()}
    assert main(["lab", "down", "--folder", str(folder)]) == 0
    assert [process.wait(10) for process in ours.values()] == [-9, -9, -9]
    assert [process.poll() for process in others] == [None, None]
    assert not folder.exists()
    assert main(["lab", "down", "--folder", str(folder)]) == 0
    assert f"There is no lab in {folder}." in capsys.readouterr().out


def test_status_of_an_interrupted_up_says_what_runs_and_what_to_do(
    start: Start, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("kafka.Kafka", folder / "b" / "server.properties")
    assert main(["lab", "status", "--folder", str(folder)]) == 6
    out = capsys.readouterr().out
    assert [line.split()[:3] for line in out.splitlines() if line[:2] in ("a ", "b ", "mi")] == [
        ["a", "not", "running"],
        ["b", "running", "-"],
        ["mirror", "not", "running"],
    ]
    assert f"was interrupted. Begin again: reconciler lab up --folder {folder}\n" in out


@pytest.mark.parametrize("action", ["status", "kill", "produce"])
def test_without_a_lab_there_is_nothing_to_act_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert main(["lab", action, "--folder", str(tmp_path)]) == 6
    assert capsys.readouterr().err == f"No lab is up in {tmp_path}. Start one: reconciler lab up --folder {tmp_path}\n"


def test_without_a_folder_of_its_own_the_lab_is_named_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONCILER_CACHE", str(tmp_path))
    assert main(["lab", "status"]) == 6
    assert capsys.readouterr().err == f"No lab is up in {tmp_path / 'lab'}. Start one: reconciler lab up\n"


@pytest.mark.parametrize("action", ["up", "down"])
def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    (tmp_path / "a").mkdir()
    assert main(["lab", action, "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path} is not a lab's folder. Give a new or empty one with --folder.\n"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_port_of_another_program_is_not_taken() -> None:
    (port,) = free_ports(1)
    assert this_or_free(port) == port
    with socket.create_server((HOST, port)):
        assert this_or_free(port) != port
    with socket.create_server(("", port)):
        assert this_or_free(port) != port


def lab(folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "reconciler", "lab", *words, "--folder", str(folder)], environment()


def runs(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command, variables = lab(folder, *words)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def places(state: Mapping[str, Any], cluster: str) -> list[dict[str, Any]]:
    """The partitions of one cluster, of a lab's ``status``."""
    return [each for each in state["places"] if each["cluster"] == cluster]


def without(state: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The lab's ``status`` but for the offsets at one cluster."""
    return {**state, "places": [each for each in state["places"] if each["cluster"] != cluster]}


@pytest.fixture
def place(tmp_path: Path, kafka_jars: Path) -> Iterator[Path]:
    yield tmp_path / "lab"
    assert runs(tmp_path / "lab", "down").returncode == 0
    assert servers_in(tmp_path / "lab") == []


@pytest.mark.system
@pytest.mark.thorough
def test_a_lab_outlives_its_command_and_a_reboot(place: Path) -> None:
    def found() -> dict[str, Any]:
        state = json.loads(runs(place, "status", "--format", "json").stdout)
        return {**state, "parts": [(part["name"], part["address"]) for part in state["parts"]]}

    first = runs(place, "up")
    assert (first.returncode, "The lab is up." in first.stdout) == (0, True), first
    was = found()
    again = runs(place, "up")
    assert (again.returncode, "The lab was up already." in again.stdout) == (0, True), again
    for server in servers_in(place):
        os.kill(server.pid, signal.SIGKILL)
    assert runs(place, "status").returncode == 6
    assert runs(place, "produce").returncode == 6
    assert runs(place, "up").returncode == 0
    now = found()
    assert without(now, "b") == without(was, "b"), "the same addresses, the same offsets at the source"
    sent = zip(places(now, "b"), places(was, "b"), strict=True)
    assert all(after["next"] >= before["next"] for after, before in sent), "a killed mirror may send records again"
    assert runs(place, "produce", "--records", "40").returncode == 0


@pytest.mark.system
@pytest.mark.thorough
def test_a_port_that_another_program_takes_during_a_restart_does_not_matter(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(place, "up").returncode == 0
    (source,) = (server for server in servers_in(place) if server.name == "a")
    os.kill(source.pid, signal.SIGKILL)
    with socket.socket() as thief:
        thief.bind((HOST, 0))
        thief.listen()
        stolen = thief.getsockname()[1]
        answers = iter([stolen])
        monkeypatch.setattr(standing, "this_or_free", lambda port: next(answers, None) or this_or_free(port))
        StandingLab(place, print).up()
    state = json.loads(runs(place, "status", "--format", "json").stdout)
    assert all(part["pid"] for part in state["parts"])
    assert places(state, "a")
    assert state["parts"][0]["address"] != f"{HOST}:{stolen}"


@pytest.mark.system
@pytest.mark.thorough
def test_a_part_that_ends_while_up_looks_is_started_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed is there for a moment: ``up`` waited for its answer, and for nothing else."""
    assert runs(place, "up").returncode == 0
    before = servers_in(place)
    (source,) = (server for server in before if server.name == "a")
    os.kill(source.pid, signal.SIGKILL)
    wait_until(lambda: source not in servers_in(place), "the end of the source")
    looks = iter([before])
    monkeypatch.setattr(standing, "servers_in", lambda folder: next(looks, None) or servers_in(folder))
    assert StandingLab(place, print).up()
    state = json.loads(runs(place, "status", "--format", "json").stdout)
    assert all(part["pid"] for part in state["parts"])


@pytest.mark.system
@pytest.mark.thorough
def test_an_interrupted_up_leaves_nothing_and_a_killed_one_is_begun_again(place: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        command, variables = lab(place, "up")
        with subprocess.Popen(
            command,
            env=variables,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as up:
            assert up.stdout is not None
            assert any("MirrorMaker 2 starts" in line for line in up.stdout)
            up.send_signal(number)
            assert up.wait(60) == code
        assert place.exists() == (number == signal.SIGKILL)
        assert bool(servers_in(place)) == (number == signal.SIGKILL)
    assert runs(place, "up").returncode == 0
    assert runs(place, "status").returncode == 0
