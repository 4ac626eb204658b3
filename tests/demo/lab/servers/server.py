"""The life of a server of one process: started, stopped, killed and frozen by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from reconciler.core.errors import ConfigError
from reconciler.demo.lab.kafka import HOST, free_ports
from reconciler.demo.lab.processes import Child
from tests.demo.lab.lasting import started


class Server:
    """A server on its own ports, with its data and its log below ``directory``.

    A subclass gives its ``name``, the ``command`` that runs it on the given ports, and ``is_ready``.
    """

    name: str
    port_count = 1
    start_seconds = 60.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._ports: tuple[int, ...] | None = None
        self._child: Child | None = None

    def command(self, *ports: int) -> list[str]:
        """The command line of the server; writes its settings, too."""
        raise NotImplementedError

    def is_ready(self, *ports: int) -> bool:
        """True once the server answers."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start it and wait until it answers. A second start keeps the address and the data."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ports = self._ports or free_ports(self.port_count)
        self._child = started(lambda: Child(self.name, self.command(*ports), self.log, cwd=self.directory))
        self._child.wait_until(lambda: self.is_ready(*ports), self.start_seconds, "its first answer")
        self._ports = ports
        return self

    def stop(self) -> None:
        """Stop it in an orderly way."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        self.process.kill()

    def restart(self) -> Self:
        """Start it again with the same address and data; stop it first if it is running."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, requests get no answer."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def __enter__(self) -> Self:
        return self if self._child is not None and self._child.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def ports(self) -> tuple[int, ...]:
        """Its ports. Raises ConfigError before the first start."""
        if self._ports is None:
            raise ConfigError(f"{self.name} has no address yet.", hint="Start it first.")
        return self._ports

    @property
    def address(self) -> str:
        """Host and first port, as clients write them."""
        return f"{HOST}:{self.ports[0]}"

    @property
    def process(self) -> Child:
        if self._child is None:
            raise ConfigError(f"{self.name} is not running.", hint="Start it first.")
        return self._child
