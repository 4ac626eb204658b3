"""What a scrape sees: a job's figures replaced in one step, and removed with their job, topic or verdict."""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import __version__
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures, Watched
from reconciler.jobs.watch.metrics import Figures
from reconciler.kafka.mirror.skipped import Gaps

NOW = 1_800_000_000_000
TOPICS = Watched(("a.events", "a.other"), "a", "b", "web")
MIRROR = {"from": "a", "to": "b"}
LABELS = {**MIRROR, "owner": "web"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """Figures at a time that the test sets."""

    def __init__(self) -> None:
        self.now = NOW
        self.figures = Figures(lambda: self.now)
        self.registry = self.figures.registry()

    def samples(self) -> Samples:
        text = generate_latest(self.registry).decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        more = LABELS if "job" in labels else {}
        return self.samples().get((f"reconciler_{name}", frozenset((labels | more).items())))

    def of_job(self, job: str) -> set[str]:
        return {name for name, labels in self.samples() if ("job", job) in labels}


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def found(*verdicts: Verdict, topic: str = "a.events", anchored_ms: int | None = NOW - 7_000) -> CheckFigures:
    counts = {verdict: verdicts.count(verdict) for verdict in verdicts}
    figures = TopicFigures(counts, own=1, mismatched=2, blocked=3, shortfall=5, replay=6, lag_s=7.5, job_lag=8)
    return CheckFigures({topic: figures}, anchored_ms)


def test_before_its_first_check_a_job_is_down_and_has_no_gauges(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS})
    assert scraped.value("up", job="clicks") == 0
    assert scraped.of_job("clicks") == {"reconciler_up", "reconciler_checks_total"}


def test_a_whole_check_gives_all_figures_of_a_job(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS})
    scraped.figures.checked({"clicks": found(Verdict.EXACT, Verdict.EXACT, Verdict.BEHIND)})
    where = {"job": "clicks", "topic": "a.events"}
    assert scraped.value("partitions", finding="exact", **where) == 2
    assert scraped.value("partitions", finding="behind", **where) == 1
    names = ["own", "mismatched", "blocked", "mirror_shortfall"]
    assert [scraped.value(f"{name}_partitions", **where) for name in names] == [1, 2, 3, 5]
    assert scraped.value("replay_records", **where) == 6
    assert (scraped.value("job_lag_records", **where), scraped.value("reset_partitions", **where)) == (8, None)
    assert scraped.value("must_not_start", job="clicks") == 1
    assert scraped.value("mirror_lag_seconds", **where) == 7.5
    assert scraped.value("up", job="clicks") == 1
    assert scraped.value("last_success_timestamp_seconds", job="clicks") == NOW / 1000
    assert scraped.value("anchor_age_seconds", job="clicks") == 7
    assert scraped.value("checks_total", job="clicks", outcome="person") == 1
    assert scraped.value("build_info", version=__version__) == 1


def test_what_the_mirror_does_not_say_is_absent_and_not_zero(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS})
    scraped.figures.checked({"clicks": found(Verdict.EXACT)})
    assert scraped.value("mirror_heartbeat_age_seconds", **MIRROR) is None
    found_by_topic = {("a", "b", "events"): Gaps(4_000, 2)}
    beats = {("a", "b"): NOW - 9_000}
    scraped.figures.process = replace(scraped.figures.process, heartbeats_ms=beats, gaps=found_by_topic)
    assert scraped.value("mirror_heartbeat_age_seconds", **MIRROR) == 9
    assert scraped.value("mirror_skipped_records", topic="events", **MIRROR) == 4_000
    assert scraped.value("mirror_began_again", topic="events", **MIRROR) == 2


def test_while_checks_fail_a_job_is_down_and_keeps_its_last_figures_which_grow_old(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS})
    scraped.figures.checked({"clicks": found(Verdict.EXACT)})
    scraped.now += 60_000
    scraped.figures.checked({"clicks": Unreachable("away")})
    assert scraped.value("up", job="clicks") == 0
    assert scraped.value("partitions", job="clicks", topic="a.events", finding="exact") == 1
    assert scraped.value("last_success_timestamp_seconds", job="clicks") == NOW / 1000
    assert scraped.value("anchor_age_seconds", job="clicks") == 67
    assert scraped.value("checks_total", job="clicks", outcome="unreachable") == 1


