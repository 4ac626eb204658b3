"""Parts of the lab, without servers: its ports, a child process that fails, and clusters that workers share."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread, main_thread
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.errors import Unreachable
from reconciler.lab import ports, processes
from reconciler.lab.ports import HOST, free_ports
from reconciler.lab.processes import Child
from tests.lab import real_clusters
from tests.lab.real_clusters import SharedClusters

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_that_are_handed_out_together_differ() -> None:
    assert len(set(free_ports(5))) == 5


@pytest.mark.skipif(not OUTGOING.exists(), reason="only Linux tells which ports it gives to outgoing connections")
def test_no_outgoing_connection_is_given_such_a_port() -> None:
    first = int(OUTGOING.read_text().split()[0])
    assert max(free_ports(20)) < first


def test_a_port_in_use_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        (port,) = free_ports(1)
        taken.bind((HOST, port))
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        monkeypatch.setattr(ports, "_TRIED", 1)
        with pytest.raises(Unreachable, match="No port is free on this machine"):
            free_ports(1)


def test_the_end_of_a_log_is_shown_in_one_line(tmp_path: Path) -> None:
    """A terminal shows a message's line feeds as escapes."""
    log = tmp_path / "broker.log"
    child = Child("cluster a", [sys.executable, "-c", "print('one'); print('two')"], log, cwd=tmp_path)
    with pytest.raises(Unreachable) as caught:
        child.wait_until(lambda: False, 30, "its first answer")
    assert caught.value.hint == f"Its log, {log}, ends: one | two"


def test_a_child_whose_start_is_interrupted_is_killed_like_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C raises in the thread that waits for the start, before it knows of the child."""
    is_interrupted, started = Event(), []

    def interrupt(*_: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def popen(*words: Any, **more: Any) -> Any:
        while not is_interrupted.wait(0.05):  # a signal right before a wait begins is not noticed by it
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        started.append(subprocess.Popen(*words, **more))
        return started[0]

    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    monkeypatch.setattr(processes, "_living", set())  # this process may have started the run's shared clusters
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            Child("sleeper", [sys.executable, "-c", "import time; time.sleep(300)"], tmp_path / "log", cwd=tmp_path)
        processes.kill_all()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [each.returncode for each in started] == [-signal.SIGKILL]


# ---------------------------------------------------------------- clusters that workers share


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Starts and stops of clusters, which are none."""
    monkeypatch.setattr(real_clusters, "await_coordinator", lambda _: None)
    return []


@pytest.fixture
def listeners() -> list[socket.socket]:
    """A socket for each of the clusters, in the order of their starts: all that they answer with."""
    return []


@pytest.fixture
def worker(
    events: list[str], listeners: list[socket.socket], tmp_path: Path
) -> Callable[[], tuple[SharedClusters, ExitStack]]:
    """What a worker has of the shared clusters, and how it ends."""

    @contextmanager
    def begin(name: str) -> Iterator[Any]:
        events.append(f"start {name}")
        cluster_id = f"id {len(events)}"
        with socket.create_server((HOST, 0)) as listening:
            listeners.append(listening)
            yield SimpleNamespace(bootstrap=f"{HOST}:{listening.getsockname()[1]}", cluster_id=cluster_id)
        events.append(f"stop {name}")

    def make() -> tuple[SharedClusters, ExitStack]:
        until_the_end = ExitStack()
        return SharedClusters(begin, tmp_path, until_the_end), until_the_end

    return make


def test_workers_share_a_cluster_and_who_started_it_stops_it_after_the_last_use(
    events: list[str], worker: Callable[[], tuple[SharedClusters, ExitStack]]
) -> None:
    (first, end_first), (second, end_second), (_, end_idle) = worker(), worker(), worker()
    assert first.destination.cluster_id == second.destination.cluster_id == "id 1"
    assert second.source.cluster_id == first.source.cluster_id == "id 2"
    assert first.destination.bootstrap == second.destination.bootstrap != first.source.bootstrap
    end_idle.close()
    ending = Thread(target=end_second.close)
    ending.start()  # it started one that the first still uses
    ending.join(0.2)
    assert ending.is_alive()
    assert events == ["start b", "start a"]
    end_first.close()  # and this one started the other: neither waits for the other for ever
    ending.join()
    assert sorted(events[2:]) == ["stop a", "stop b"]
    late, end_late = worker()
    with end_late:
        assert late.destination.cluster_id == "id 5", "who comes later starts another one"
    assert events[4:] == ["start b", "stop b"]


def test_a_shared_cluster_that_has_ended_is_told_at_once_to_every_worker(
    listeners: list[socket.socket], worker: Callable[[], tuple[SharedClusters, ExitStack]]
) -> None:
    (first, end_first), (second, end_second) = worker(), worker()
    with end_first, end_second:  # who started it waits for the other
        assert first.destination.bootstrap == second.destination.bootstrap
        listeners[0].close()
        for clusters in (first, second):
            with pytest.raises(Unreachable, match=r"The shared cluster b of this run, at .* has ended"):
                _ = clusters.destination
