"""One node of a lab cluster: broker and controller in one process."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.lab.ports import HOST as HOST
from reconciler.lab.processes import Child

START_SECONDS = 60
# For servers that live for minutes: a quick start matters more than peak speed.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def java_command(jars: Path, main: str, *arguments: str, heap: str, log_level: str = "warn") -> list[str]:
    """A JVM that runs ``main`` from ``jars`` and logs lines with times to its output."""
    logging = "-Dorg.slf4j.simpleLogger"
    return [
        str(java_executable()),
        *QUICK_JVM,
        f"-Xmx{heap}",
        f"{logging}.defaultLogLevel={log_level}",
        f"{logging}.showDateTime=true",
        f"{logging}.dateTimeFormat=HH:mm:ss.SSS",
        "-Dlog4j2.level=OFF",
        *("-cp", f"{jars}/*", main, *arguments),
    ]


class Broker:
    """Node ``number`` with its data, settings and log in ``directory``, and two ports once they are assigned.

    It can be stopped, killed and frozen on its own; ``KafkaCluster.restart_broker`` starts it again.
    """

    def __init__(self, name: str, number: int, directory: Path, jars: Path) -> None:
        self.number = number
        self.directory = directory
        self.ports: tuple[int, int] | None = None
        self._name = name
        self._jars = jars
        self._child: Child | None = None
        self._frozen = False

    # ------------------------------------------------------------ start and stop

    def stop(self) -> None:
        """Stop it in an orderly way: it hands over its leaders and flushes everything."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Freeze it: connections stay open, requests get no answer. On Linux it has halted when this returns."""
        if self._frozen:
            return
        self.process.pause()
        self._frozen = True
        if sys.platform == "linux":  # on a busy machine it may still answer for a while after the signal
            halted = functools.partial(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG)
            self.process.wait_until(halted, START_SECONDS, "its halt")

    def resume(self) -> None:
        self.process.resume()
        self._frozen = False

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def answers(self) -> bool:
        """True if it is running and not frozen."""
        return self.running and not self._frozen

    @property
    def process(self) -> Child:
        """Its process, running or not. Raises ConfigError if it was never started."""
        if self._child is None:
            raise ConfigError(f"Cluster {self._name} is not running.", hint="Start it first.")
        return self._child

    # ------------------------------------------------------------ addresses and files

    @property
    def address(self) -> str:
        return f"{HOST}:{self.known_ports[0]}"

    @property
    def controller(self) -> str:
        return f"{HOST}:{self.known_ports[1]}"

    @property
    def known_ports(self) -> tuple[int, int]:
        """The port for clients and the port for the other controllers. Raises ConfigError before the first start."""
        if self.ports is None:
            raise ConfigError(f"Cluster {self._name} has no address yet.", hint="Start it first.")
        return self.ports

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def answered(self) -> Path:
        """A marker file that exists once it has answered: from then on clients and other nodes know its address."""
        return self.directory / "answered"

    # ------------------------------------------------------------ starting

    @property
    def is_formatted(self) -> bool:
        return (self.data / "meta.properties").exists()

    def launch_format(self, cluster_id: str, settings: Mapping[str, str]) -> Child:
        """Start formatting the data directory; see ``finish_format``."""
        file = str(self._write(settings))
        command = java_command(
            *(self._jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", file), heap="64m"
        )
        return Child(f"Formatting {self._name}", command, self.directory / "format.log", cwd=self.directory)

    def launch(self, settings: Mapping[str, str], *, heap: str, log_level: str, detached: bool) -> None:
        """Start the process without waiting; the cluster waits for its first answer."""
        command = java_command(self._jars, "kafka.Kafka", str(self._write(settings)), heap=heap, log_level=log_level)
        self._frozen = False
        self._child = Child(f"Cluster {self._name}", command, self.log, cwd=self.directory, detached=detached)

    def forget(self) -> None:
        """Delete data and log and release the ports, for a start from scratch."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.ports = None

    def port_was_taken(self) -> bool:
        """True if its log shows that another process had one of its ports."""
        with contextlib.suppress(OSError):
            return re.search(r"Address already in use|BindException", self.log.read_text(errors="replace")) is not None
        return False

    def _write(self, settings: Mapping[str, str]) -> Path:
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return path


def finish_format(child: Child) -> None:
    """Wait for a child of ``Broker.launch_format``. Raises Unreachable with the end of its log if it failed."""
    if child.wait(START_SECONDS) != 0:
        raise Unreachable(f"{child.name} failed.", hint=f"Its log, {child.log}, ends: {child.log_tail()}")
