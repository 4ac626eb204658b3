"""One ZooKeeper server on this machine, for the tests."""

from __future__ import annotations

import socket
from pathlib import Path

from reconciler.demo.lab.kafka import HOST, java_command
from tests.demo.lab.servers.server import Server


class ZooKeeperServer(Server):
    """A standalone server. ``tick_ms`` is its unit of time: a session may be silent for 2 to 20 ticks."""

    name = "ZooKeeper"

    def __init__(self, directory: Path, jars: Path, *, tick_ms: int = 2000, heap: str = "128m") -> None:
        super().__init__(directory)
        self._jars = jars
        self._tick_ms = tick_ms
        self._heap = heap

    @property
    def hosts(self) -> str:
        return self.address

    def command(self, *ports: int) -> list[str]:
        # Not synced to the disk: acknowledged data outlives the process in the kernel's cache anyway.
        settings = {
            "dataDir": self.directory / "data",
            "clientPort": ports[0],
            "clientPortAddress": HOST,
            "tickTime": self._tick_ms,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "forceSync": "no",
            "preAllocSize": 1024,
            "maxClientCnxns": 0,
        }
        file = self.directory / "zoo.cfg"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return java_command(self._jars, main, str(file), heap=self._heap)

    def is_ready(self, *ports: int) -> bool:
        """True once it serves sessions: ``srvr`` names no mode before, while ``ruok`` is answered from the first."""
        try:
            with socket.create_connection((HOST, ports[0]), timeout=2) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.makefile("rb").read()
        except OSError:
            return False
