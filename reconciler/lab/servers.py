"""The servers of a lab that outlives its command, found by their command lines.

A process id kept in a file can belong to another program after a reboot. A command line that runs Kafka with a settings
file in the lab's folder is a server of this lab, whichever command started it, and however that command ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import Unreachable

_PROC = Path("/proc")
_PROGRAMS = r"kafka\.Kafka|kafka\.tools\.StorageTool|org\.apache\.kafka\.connect\.mirror\.MirrorMaker"
_END_SECONDS = 15
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Server:
    """A process of the lab: its folder's name, and its id."""

    name: str
    pid: int


def servers_in(folder: Path) -> list[Server]:
    """The living servers with their settings in the folders of ``folder``, an absolute path."""
    runs = re.compile(rf" (?:{_PROGRAMS})(?: .*)? {re.escape(str(folder))}/([^/ ]+)/[^/ ]+\.properties$")
    return [Server(found[1], pid) for pid, command in _commands() if (found := runs.search(command))]


def kill(servers: Iterable[Server], folder: Path) -> None:
    """Send SIGKILL to servers, and wait for their end. Raises Unreachable if one does not end."""
    pids = {server.pid for server in servers}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_SECONDS
    while left := pids.intersection(server.pid for server in servers_in(folder)):
        if time.monotonic() > deadline:
            numbers = " ".join(map(str, sorted(left)))
            raise Unreachable("Processes of the lab do not end.", hint=f"End them by hand: kill -9 {numbers}")
        time.sleep(_POLL_SECONDS)


def _commands() -> Iterator[tuple[int, str]]:
    """Every process that this user may inspect: its id and its command line, words parted by a space."""
    if not _PROC.joinpath("self", "cmdline").exists():
        yield from _commands_by_ps()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
                words = entry.joinpath("cmdline").read_bytes().split(b"\0")
                yield int(entry.name), " ".join(map(os.fsdecode, words)).rstrip()


def _commands_by_ps() -> Iterator[tuple[int, str]]:
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command.strip()
