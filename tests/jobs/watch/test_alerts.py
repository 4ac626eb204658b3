"""An alert in a real Prometheus, with the rules as shipped: it fires for a loss on a real cluster, and resolves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.core.errors import ConfigError
from tests import ROOT
from tests.demo.lab.servers.prometheus import PrometheusServer, program
from tests.jobs.watch.watching import Watching, watching
from tests.places.servers import cannot
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.system
SHIPPED = ROOT / "deploy" / "prometheus"
LOSS = "ReconcilerLossDetected"


def with_short_times(rules: str) -> str:
    """The rules, but for how long a condition must last: a test does not wait 15 minutes."""
    text, count = re.subn(r"^( +(?:keep_firing_)?for:) \S+$", r"\1 2s", rules, flags=re.MULTILINE)
    assert count == rules.count("for: "), "every 'for' stands on a line of its own"
    return text


def prometheus(folder: Path, watch: Watching) -> PrometheusServer:
    """A server with the configuration as shipped, which scrapes ``watch`` each second."""
    folder.mkdir()
    rules = (SHIPPED / "reconciler.rules.yml").read_text(encoding="utf-8")
    (folder / "reconciler.rules.yml").write_text(with_short_times(rules), encoding="utf-8")
    configuration: dict[str, Any] = yaml.safe_load((SHIPPED / "prometheus.yml").read_text(encoding="utf-8"))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (scrape,) = (each for each in configuration["scrape_configs"] if each["job_name"] == "reconciler")
    scrape["static_configs"] = [{"targets": [watch.url.removeprefix("http://")]}]
    configuration["scrape_configs"] = [scrape]
    return PrometheusServer(folder, yaml.safe_dump(configuration))


def test_a_loss_fires_with_its_sentences_and_resolves(request: pytest.FixtureRequest, world: World) -> None:
    try:
        program()
    except ConfigError as error:
        cannot(request, str(error))
    world.deliver(10)
    world.processed(2)
    with watching(world.config(), every=1) as watch, prometheus(world.folder / "prometheus", watch) as server:

        def firing() -> list[dict[str, Any]]:
            alerts = [each for each in server.alerts() if each["labels"]["alertname"] == LOSS]
            return [each for each in alerts if each["state"] == "firing"]

        wait_until(lambda: server.query('reconciler_up{job="clicks"} == 1'), "a whole check")
        assert firing() == []
        world.cluster.delete_records(world.mirrored, 0, world.offset_of(5))
        wait_until(firing, f"{LOSS} fires")
        (alert,) = firing()
        assert alert["labels"]["job"] == "clicks"
        assert not [text for text in alert["annotations"].values() if "<no value>" in text or "{{" in text]
        assert {(rule["health"], rule.get("lastError", "")) for rule in server.rules()} == {("ok", "")}
        world.processed(8)
        wait_until(lambda: not firing(), f"{LOSS} resolves")
