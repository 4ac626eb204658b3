"""One node of a lab cluster: broker and controller in one process."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.lab.class_archive import sharing
from reconciler.lab.ports import HOST as HOST
from reconciler.lab.processes import Child

START_SECONDS = 60
_META = "meta.properties"
# For servers that live for minutes: a quick start matters more than peak speed.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

FEATURES = "bootstrap.checkpoint"
"""What Kafka's tool writes beside a cluster's id: the features of its version. It is the same for every cluster."""


def java_command(jars: Path, main: str, *arguments: str, heap: str, jvm: Sequence[str] = ()) -> list[str]:
    """A JVM that runs ``main`` from ``jars`` and logs lines with times to its output.

    ``jvm``: more options, instead of those for the archive of its classes.
    """
    logging = "-Dorg.slf4j.simpleLogger"
    java = java_executable()
    jars = jars.resolve()  # an archive of classes belongs to the jars' own path
    return [
        str(java),
        *QUICK_JVM,
        *(jvm or sharing(java, jars)),
        f"-Xmx{heap}",
        f"{logging}.defaultLogLevel=warn",
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
        """Freeze it: connections stay open, requests get no answer."""
        if not self._frozen:
            self.process.pause()
            self._frozen = True

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
        return (self.data / _META).exists()

    def launch_format(self, cluster_id: str, settings: Mapping[str, str]) -> Child | None:
        """Start formatting the data directory; see ``finish_format``.

        None: it is formatted, with the features that Kafka's tool wrote for an earlier cluster. That saves a JVM.
        """
        with contextlib.suppress(OSError):
            features = (self._jars / FEATURES).read_bytes()
            if not features:
                raise OSError("cut off by a failure of the machine")
            self.data.mkdir(exist_ok=True)
            (self.data / FEATURES).write_bytes(features)
            names = {"version": 1, "cluster.id": cluster_id, "node.id": self.number, "directory.id": new_id()}
            text = "".join(f"{name}={value}\n" for name, value in names.items())
            (self.data / _META).write_text(text, encoding="utf-8")
            return None
        file = str(self._write(settings))
        command = java_command(
            *(self._jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", file), heap="64m"
        )
        return Child(f"Formatting {self._name}", command, self.directory / "format.log", cwd=self.directory)

    def launch(self, settings: Mapping[str, str], *, heap: str, jvm: Sequence[str], detached: bool) -> None:
        """Start the process without waiting; the cluster waits for its first answer."""
        file = str(self._write(settings))
        command = java_command(self._jars, "kafka.Kafka", file, heap=heap, jvm=jvm)
        self._frozen = False
        self._keep_features()
        self._child = Child(f"Cluster {self._name}", command, self.log, cwd=self.directory, detached=detached)

    def _keep_features(self) -> None:
        """Keep the file with the version's features, for later clusters of these jars."""
        kept = self._jars / FEATURES
        if not kept.exists():
            with contextlib.suppress(OSError):  # a cache that belongs to another user
                whole = kept.with_name(f".{FEATURES}.{os.getpid()}")
                shutil.copyfile(self.data / FEATURES, whole)
                whole.replace(kept)

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


def new_id() -> str:
    """An id in Kafka's own form: 16 random bytes in URL-safe base64, no leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def finish_format(child: Child) -> None:
    """Wait for a child of ``Broker.launch_format``. Raises Unreachable with the end of its log if it failed."""
    if child.wait(START_SECONDS) != 0:
        raise Unreachable(f"{child.name} failed.", hint=f"Its log, {child.log}, ends: {child.log_tail()}")