def test_gauges_of_a_verdict_a_topic_or_a_job_that_is_gone_disappear(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS, "orders": TOPICS})
    scraped.figures.checked({name: found(Verdict.EXACT) for name in ("clicks", "orders")})
    scraped.figures.checked({"clicks": found(Verdict.LOST)})
    assert scraped.value("partitions", job="clicks", topic="a.events", finding="exact") is None
    assert scraped.value("partitions", job="clicks", topic="a.events", finding="lost") == 1
    scraped.figures.checked({"clicks": found(Verdict.LOST, topic="a.other", anchored_ms=None)})
    topics = {dict(labels).get("topic") for _, labels in scraped.samples() if ("job", "clicks") in labels}
    assert topics == {None, "a.other"}
    assert scraped.value("anchor_age_seconds", job="clicks") is None
    scraped.figures.watch_jobs({"clicks": TOPICS})
    assert scraped.of_job("orders") == set()
    assert scraped.value("partitions", job="clicks", topic="a.other", finding="lost") == 1


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (CheckFigures({"t": TopicFigures({Verdict.EXACT: 1})}), "ok"),
        (CheckFigures({"t": TopicFigures({Verdict.LOST: 1}, blocked=1)}), "person"),
        (Changed("x"), "changed"),
        (Unreachable("x"), "unreachable"),
        (Refused("x"), "unreachable"),
        (OutcomeUnknown("x"), "unreachable"),
        (ConfigError("x"), "config"),
        (ZeroDivisionError("x"), "bug"),
    ],
)
def test_every_outcome_of_a_check_has_a_counter(scraped: Scraped, result: CheckFigures | Exception, word: str) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS})
    scraped.figures.checked({"clicks": result})
    counts = {
        dict(labels)["outcome"]: value
        for (name, labels), value in scraped.samples().items()
        if name == "reconciler_checks_total"
    }
    assert counts == {**dict.fromkeys(["ok", "person", "changed", "unreachable", "config", "bug"], 0), word: 1}


def test_a_scrape_never_sees_half_of_an_update(scraped: Scraped) -> None:
    """Scrapes go on while a job's figures are replaced: verdicts, sums and counters of one scrape are of one check."""
    scraped.figures.watch_jobs({"clicks": TOPICS})
    enough = threading.Event()

    def update() -> None:
        for number in itertools.count(1):
            if enough.is_set():
                return
            counts = {Verdict.EXACT: number, Verdict.LOST: number}
            result = CheckFigures({"t": TopicFigures(counts, own=number, replay=number)}, NOW)
            scraped.figures.checked({"clicks": result})

    thread = threading.Thread(target=update)
    thread.start()
    seen: set[float] = set()
    while len(seen) < 30:
        samples = [sample for family in scraped.figures.collect() for sample in family.samples]
        values = {
            sample.value
            for sample in samples
            if re.fullmatch(r"reconciler_(partitions|own_partitions|replay_records)", sample.name)
        }
        seen |= values
        if len(values) != 1:
            break
    enough.set()
    thread.join()
    assert len(values) == 1, values


def test_a_sink_that_forbids_the_next_start_is_counted_and_asks_for_a_person(scraped: Scraped) -> None:
    scraped.figures.watch_jobs({"clicks": TOPICS, "without": TOPICS})
    scraped.figures.checked({"clicks": replace(found(), topics={}, blocking_sinks=1)})
    assert scraped.value("blocking_sinks", job="clicks") == scraped.value("must_not_start", job="clicks") == 1
    assert scraped.value("checks_total", job="clicks", outcome="person") == 1
    scraped.figures.checked({"without": replace(found(), topics={})})
    assert scraped.value("blocking_sinks", job="without") is None
    assert scraped.value("must_not_start", job="without") == 0
    assert scraped.value("checks_total", job="without", outcome="ok") == 1


def test_a_text_for_node_exporter_has_no_metrics_of_a_process(scraped: Scraped) -> None:
    """node_exporter has its own of these names, and refuses others."""
    scraped.figures.watch_jobs({"clicks": TOPICS})
    names = {family.name for family in scraped.figures.registry(of_process=False).collect()}
    assert {name.partition("_")[0] for name in names} == {"reconciler"}
