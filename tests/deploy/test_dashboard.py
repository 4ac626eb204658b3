"""The dashboard fits Grafana's schema, queries only metrics that exist, and links to the runbook."""

from __future__ import annotations

import copy
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.deploy.grafana_schema import problems
from tests.jobs.watch.test_alert_rules import ALERTS, RUNBOOK, exposed, metrics_in, promtool

GRAFANA = ROOT / "deploy" / "grafana"
JSON = (GRAFANA / "dashboards" / "reconciler.json").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads(JSON)
FOLDED = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
FIRST = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
PANELS = {panel["title"]: panel for panel in [*FIRST.values(), *(each for row in FOLDED for each in row["panels"])]}
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


def test_the_dashboard_is_what_its_table_of_panels_makes() -> None:
    assert runpy.run_path(str(GRAFANA / "dashboard.py"))["text"]() == JSON


def test_the_first_row_has_what_matters_and_the_rest_is_folded() -> None:
    assert list(FIRST) == ["Must not start", "Waits for its mirror", "Jobs by cluster"]
    assert len({panel["gridPos"]["y"] for panel in FIRST.values()}) == 1
    assert all(row["collapsed"] for row in FOLDED)


def test_grafanas_schema_allows_the_dashboard() -> None:
    assert problems(DASHBOARD) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("panels", 1, "gridPos", "w"), "3", "w is '3'"),
        (("panels", 1, "fieldConfig", "defaults", "min"), "0", "min_val is '0'"),
        (("panels", 1, "targets", 0, "expression"), "up", "expression is unknown"),
        (("panels", 4, "panels", 0, "type"), 3, "type_val is 3"),
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
def test_a_panel_says_what_it_shows_and_asks_for_metrics_that_there_are(name: str) -> None:
    assert PANELS[name]["description"].endswith(".")
    assert PANELS[name]["targets"]
    for target in PANELS[name]["targets"]:
        assert set() < metrics_in(target["expr"]) <= exposed()
        assert target["datasource"]["uid"] == "${datasource}"


UP = {'reconciler_up{job="clicks", from="a", to="b"}': 1, 'reconciler_up{job="views", from="b", to="a"}': 0}
CLICKS = '{job="clicks", from="a", to="b", topic="a.events"}'
BLOCKED = {f"reconciler_must_not_start{CLICKS}": 1, f"reconciler_blocked_partitions{CLICKS}": 3}


@pytest.mark.parametrize(
    ("name", "known", "shown"),
    [
        ("Must not start", UP, [[], [], []]),
        ("Must not start", BLOCKED, [[("a", 1)], [("a", 3)], []]),
        ("Must not start", {f"reconciler_blocking_sinks{CLICKS}": 2}, [[], [], [("a", 2)]]),
        ("Waits for its mirror", {f"reconciler_mirror_lag_seconds{CLICKS}": 60}, [[]]),
        ("Waits for its mirror", {f"reconciler_mirror_lag_seconds{CLICKS}": 61}, [[("a", 61)]]),
        ("Jobs by cluster", UP, [[("a", 1), ("b", 1)], [("a", 1), ("b", 0)]]),
        ("Jobs by cluster", {'up{job="reconciler"}': 0}, [[], []]),
    ],
)
def test_the_first_row_names_jobs_and_clusters(
    name: str, known: dict[str, int], shown: list[list[tuple[str, int]]], tmp_path: Path
) -> None:
    """``shown``: the cluster in ``from`` and the value, of each query's answers."""
    of_job = "" if name == "Jobs by cluster" else ', job="clicks", to="b"'
    asked = [
        {
            "expr": target["expr"].replace("$job", ".*").replace("$owner", ".*"),
            "eval_time": "10m",
            "exp_samples": [{"labels": f'{{from="{where}"{of_job}}}', "value": value} for where, value in answers],
        }
        for target, answers in zip(FIRST[name]["targets"], shown, strict=True)
    ]
    series = [{"series": each, "values": f"{value}x100"} for each, value in known.items()]
    tests = tmp_path / "tests.yml"
    test = {"interval": "30s", "input_series": series, "promql_expr_test": asked}
    tests.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    ended = promtool("test", "rules", tests)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_no_two_panels_share_a_place() -> None:
    for panels in (DASHBOARD["panels"], *(row["panels"] for row in FOLDED)):
        taken: dict[tuple[int, int], str] = {}
        for panel in panels:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= WIDTH
            for cell in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
                assert taken.setdefault(cell, panel["title"]) == panel["title"]
    ids = [panel["id"] for panel in (*PANELS.values(), *FOLDED)]
    assert len(set(ids)) == len(ids)


def test_the_links_lead_to_sections_of_the_runbook() -> None:
    found = {url.partition("#") for url in links(DASHBOARD)}
    assert {where for where, _, _ in found} == {"${docs}/" + RUNBOOK.removeprefix("docs/")}
    assert {anchor for _, _, anchor in found} - {""} <= {name.lower() for name in ALERTS}


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
