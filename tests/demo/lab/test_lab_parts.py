"""Parts of the lab without clusters: ports and processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.core.errors import Unreachable
from reconciler.demo.lab import kafka
from reconciler.demo.lab.kafka import HOST, free_ports, is_free
from reconciler.demo.lab.processes import Child, kill_all, processes_in
from tests.waiting import wait_until

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")


# ---------------------------------------------------------------- ports


@pytest.mark.skipif(not OUTGOING.exists(), reason="only Linux tells which ports it gives to outgoing connections")
def test_free_ports_differ_and_no_outgoing_connection_is_given_one() -> None:
    found = [*free_ports(20), *free_ports(20)]
    assert len(set(found)) == 40
    assert max(found) < int(OUTGOING.read_text().split()[0])


def test_a_port_in_use_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    for host in (HOST, ""):
        with socket.create_server((host, port)):
            assert not is_free(port)
            monkeypatch.setattr(kafka, "PORTS", range(port, port + 1))
            with pytest.raises(Unreachable, match="No port is free on this machine"):
                free_ports(1)


# ---------------------------------------------------------------- processes


def sleeper(folder: Path, *words: object, code: str = "import time; time.sleep(600)", detached: bool = False) -> Child:
    """A process that sleeps, with these words on its command line."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return Child("The sleeper", command, folder / "log", cwd=folder, detached=detached)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_waiting_for_a_dead_process_ends_at_once_with_what_it_said_in_one_line(tmp_path: Path) -> None:
    """A terminal shows a message's line feeds as escapes."""
    child = sleeper(tmp_path, code="print('one'); print('two'); raise SystemExit(3)")
    with pytest.raises(Unreachable, match="ended with status 3 while waiting for a sign") as caught:
        child.wait_until(lambda: None, 600, "a sign")
    assert caught.value.hint == f"Its log, {tmp_path / 'log'}, ends: one | two"


def test_a_paused_process_can_still_be_stopped(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    child.pause()
    child.stop()
    assert not child.running
    child.stop()


PARENT = """
import signal, sys
from pathlib import Path
from reconciler.demo.lab.processes import Child
for detached in (False, True):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    print(Child("child", command, Path(sys.argv[1]), cwd=Path.cwd(), detached=detached).pid, flush=True)
signal.pause()
"""


@ON_LINUX
def test_only_a_detached_child_stays_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child, detached = (int(parent.stdout.readline()) for _ in range(2))
        assert is_alive(child)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(child), "the end of the child")
    assert is_alive(detached)
    os.kill(detached, signal.SIGKILL)


def test_processes_are_found_by_their_program_and_their_folder_and_no_other_is_killed(tmp_path: Path) -> None:
    """They are detached: a child that dies with its parent has no command line while its wrapper becomes it."""
    programs = ("kafka.Kafka", "job")
    place, elsewhere = tmp_path / "demo", tmp_path / "demo-2"
    ours = {
        "a": sleeper(tmp_path, "kafka.Kafka", place / "a" / "server.properties", detached=True),
        "job.json": sleeper(tmp_path, "job", "--conf", f"dir={place / 'job.json'}", detached=True),
    }
    others = [
        sleeper(tmp_path, "kafka.Kafka", elsewhere / "a" / "server.properties", detached=True),
        sleeper(tmp_path, "less", place / "a" / "server.properties", detached=True),
    ]
    try:
        known = {child.pid: name for name, child in ours.items()}
        wait_until(lambda: processes_in(place, programs) == known, "the command lines of both")
        assert kill_all(place, programs, "a")
        assert [child.running for child in ours.values()] == [False, True]
        assert kill_all(place, programs)
        assert not kill_all(place, programs), "safe to repeat"
        assert [child.running for child in (*ours.values(), *others)] == [False, False, True, True]
    finally:
        for child in (*ours.values(), *others):
            child.kill()
