"""docker-compose.yml and what is in deploy/compose/, as far as that shows without its images."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from reconciler.config.file import load_config
from reconciler.demo.lab.in_use import ClusterAt
from tests.demo.lab.containers import REPOSITORY

pytestmark = pytest.mark.system
COMPOSE = REPOSITORY / "deploy/compose"
SERVICES = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
NEITHER_BUILT_NOR_OURS = {"grafana"}


@pytest.fixture
def play() -> ModuleType:
    spec = importlib.util.spec_from_file_location("play", COMPOSE / "play.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_that_has_a_part_in_a_failover_has_a_service() -> None:
    clusters = {"a", "b", "mirror", "traffic", "job", "watcher"}
    stores = {"postgresql", "hbase"}
    assert SERVICES.keys() == clusters | stores | {"prometheus", "pushgateway", "grafana"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_built_from_a_stage_of_the_dockerfile_or_is_of_one_version(name: str) -> None:
    service = SERVICES[name]
    if name in NEITHER_BUILT_NOR_OURS:
        assert re.search(r":\d+\.\d+\.\d+\}$", service["image"])
        return
    build = service["build"]
    stages = re.findall(r"^FROM \S+ AS (\S+)$", (REPOSITORY / build["dockerfile"]).read_text(), re.MULTILINE)
    assert build["target"] in stages


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_contained_and_mounts_what_is_there(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    for volume in service.get("volumes", []):
        source, _, rest = volume.partition(":")
        assert source == "stage" or ((REPOSITORY / source).exists() and rest.endswith(":ro"))
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_the_watchers_configuration_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SERVICES["watcher"]["environment"]["STATE"]
    monkeypatch.setenv("STATE", store.removeprefix("${STATE:-").removesuffix("}"))
    config = load_config(COMPOSE / "reconciler.toml")
    assert config.destination.bootstrap_servers == "b:9092"
    assert [job.name for job in config.jobs] == ["clicks"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_its_configuration_with_the_rules_in_their_place(tmp_path: Path) -> None:
    rules = str(REPOSITORY / "deploy/prometheus")
    file = tmp_path / "prometheus.yml"
    file.write_text((COMPOSE / "prometheus.yml").read_text().replace("/etc/prometheus/rules", rules))
    said = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert re.search(r"SUCCESS: [1-9]\d* rules found", said.stdout), said.stdout


@pytest.fixture
def played(clusters: Any, play: ModuleType, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(play, "A", ClusterAt("a", clusters.source.bootstrap))
    monkeypatch.setattr(play, "B", ClusterAt("b", clusters.destination.bootstrap))
    monkeypatch.setattr(play, "TOPIC", topic_name)
    monkeypatch.setattr(play, "MIRRORED", f"a.{topic_name}")
    return play


def test_the_plays_traffic_makes_the_offsets_differ_and_is_written_once(played: ModuleType) -> None:
    played.produce()
    wanted = Counter(event.partition for event in played.clicks())
    starts, ends = played.A.start_offsets(played.TOPIC), played.A.end_offsets(played.TOPIC)
    assert sum(starts.values()) > 0
    assert all(ends[number] - starts[number] > wanted[number] for number in wanted), "transactions leave markers"
    with pytest.raises(SystemExit, match="docker compose down"):
        played.produce()
