"""One ZooKeeper server on this machine, for the tests."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Self

from reconciler.core.errors import ConfigError
from reconciler.lab.broker import HOST, START_SECONDS, java_command
from reconciler.lab.ports import launched_on_free_ports
from reconciler.lab.processes import Child


class ZooKeeperServer:
    """A standalone server on a port of its own, with its data below ``directory``.

    ``tick_ms``: the unit of its time. A session may be silent for 2 to 20 of them.
    """

    def __init__(self, directory: Path, jars: Path, *, tick_ms: int = 2000, heap: str = "128m") -> None:
        self.directory = directory.absolute()
        self._jars = jars
        self._tick_ms = tick_ms
        self._heap = heap
        self._port: int | None = None
        self._child: Child | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it answers. The second start finds the first one's data, at the same address."""
        if self._port is not None:
            self._launch(self._port)
            return self
        (self._port,) = launched_on_free_ports(1, lambda ports: self._launch(*ports), self._port_was_taken)
        return self

    def stop(self) -> None:
        """Orderly."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """The disaster: gone between two instructions."""
        self._process.kill()

    def restart(self) -> Self:
        """Up again after ``stop`` or ``kill`` (or stopped first): the same port, the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing is answered."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def __enter__(self) -> Self:
        return self if self._child is not None and self._child.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """Its address as clients write it."""
        if self._port is None:
            raise ConfigError("The ZooKeeper server has no address yet.", hint="Start it first.")
        return f"{HOST}:{self._port}"

    # ------------------------------------------------------------ starting

    def _launch(self, port: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        # Not synced to the disk: what it has acknowledged outlives its process in the kernel's cache all the same.
        settings = {
            "dataDir": self.directory / "data",
            "clientPort": port,
            "clientPortAddress": HOST,
            "tickTime": self._tick_ms,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "forceSync": "no",
            "preAllocSize": 1024,
            "maxClientCnxns": 0,
        }
        file = self.directory / "zoo.cfg"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java_command(self._jars, main, str(file), heap=self._heap)
        self._child = Child("ZooKeeper", command, self.directory / "server.log", cwd=self.directory)
        self._child.wait_until(lambda: _answers(port), START_SECONDS, "its first answer")

    def _port_was_taken(self) -> bool:
        log = (self.directory / "server.log").read_text(errors="replace")
        return re.search(r"Address already in use|BindException", log) is not None

    @property
    def _process(self) -> Child:
        if self._child is None:
            raise ConfigError("The ZooKeeper server is not running.", hint="Start it first.")
        return self._child


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False
