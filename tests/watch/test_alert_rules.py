"""The rules: each does what its tests say, leads to a section of the runbook, and goes by metrics that there are."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from reconciler.config.settings import Job
from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.core.errors import ConfigError
from reconciler.hook.figures import HookRun
from reconciler.watch.metrics import Figures
from tests import ROOT
from tests.lab.servers.prometheus import program
from tests.waiting import LIMIT_S

RULES = ROOT / "deploy" / "prometheus" / "reconciler.rules.yml"
TESTS = RULES.with_name("reconciler.rules.test.yml")
RUNBOOK = "docs/how-to/alerts.md"
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def all_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in all_rules() if "alert" in rule}
RECORDS = {rule["record"] for rule in all_rules() if "record" in rule}


def slug(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sections(path: str) -> set[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def metrics_in(expression: str) -> set[str]:
    """The reconciler's metrics that an expression names. What rules record has colons, and is not among them."""
    return set(re.findall(r"\breconciler_[a-z_]+", expression))


def exposed() -> set[str]:
    """What watch and the hook expose."""
    watch = {family.name + end for family in Figures(lambda: 0).collect() for end in ENDS[family.type]}
    job = Job("clicks", "clicks", (), "memory:", RECORD_TIME_ONLY)
    return watch | {f"reconciler_hook_{name}" for name in HookRun(job).values(0)}


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    try:
        tool = program("promtool")
    except ConfigError as error:
        pytest.skip(str(error))
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
    tests = [test["alert_rule_test"] for test in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]]
    steps = [[bool(each.get("exp_alerts")) for each in test if each["alertname"] == name] for test in tests]
    assert any(_course(each).startswith("silent, fires, silent") for each in steps)


def _course(fires: list[bool]) -> str:
    said = ["fires" if each else "silent" for each in fires]
    return ", ".join(word for place, word in enumerate(said) if place == 0 or said[place - 1] != word)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_leads_to_its_section_of_the_runbook(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == (RUNBOOK, slug(name))
    assert anchor in sections(page)


@pytest.mark.parametrize("name", ALERTS)
def test_a_section_of_the_runbook_says_what_to_look_at_what_to_do_and_when_it_is_over(name: str) -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found
    parts = re.findall(r"^\*\*(Look first|Do|Go back|Resolves)\b", found[1], re.MULTILINE)
    assert parts == ["Look first", "Do", "Go back", "Resolves"]


def test_the_runbooks_overview_has_every_alert_with_its_severity() -> None:
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \|.*\| (yes|no) \|$", text, re.MULTILINE))
    assert listed == {
        name: {"page": "yes", "ticket": "no"}[rule["labels"]["severity"]] for name, rule in ALERTS.items()
    }


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is_in_two_whole_sentences(name: str) -> None:
    said = ALERTS[name]["annotations"]
    assert set(said) == {"summary", "description", "runbook_url"}
    assert re.search(r"[.}]$", said["summary"]), "a sentence"
    assert said["description"].endswith((".", "?"))
    assert "$labels." in said["summary"], "it names the job or the watch"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_goes_by_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert metrics_in(rule["expr"]) - exposed() == set()
    assert set(re.findall(r"\breconciler:[a-z_:]+", rule["expr"])) <= RECORDS
