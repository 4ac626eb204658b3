"""The metrics of the continuous check: the figures as Prometheus reads them.

A scrape during a check sees the figures of the check before, never half of the new ones. The figures of a job's last
complete check stay until the next one; while there is none, ``up`` is 0 and ``last_success`` grows old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from reconciler import __version__
from reconciler.watch.figures import JOB_LABELS, PROBES, CheckFigures, JobFigures, ProcessFigures, Watched


class Figures(Collector):
    """The figures of all jobs and of this process. One thread updates them; any thread may ``collect``."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._jobs: Mapping[str, JobFigures] = {}
        self.process = ProcessFigures()

    def registry(self) -> CollectorRegistry:
        """A new registry with these figures and the usual ones of a process."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        return registry

    def job(self, name: str) -> JobFigures:
        return self._jobs[name]

    def watch_jobs(self, jobs: Mapping[str, Watched]) -> None:
        """Watch these jobs and no others. What was watched before keeps its figures."""
        self._jobs = {name: self._jobs.get(name, JobFigures()).only(watched) for name, watched in jobs.items()}

    def checked(self, results: Mapping[str, tuple[CheckFigures | Exception, float]]) -> None:
        """Record the results of checks by job, each with its duration in seconds."""
        now = self._now_ms()
        ended = {name: self._jobs[name].after(result, took, now) for name, (result, took) in results.items()}
        self._jobs = {**self._jobs, **ended}

    def probed(self, counts: Mapping[str, int]) -> None:
        """Add to the number of probes of each kind."""
        probes = dict(self.process.probes)
        for kind, count in counts.items():
            word = PROBES.get(kind, kind)
            probes[word] = probes.get(word, 0) + count
        self.process = replace(self.process, probes=probes)

    def collect(self) -> Iterator[Metric]:
        jobs, process = self._jobs, self.process
        yield from _of_topics(jobs, self._now_ms())
        yield from _of_jobs(jobs, self._now_ms())
        yield from _of_process(process, len(jobs), self._now_ms())


def _gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"reconciler_{name}", help_text, labels=labels)


def _counter(name: str, help_text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"reconciler_{name}", help_text, labels=labels)


_TOPIC_GAUGES = {
    "own": ("own_partitions", "Partitions of a job that lives on the watched cluster."),
    "mismatched": (
        "mismatched_partitions",
        "Own partitions whose log is not the one that the stored offset was taken from.",
    ),
    "blocked": ("blocked_partitions", "Partitions that must not start before a person has decided."),
    "over_budget": (
        "over_budget_partitions",
        "Blocked partitions that would read more again than max_replay allows.",
    ),
    "without_rows": (
        "partitions_without_rows",
        "Partitions of a topic with records, of which the job's store holds no row at all.",
    ),
    "shortfall": (
        "mirror_shortfall_partitions",
        "Partitions of which the mirror has not delivered the last processed record.",
    ),
    "lag_s": (
        "mirror_lag_seconds",
        "How much older than the last processed record the newest delivered one is, where most; +Inf if unknown.",
    ),
    "mirror_replay": (
        "mirror_offset_replay_records",
        "Records that a start at MirrorMaker's own offsets would read again at most; absent if it has none.",
    ),
    "mirror_skips": (
        "mirror_offset_skips_records",
        "Records that a start at MirrorMaker's own offsets would skip; absent if it has none.",
    ),
    "replay": ("replay_records", "Records that would be read again at most, if the job started now."),
}
"""Fields of ``TopicFigures``, and the gauges that show them."""


def _of_topics(jobs: Mapping[str, JobFigures], now_ms: int) -> Iterator[Metric]:
    labels = (*JOB_LABELS, "topic")
    partitions = _gauge(
        "partitions", "Partitions of the job's topic by what the last whole check found.", (*labels, "finding")
    )
    gauges = {key: _gauge(name, meaning, labels) for key, (name, meaning) in _TOPIC_GAUGES.items()}
    delivered = _gauge(
        "mirror_delivered_age_seconds", "Time since the newest record that was delivered was made.", labels
    )
    for name, job in jobs.items():
        of = job.labels(name)
        for topic, figures in job.found.topics.items() if job.found else ():
            for verdict, count in figures.verdicts.items():
                partitions.add_metric((*of, topic, verdict.value), count)
            for key, gauge in gauges.items():
                if (value := getattr(figures, key)) is not None:
                    gauge.add_metric((*of, topic), value)
            if figures.delivered_ms is not None:
                delivered.add_metric((*of, topic), max(0, now_ms - figures.delivered_ms) / 1000)
    yield delivered
    yield partitions
    yield from gauges.values()


def _of_jobs(jobs: Mapping[str, JobFigures], now_ms: int) -> Iterator[Metric]:
    up = _gauge("up", "1 if the job's last check was whole, 0 if not, or if there was none yet.", JOB_LABELS)
    success = _gauge("last_success_timestamp_seconds", "When the job's last whole check ended.", JOB_LABELS)
    age = _gauge("anchor_age_seconds", "Time since the newest of the job's anchors was stored.", JOB_LABELS)
    blocked = _gauge("must_not_start", "1 if the job must not start without a decision, else 0.", JOB_LABELS)
    sinks = _gauge(
        "blocking_sinks", "Sinks that forbid the job's next start; absent for a job that names no sink.", JOB_LABELS
    )
    checks = _counter("checks", "Checks of the job by how they ended.", (*JOB_LABELS, "outcome"))
    durations = HistogramMetricFamily(
        "reconciler_check_duration_seconds", "How long the checks took that the job was in.", labels=JOB_LABELS
    )
    for name, job in jobs.items():
        of = job.labels(name)
        up.add_metric(of, job.up)
        if job.succeeded_ms is not None:
            success.add_metric(of, job.succeeded_ms / 1000)
        if job.found is not None and job.found.anchored_ms is not None:
            age.add_metric(of, max(0, now_ms - job.found.anchored_ms) / 1000)
        if job.found is not None:
            blocked.add_metric(of, job.found.is_blocked)
        if job.found is not None and job.found.blocking_sinks is not None:
            sinks.add_metric(of, job.found.blocking_sinks)
        for outcome, count in job.checks.items():
            checks.add_metric((*of, outcome), count)
        durations.add_metric(of, job.durations.buckets, job.durations.total_s)
    yield from (up, success, blocked, age, sinks, checks, durations)


def _of_process(process: ProcessFigures, jobs: int, now_ms: int) -> Iterator[Metric]:
    info = _gauge("build_info", "Always 1; the version of reconciler.", ("version",))
    info.add_metric((__version__,), 1)
    probes = _counter("probes", "Questions that searches asked the watched cluster's log.", ("kind",))
    for kind, count in process.probes.items():
        probes.add_metric((kind,), count)
    beats = _gauge(
        "mirror_heartbeat_age_seconds",
        "Time since the newest heartbeat that the mirror delivered was sent; absent without heartbeats.",
        ("from", "to"),
    )
    for mirror, sent_ms in process.heartbeats_ms.items():
        beats.add_metric(mirror, max(0, now_ms - sent_ms) / 1000)
    yield from (info, probes, beats)
    plain: list[tuple[GaugeMetricFamily | CounterMetricFamily, float | None]] = [
        (_gauge("watch_jobs", "Jobs that are watched."), jobs),
        (_gauge("watch_interval_seconds", "How often each job is to be checked."), process.interval_s),
        (_counter("watch_rounds", "Rounds that have ended: all jobs checked once."), process.rounds),
        (_counter("watch_overruns", "Rounds that took longer than the interval."), process.overruns),
        (_gauge("watch_round_duration_seconds", "How much of the last round was spent checking."), process.round_s),
        (_gauge("watch_last_round_timestamp_seconds", "When the last round ended."), _seconds(process.round_ended_ms)),
        (_counter("requests", "Requests to the watched cluster that the rate limit counted."), process.requests),
        (
            _counter("requests_held_back_seconds", "Time for which the rate limit held requests back."),
            process.held_back_s,
        ),
        (
            _gauge("config_last_reload_successful", "1 if the configuration in use is the file's last."),
            process.reload_ok,
        ),
        (
            _gauge("config_last_reload_success_timestamp_seconds", "When the configuration in use was read."),
            _seconds(process.reloaded_ms),
        ),
    ]
    for family, value in plain:
        if value is not None:
            family.add_metric((), value)
        yield family


def _seconds(epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else epoch_ms / 1000
