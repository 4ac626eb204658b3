"""The rules: each does what its tests say, leads to a section of the runbook, and goes by metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.documents import metrics_page
from tests.waiting import LIMIT_S

RULES = ROOT / "deploy" / "prometheus" / "reconciler.rules.yml"
TESTS = RULES.with_name("reconciler.rules.test.yml")
RUNBOOK = "docs/how-to/alerts.md"
ON_A_JOB = {"job", "from", "to", "owner"}


def all_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in all_rules()}


def metrics_in(expression: str) -> set[str]:
    """The reconciler's metrics that an expression names."""
    return set(re.findall(r"\breconciler_[a-z_]+", expression))


def exposed() -> set[str]:
    """What watch and the hook expose."""
    return {each.name for each in metrics_page.metrics()}


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    if (tool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed. Debian's package prometheus has it.")
    command = [tool, *map(str, arguments)]
    return subprocess.run(command, cwd=RULES.parent, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_every_alert_fires_resolves_and_stays_silent_as_its_tests_say() -> None:
    ended = promtool("test", "rules", TESTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_prometheus_accepts_the_example() -> None:
    ended = promtool("check", "config", RULES.with_name("prometheus.yml"))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_seen_firing_and_resolved_in_the_rules_tests(name: str) -> None:
    tests = [test.get("alert_rule_test", []) for test in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]]
    steps = [[bool(each.get("exp_alerts")) for each in test if each["alertname"] == name] for test in tests]
    assert any(_course(each).startswith("silent, fires, silent") for each in steps)


def _course(fires: list[bool]) -> str:
    said = ["fires" if each else "silent" for each in fires]
    return ", ".join(word for place, word in enumerate(said) if place == 0 or said[place - 1] != word)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_leads_to_a_section_that_says_what_to_look_at_what_to_do_and_when_it_is_over(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == (RUNBOOK, name.lower())
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text_of(RUNBOOK), re.DOTALL | re.MULTILINE)
    assert found
    assert re.findall(r"^\*\*(Look first|Do|Resolves)\b", found[1], re.MULTILINE) == ["Look first", "Do", "Resolves"]


def test_the_runbook_has_every_alert_with_its_severity_and_no_other() -> None:
    listed = re.findall(r"^\|\[(\w+)\]\(#\w+\)\|.*\|(\w+)\|$", text_of(RUNBOOK), re.MULTILINE)
    assert dict(listed) == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    assert set(re.findall(r"^## (\w+)$", text_of(RUNBOOK), re.MULTILINE)) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_plain_expression_a_duration_and_two_sentences(name: str) -> None:
    rule = ALERTS[name]
    assert set(re.findall(r"\b(?:reconciler[\w:]*|ALERTS\b)", re.sub(r'"[^"]*"', "", rule["expr"]))) <= exposed()
    assert rule["for"]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert all(rule["annotations"][key].endswith(".") for key in ("summary", "description"))
    assert "$labels." in rule["annotations"]["summary"], "it names the job, the mirror or the watch"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_on_a_job_says_where_it_lives_where_it_goes_and_whose_it_is(name: str) -> None:
    labels = {each.name: set(each.labels) for each in metrics_page.metrics()}
    for metric in metrics_in(ALERTS[name]["expr"]):
        assert "job" not in labels[metric] or labels[metric] >= ON_A_JOB
    assert not re.search(r"\b(by|without|on|ignoring)\b", ALERTS[name]["expr"]), "which would drop labels"


def test_what_one_alert_hides_is_an_alert() -> None:
    named = re.findall(r"alertname =~? \"?([\w|]+)", text_of("docs/how-to/set-up-alerts.md"))
    assert {name for each in named for name in each.split("|")} <= set(ALERTS)
    assert len(named) == 4
