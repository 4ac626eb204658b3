"""A night on call: every rule fires in a real Prometheus when its fault is made on a real cluster, and resolves."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import ConfigError
from tests.lab.kafka import KafkaCluster
from tests.lab.servers.prometheus import PrometheusServer, Sample, program
from tests.stores.servers import cannot
from tests.waiting import wait_until
from tests.watch.alerting import Night, textfile_collector
from tests.world import ROOT

pytestmark = pytest.mark.system

FINDINGS = {
    "ReconcilerMismatch": "already",
    "ReconcilerMirrorOffsetSkips": "synced",
    "ReconcilerDestinationBehind": "behind",
    "ReconcilerReplayOverBudget": "budget",
    "ReconcilerAnchorsTooOld": "idle",
    "ReconcilerLossDetected": "lost",
    "ReconcilerNoRows": "rowless",
    "ReconcilerSinkBlocksStart": "sunk",
    "ReconcilerPartitionMissing": "missing",
    "ReconcilerUnresolved": "bare",
}
"""What is found by a check that is whole, and the job that it is found of."""
HOOK = {"ReconcilerHookBlockedStart": "lost", "ReconcilerHookFailed": "unread"}
OF_ITSELF = frozenset({"ReconcilerReloadFailed", "ReconcilerNoJobChecked", "ReconcilerWatchDown"})
"""What the watch tells of itself. Each is made to fire at one moment."""
HARM = {*FINDINGS, *HOOK, "ReconcilerJobNotChecked", "ReconcilerMirrorSilent"}


@dataclass
class Seen:
    """What Prometheus said at each moment of the night."""

    rules: list[dict[str, Any]] = field(default_factory=list)
    firing: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def alerts(self) -> set[str]:
        return {rule["name"] for rule in self.rules if rule["type"] == "alerting"}

    def names(self, moment: str) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.firing[moment]}

    def alert(self, moment: str, name: str, job: str) -> dict[str, Any]:
        (found,) = [a for a in self.firing[moment] if (a["labels"]["alertname"], a["labels"].get("job")) == (name, job)]
        return found


@pytest.fixture(scope="module")
def seen(request, tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Seen]:
    """The night itself. A cluster of its own: it is frozen here."""
    try:
        program()
    except ConfigError as error:
        cannot(request, str(error))
    folder = tmp_path_factory.mktemp("night")
    with ExitStack() as running:
        cluster = running.enter_context(KafkaCluster("watched", folder / "cluster", kafka_jars))
        night = Night(cluster, folder)
        running.callback(lambda: night.watch.stop())
        port = running.enter_context(textfile_collector(night.textfiles))
        prometheus = running.enter_context(night.prometheus(port))
        yield _live_through(night, prometheus)


def _live_through(night: Night, prometheus: PrometheusServer) -> Seen:
    seen = Seen()

    def firing() -> list[dict[str, Any]]:
        return [alert for alert in prometheus.alerts() if alert["state"] == "firing"]

    def reached(moment: str, there: Collection[str], gone: Collection[str] = ()) -> None:
        """Wait until these fire and those do not. Of the watch's own alerts all others do not: a machine that is busy
        for a moment may let a scrape or a round fail."""
        not_there = {*gone, *OF_ITSELF.difference(there)}

        def come_about() -> bool:
            seen.firing[moment] = firing()
            return seen.names(moment).issuperset(there) and seen.names(moment).isdisjoint(not_there)

        wait_until(come_about, f"{moment}: {', '.join(there)} fire, {', '.join(not_there)} do not")

    night.begin()
    assert night.hook("unread") == 0
    whole = f"count(reconciler_up == 1) == {len(night.subjects)}"
    wait_until(lambda: prometheus.query(whole), "every job had a whole check")
    reached("all is well", (), {rule["name"] for rule in prometheus.rules() if rule["type"] == "alerting"})
    wait_until(lambda: not prometheus.alerts(), "what was pending while all began is over")

    night.harm()
    assert night.hook("lost") == 4
    assert night.hook("unread") != 0
    good = night.config.read_text()
    night.reload("nobody = 'knows this'\n" + good)
    reached("harmed", {*HARM, "ReconcilerReloadFailed"})
    for panel, query in _queries().items():  # there are no figures for a moment if a scrape has just failed
        seen.answers[panel] = wait_until(partial(prometheus.query, query), f"an answer to {panel}")
    seen.rules = prometheus.rules()

    night.reload(good)
    night.cluster.pause()
    try:
        reached("frozen", {"ReconcilerNoJobChecked"}, {"ReconcilerJobNotChecked"})
    finally:
        night.cluster.resume()
    reached("thawed", {*FINDINGS})

    night.watch.kill()
    reached("killed", {"ReconcilerWatchDown"})
    night.start_watch()
    reached("started again", {"ReconcilerJobNotChecked"})

    night.reload(good.replace("requests_per_second = 1000", "requests_per_second = 4"))
    reached("slow", {"ReconcilerRoundsTooLong"})

    night.reload(good)
    night.heal()
    assert night.hook("lost") == 0
    assert night.hook("unread") == 0
    reached("healed", (), seen.alerts)
    return seen


def _queries() -> dict[str, str]:
    """What every panel of the dashboard asks for, as Grafana would with all jobs chosen; by panel and letter."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "reconciler.json").read_text(encoding="utf-8"))
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$job", ".+").replace("$__rate_interval", "30s")
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }


# ---------------------------------------------------------------- what was seen


def test_nothing_fires_while_all_is_well(seen: Seen) -> None:
    assert seen.firing["all is well"] == []


@pytest.mark.parametrize(("name", "job"), [*FINDINGS.items(), *HOOK.items(), ("ReconcilerJobNotChecked", "unread")])
def test_an_alert_fires_for_the_job_that_has_its_fault(seen: Seen, name: str, job: str) -> None:
    assert job in {alert["labels"]["job"] for alert in seen.firing["harmed"] if alert["labels"]["alertname"] == name}


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_told_of_no_other_job(seen: Seen, name: str) -> None:
    jobs = {a["labels"]["job"] for each in seen.firing.values() for a in each if a["labels"]["alertname"] == name}
    assert jobs == {FINDINGS[name]}


@pytest.mark.parametrize(("name", "job"), FINDINGS.items())
@pytest.mark.parametrize("moment", ["frozen", "thawed", "killed", "started again", "slow"])
def test_a_finding_does_not_resolve_without_a_check(seen: Seen, name: str, job: str, moment: str) -> None:
    """It is the same alert as before, not one that resolved meanwhile and began again."""
    assert seen.alert(moment, name, job)["activeAt"] == seen.alert("harmed", name, job)["activeAt"]


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("ReconcilerReloadFailed", "harmed"),
        ("ReconcilerNoJobChecked", "frozen"),
        ("ReconcilerWatchDown", "killed"),
    ],
)
def test_the_watch_tells_of_itself_and_only_then(seen: Seen, name: str, moment: str) -> None:
    assert {each for each in seen.firing if name in seen.names(each)} == {moment}


def test_the_watch_tells_when_it_cannot_keep_its_interval(seen: Seen) -> None:
    """Here perhaps at other moments, too: the machine may be busy."""
    assert "ReconcilerRoundsTooLong" in seen.names("slow")


def test_everything_resolves_when_all_is_well_again(seen: Seen) -> None:
    assert seen.firing["healed"] == []


def test_no_alert_was_left_out_of_this_night(seen: Seen) -> None:
    assert {name for moment in seen.firing for name in seen.names(moment)} == seen.alerts


def test_no_rule_was_refused(seen: Seen) -> None:
    assert {(rule["health"], rule.get("lastError", "")) for rule in seen.rules} == {("ok", "")}


def test_annotations_are_complete(seen: Seen) -> None:
    said = [text for alerts in seen.firing.values() for alert in alerts for text in alert["annotations"].values()]
    assert said
    assert not [text for text in said if "<no value>" in text or "{{" in text or "  " in text]


@pytest.mark.parametrize("panel", _queries())
def test_every_query_of_the_dashboard_has_an_answer(seen: Seen, panel: str) -> None:
    assert seen.answers[panel]
