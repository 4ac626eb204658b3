"""SIGTERM and SIGINT end a command that is waiting for a silent broker."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.starting import with_state
from tests.world import environment

pytestmark = pytest.mark.system
FEW_SECONDS = 30.0
"""Without a signal the command would wait four times as long."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def config(folder: Path, silent: socket.socket) -> Path:
    path = folder / "reconciler.toml"
    path.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "127.0.0.1:{silent.getsockname()[1]}"\n'
        '[search]\ndeadline = "120s"\n'
        '[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "memory:"\n'
    )
    return with_state(path, to="b")


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (("drill",), signal.SIGTERM, 143),
        (("plan",), signal.SIGINT, 130),
        (("hook", "--", "true"), signal.SIGTERM, 143),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, tuple) else str(each),
)
def test_a_signal_ends_a_command_that_waits_for_a_silent_broker(
    tmp_path: Path, silent: socket.socket, words: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    named, *more = words
    command = [sys.executable, "-m", "reconciler", named, "-c", str(config(tmp_path, silent)), *more]
    where = environment() | {"TMPDIR": str(temp), "RECONCILER_PLANS": str(tmp_path / "plans")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=where) as running:
        try:
            held, _ = silent.accept()  # the command is asking the broker now
            with held:
                running.send_signal(number)
                began = monotonic()
                out, err = running.communicate(timeout=150)
                took_s = monotonic() - began
        finally:
            running.kill()
    assert (running.returncode, out) == (code, ""), err
    assert "Interrupted. Nothing was written." in err
    assert "Traceback" not in err
    assert took_s < FEW_SECONDS
    assert list(temp.iterdir()) == []
