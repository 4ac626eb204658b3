"""The dashboard fits Grafana's schema, queries only metrics that exist, and links to the runbook."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.deploy.grafana_schema import problems
from tests.watch.test_alert_rules import ALERTS, RUNBOOK, exposed, metrics_in, promtool, sections

GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "reconciler.json").read_text(encoding="utf-8"))
PANELS = {f"{panel['id']} {panel['title']}": panel for panel in DASHBOARD["panels"]}
WIDTH = 24


def links(value: Any) -> Iterator[str]:
    """All addresses, wherever they are."""
    if isinstance(value, dict):
        if isinstance(value.get("url"), str):
            yield value["url"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from links(each)


def test_grafanas_schema_allows_the_dashboard() -> None:
    assert problems(DASHBOARD) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("panels", 1, "gridPos", "w"), "3", "w is '3'"),
        (("panels", 1, "options", "colorMode"), "loud", "color_mode is 'loud'"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "relative", "mode is 'relative'"),
        (("panels", 1, "targets", 0, "expression"), "up", "expression is unknown"),
        (("panels", 12, "fieldConfig", "defaults", "custom", "drawStyle"), "dots", "draw_style is 'dots'"),
        (("templating", "list", 0, "type"), "database", "type_val is 'database'"),
        (("refreshes",), "30s", "refreshes is unknown"),
    ],
)
def test_the_schema_is_really_asked(path: tuple[Any, ...], value: Any, said: str) -> None:
    broken = copy.deepcopy(DASHBOARD)
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert any(said in problem for problem in problems(broken))


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_asks_for_metrics_that_there_are(name: str) -> None:
    panel = PANELS[name]
    assert panel["type"] == "row" or panel["targets"]
    for target in panel.get("targets", []):
        assert metrics_in(target["expr"]) - exposed() == set()
        assert target["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("name", [name for name, panel in PANELS.items() if panel["type"] == "stat"])
def test_a_panel_shows_no_number_while_nothing_is_known(name: str, tmp_path: Path) -> None:
    """``watch`` does not answer: a green 0 would say that all is well. Only the panel about that has a number."""
    about_watch = name.endswith("Answers Prometheus")
    asks_prometheus(tmp_path, name, {} if about_watch else {'up{job="reconciler"}': 0}, [])


@pytest.mark.parametrize("name", [name for name in PANELS if name.endswith((" Not checked", " Lost"))])
def test_a_panel_that_counts_faults_shows_0_if_there_are_none(name: str, tmp_path: Path) -> None:
    well = {'reconciler_up{job="clicks"}': 1, 'reconciler_partitions{job="clicks", finding="exact"}': 4}
    asks_prometheus(tmp_path, name, well, [{"labels": "{}", "value": 0}])


def asks_prometheus(folder: Path, name: str, known: dict[str, int], shown: list[dict[str, Any]]) -> None:
    """Compare what a panel's query gives with ``shown``, where ``known`` are all series and their values."""
    queries = [target["expr"].replace("$job", ".*").replace("$owner", ".*") for target in PANELS[name]["targets"]]
    asked = [{"expr": query, "eval_time": "10m", "exp_samples": shown} for query in queries]
    series = [{"series": name, "values": f"{value}x100"} for name, value in known.items()]
    tests = folder / "tests.yml"
    test = {"interval": "30s", "input_series": series, "promql_expr_test": asked}
    tests.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    ended = promtool("test", "rules", tests)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", [name for name, panel in PANELS.items() if panel["type"] != "row"])
def test_a_panel_says_what_it_shows(name: str) -> None:
    assert re.search(r"\.$", PANELS[name]["description"])
    assert PANELS[name]["fieldConfig"]["defaults"]["unit" if PANELS[name]["type"] != "state-timeline" else "mappings"]


def test_no_two_panels_share_a_place() -> None:
    taken: dict[tuple[int, int], str] = {}
    for name, panel in PANELS.items():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= WIDTH
        for cell in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
            assert taken.setdefault(cell, name) == name
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_links_lead_to_sections_of_the_runbook() -> None:
    page = "${docs}/" + RUNBOOK.removeprefix("docs/")
    found = {url.partition("#") for url in links(DASHBOARD)}
    assert {where for where, _, _ in found} == {page}
    assert {anchor for _, _, anchor in found if not anchor.startswith("${")} <= sections(RUNBOOK)


def test_every_alert_has_a_panel_that_leads_to_its_section() -> None:
    anchors = {url.partition("#")[2] for url in links(DASHBOARD["panels"])}
    assert {name.lower() for name in ALERTS} <= anchors


def test_the_variables_are_those_that_the_panels_use() -> None:
    named = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"]))) | {"docs"}
    assert used == named


def test_what_grafana_is_provisioned_with_fits_together() -> None:
    provisioning = GRAFANA / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text(encoding="utf-8"))
    providers = yaml.safe_load((provisioning / "dashboards" / "reconciler.yml").read_text(encoding="utf-8"))
    assert [source["type"] for source in sources["datasources"]] == ["prometheus"]
    assert [provider["type"] for provider in providers["providers"]] == ["file"]
