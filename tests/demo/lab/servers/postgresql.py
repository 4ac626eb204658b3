"""One PostgreSQL server on this machine, for the tests. Linux only: it looks for the server's processes in /proc."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.kafka import HOST
from tests.demo.lab.servers.server import Server

USER, PASSWORD = "reconciler", "a secret of the lab"
START_SECONDS = 60
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    # Acknowledged data outlives the processes in the kernel's cache; only a power cut would lose it.
    "fsync": "off",
    "lc_messages": "C",
}


def binaries() -> Path:
    """The directory with ``initdb`` and ``postgres``: Debian's newest, else that on the PATH.

    Raises ConfigError if there is none.
    """
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(debian, key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0))
    if found:
        return found[-1].parent
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    raise ConfigError(
        "There is no PostgreSQL server on this machine.", hint="Install one (Debian and Ubuntu: postgresql)."
    )


class PostgresServer(Server):
    """A PostgreSQL server; ``settings`` override or add to its own.

    It does not run as root: started by root, it runs as the user ``postgres``, or else ``nobody``, who must be able to
    reach ``directory``. Its superuser is ``USER`` with ``PASSWORD``.
    """

    name = "PostgreSQL"

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._binaries = binaries()
        self._settings = {**_SETTINGS, **(settings or {})}

    # ------------------------------------------------------------ start and stop

    def start(self) -> Self:
        """Start it and wait until it answers. A second start keeps the address and the data."""
        if not (self._data / "PG_VERSION").exists():
            self._make_data()
        return super().start()

    def stop(self) -> None:
        """Stop it in an orderly way: it disconnects its clients and flushes everything."""
        if self._child is not None and self._child.running:
            self.resume()
            os.kill(self._child.pid, signal.SIGINT)  # SIGTERM would wait for the clients to disconnect
            self._child.wait(START_SECONDS)

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, as a power failure would. Killing it twice is fine."""
        family = self._freeze()
        for pid in family:
            _signal(pid, signal.SIGKILL)
        self.process.kill()
        # Remaining processes hold the shared memory, which a start would find in use.
        self._wait_until_gone(family)

    def pause(self) -> None:
        """Freeze it: connections stay open, requests get no answer."""
        self._freeze()

    def resume(self) -> None:
        for pid in self._family():
            _signal(pid, signal.SIGCONT)

    # ------------------------------------------------------------ addresses

    @property
    def host(self) -> str:
        """Host and port."""
        return self.address

    def url(self, database: str = "postgres", *, user: str = USER, password: str = PASSWORD) -> str:
        """The address of a database, with its secret."""
        return f"postgresql://{user}:{password.replace(' ', '%20')}@{self.host}/{database}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    # ------------------------------------------------------------ processes

    def _family(self) -> list[int]:
        """The server and its children, each in its own process group; none once it has ended: its pid may be reused
        by another process."""
        if not self.process.running:
            return []
        parent = self.process.pid
        return [parent, *(pid for pid in _pids() if _status(pid)[1] == parent)]

    def _freeze(self) -> list[int]:
        """Freeze the server first, so that it forks no more children, then its children."""
        if self.process.running:
            _signal(self.process.pid, signal.SIGSTOP)
        family = self._family()
        for pid in family:
            _signal(pid, signal.SIGSTOP)
        return family

    def _wait_until_gone(self, family: list[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while any(_status(pid)[0] not in ("", "Z") for pid in family):
            if time.monotonic() > deadline:
                raise Unreachable("Killed processes of PostgreSQL are still running.")
            time.sleep(0.02)

    # ------------------------------------------------------------ starting

    def _make_data(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._data.mkdir(mode=0o700, exist_ok=True)
        secret = self.directory / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if account := _account():
            os.chown(self._data, account.pw_uid, account.pw_gid)
            os.chown(secret, account.pw_uid, account.pw_gid)
        options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--username={USER}"]
        command = self._as_user("initdb", *options, f"--pwfile={secret}", f"--pgdata={self._data}")
        made = subprocess.run(command, cwd="/", capture_output=True, text=True, errors="replace", check=False)
        if made.returncode != 0:
            raise Unreachable("PostgreSQL's initdb failed.", hint=f"It said: {made.stderr or made.stdout}")

    def command(self, *ports: int) -> list[str]:
        settings = [f"--{key}={value}" for key, value in self._settings.items()]
        return self._as_user("postgres", "-D", str(self._data), "-p", str(ports[0]), *settings)

    def is_ready(self, *ports: int) -> bool:
        ready = self._as_user("pg_isready", "-q", "-h", HOST, "-p", str(ports[0]))
        return subprocess.run(ready, cwd="/", check=False).returncode == 0

    def _as_user(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._binaries / program), *arguments]
        if account := _account():
            # A change of user clears the signal for the parent's death, so it is set again.
            user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
            return ["setpriv", *user, *command]
        return command


def _account() -> pwd.struct_passwd | None:
    """The account to run as; None if this process is not root."""
    if os.geteuid() != 0:
        return None
    known = {account.pw_name: account for account in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _status(pid: int) -> tuple[str, int]:
    """A process's state and its parent; empty and 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
