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
from reconciler.lab.ports import HOST, launched_on_free_ports
from reconciler.lab.processes import Child

USER, PASSWORD = "reconciler", "a secret of the lab"
START_SECONDS = 60
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    # What it has acknowledged outlives its processes in the kernel's cache; only a power cut would lose it.
    "fsync": "off",
    "lc_messages": "C",
}


def binaries() -> Path:
    """The directory with ``initdb`` and ``postgres``: Debian's newest, else that on the PATH.

    Raises ConfigError where there is none.
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


class PostgresServer:
    """A server on a port of its own, with its data below ``directory``; ``settings`` override or add to its own.

    It does not run as root: started by root, it runs as the user ``postgres``, or else ``nobody``, who must be able to
    reach ``directory``. Its superuser is ``USER`` with ``PASSWORD``.
    """

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self._binaries = binaries()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._port: int | None = None
        self._child: Child | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it answers. The second start finds the first one's data, at the same address."""
        if not (self._data / "PG_VERSION").exists():
            self._make_data()
        if self._port is not None:
            self._launch(self._port)
            return self
        (self._port,) = launched_on_free_ports(1, lambda ports: self._launch(*ports), self._port_was_taken)
        return self

    def _port_was_taken(self) -> bool:
        return "could not bind" in self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Orderly: clients are sent away, everything is flushed."""
        if self._child is not None and self._child.running:
            self.resume()
            os.kill(self._child.pid, signal.SIGINT)  # TERM would wait for the clients to leave by themselves
            self._child.wait(START_SECONDS)

    def kill(self) -> None:
        """The disaster: all its processes gone between two instructions. Killing it twice is fine."""
        family = self._freeze()
        for pid in family:
            _signal(pid, signal.SIGKILL)
        self._process.kill()
        # Those left over hold the shared memory, and a start would find it in use.
        self._wait_until_gone(family)

    def restart(self) -> Self:
        """Up again after ``stop`` or ``kill`` (or stopped first): the same port, the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing is answered."""
        self._freeze()

    def resume(self) -> None:
        for pid in self._family():
            _signal(pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self._child is not None and self._child.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ places

    @property
    def host(self) -> str:
        """Host and port as addresses have them."""
        if self._port is None:
            raise ConfigError("The PostgreSQL server has no address yet.", hint="Start it first.")
        return f"{HOST}:{self._port}"

    def url(self, database: str = "postgres", *, user: str = USER, password: str = PASSWORD) -> str:
        """The address of a database, with its secret."""
        return f"postgresql://{user}:{password.replace(' ', '%20')}@{self.host}/{database}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _process(self) -> Child:
        if self._child is None:
            raise ConfigError("The PostgreSQL server is not running.", hint="Start it first.")
        return self._child

    # ------------------------------------------------------------ processes

    def _family(self) -> list[int]:
        """The server and its children, each of which has a process group of its own; none once it has ended: its number
        may be another process's by then."""
        if not self._process.running:
            return []
        parent = self._process.pid
        return [parent, *(pid for pid in _pids() if _status(pid)[1] == parent)]

    def _freeze(self) -> list[int]:
        """Stop the server first, so that it makes no more children; then those that it has."""
        if self._process.running:
            _signal(self._process.pid, signal.SIGSTOP)
        family = self._family()
        for pid in family:
            _signal(pid, signal.SIGSTOP)
        return family

    def _wait_until_gone(self, family: list[int]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while any(_status(pid)[0] not in ("", "Z") for pid in family):
            if time.monotonic() > deadline:
                raise Unreachable("Killed processes of PostgreSQL are still there.")
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

    def _launch(self, port: int) -> None:
        settings = [f"--{key}={value}" for key, value in self._settings.items()]
        command = self._as_user("postgres", "-D", str(self._data), "-p", str(port), *settings)
        self._child = Child("PostgreSQL", command, self.log, cwd=Path("/"))
        ready = self._as_user("pg_isready", "-q", "-h", HOST, "-p", str(port))
        self._child.wait_until(
            lambda: subprocess.run(ready, cwd="/", check=False).returncode == 0, START_SECONDS, "its first answer"
        )

    def _as_user(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._binaries / program), *arguments]
        if account := _account():
            # A change of user makes the kernel forget that a child is to die with its parent: it is said again.
            user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
            return ["setpriv", *user, *command]
        return command


def _account() -> pwd.struct_passwd | None:
    """Whom to become; None where there is no need to."""
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
