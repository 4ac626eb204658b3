"""One Prometheus server on this machine, for the tests."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from reconciler.core.errors import ConfigError
from reconciler.lab.ports import HOST, launched_on_free_ports
from reconciler.lab.processes import Child

START_SECONDS = 60.0
_ANSWER_SECONDS = 10.0


def program(name: str = "prometheus") -> str:
    """The path of ``prometheus``, or of ``promtool``. Raises ConfigError where it is not installed."""
    if (found := shutil.which(name)) is None:
        raise ConfigError(f"{name} is not installed.", hint="Debian's package prometheus has it.")
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer: its labels (``__name__`` among them, where it has one) and its value."""

    labels: Mapping[str, str]
    value: float


class PrometheusServer:
    """A server on a port of its own. ``configuration`` is the text of prometheus.yml; paths in it are taken from
    ``directory``, where the server keeps its data, too."""

    def __init__(self, directory: Path, configuration: str) -> None:
        self.directory = directory.absolute()
        self._configuration = configuration
        self._port: int | None = None
        self._child: Child | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it is ready. The second start finds the first one's data, at the same address."""
        if self._port is not None:
            self._launch(self._port)
            return self
        (self._port,) = launched_on_free_ports(1, lambda ports: self._launch(*ports), self._port_was_taken)
        return self

    def stop(self) -> None:
        """Orderly."""
        if self._child is not None:
            self._child.stop()

    def __enter__(self) -> Self:
        return self if self._child is not None and self._child.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        if self._port is None:
            raise ConfigError("Prometheus has no address yet.", hint="Start it first.")
        return f"http://{HOST}:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    # ------------------------------------------------------------ use

    def query(self, expression: str) -> list[Sample]:
        """An instant vector, or a scalar as one sample without labels. Raises ConfigError for what it refuses."""
        answer = self._get("/api/v1/query", query=expression)
        if answer["resultType"] == "scalar":
            return [Sample({}, float(answer["result"][1]))]
        return [Sample(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def rules(self) -> list[dict[str, Any]]:
        """All rules, as its API tells of them: name, type, health, and of alerts their state."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def alerts(self) -> list[dict[str, Any]]:
        """What is pending or fires: labels, annotations, state and value."""
        found: list[dict[str, Any]] = self._get("/api/v1/alerts")["alerts"]
        return found

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes: labels, health and the last error."""
        found: list[dict[str, Any]] = self._get("/api/v1/targets")["activeTargets"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}{path}?{urlencode(parameters)}"
        try:
            with urlopen(address, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)["data"]
        except URLError as error:
            said = error.read().decode(errors="replace") if hasattr(error, "read") else str(error.reason)
            raise ConfigError(f"Prometheus refused {path} {parameters}: {said}.") from error

    # ------------------------------------------------------------ starting

    def _launch(self, port: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "prometheus.yml"
        file.write_text(self._configuration, encoding="utf-8")
        command = [
            program(),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={HOST}:{port}",
        ]
        self._child = Child("Prometheus", command, self.log, cwd=self.directory)
        self._child.wait_until(lambda: _is_ready(port), START_SECONDS, "its first answer")

    def _port_was_taken(self) -> bool:
        return re.search(r"address already in use", self.log.read_text(errors="replace")) is not None


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://{HOST}:{port}/-/ready", timeout=_ANSWER_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
