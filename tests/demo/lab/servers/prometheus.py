"""One Prometheus server on this machine, for the tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from reconciler.core.errors import ConfigError
from reconciler.demo.lab.kafka import HOST
from tests.demo.lab.servers.server import Server

_ANSWER_SECONDS = 60.0


def program(name: str = "prometheus") -> str:
    """The path of ``prometheus``, or of ``promtool``. Raises ConfigError if it is not installed."""
    if (found := shutil.which(name)) is None:
        raise ConfigError(f"{name} is not installed.", hint="Debian's package prometheus has it.")
    return found


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer: its labels (including ``__name__``, if it has one) and its value."""

    labels: Mapping[str, str]
    value: float


class PrometheusServer(Server):
    """A Prometheus server. ``configuration`` is the text of prometheus.yml; relative paths in it start at
    ``directory``, which also holds the server's data."""

    name = "Prometheus"

    def __init__(self, directory: Path, configuration: str) -> None:
        super().__init__(directory)
        self._configuration = configuration

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def query(self, expression: str) -> list[Sample]:
        """An instant vector, or a scalar as one sample without labels. Raises ConfigError if Prometheus refuses it."""
        answer = self._get("/api/v1/query", query=expression)
        if answer["resultType"] == "scalar":
            return [Sample({}, float(answer["result"][1]))]
        return [Sample(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def rules(self) -> list[dict[str, Any]]:
        """All rules as the API returns them: name, type, health, and the state of alerts."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts: labels, annotations, state and value."""
        found: list[dict[str, Any]] = self._get("/api/v1/alerts")["alerts"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}{path}?{urlencode(parameters)}"
        try:
            with urlopen(address, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)["data"]
        except URLError as error:
            reason = error.read().decode(errors="replace") if hasattr(error, "read") else str(error.reason)
            raise ConfigError(f"Prometheus refused {path} {parameters}: {reason}.") from error

    def command(self, *ports: int) -> list[str]:
        file = self.directory / "prometheus.yml"
        file.write_text(self._configuration, encoding="utf-8")
        return [
            program(),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={HOST}:{ports[0]}",
        ]

    def is_ready(self, *ports: int) -> bool:
        try:
            with urlopen(f"http://{HOST}:{ports[0]}/-/ready", timeout=_ANSWER_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
