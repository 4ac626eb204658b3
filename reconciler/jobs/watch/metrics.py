"""The metrics of the continuous check, and the address that they are scraped from.

A scrape during a check sees the figures of the check before, never half of the new ones. The figures of a job's last
complete check stay until the next one; while there is none, ``up`` is 0 and ``last_success`` grows old.

``prometheus_client``'s own server serves them. Each connection has a thread of its own, so no client can delay checks
or other clients. A connection that says nothing for ``SILENT_S`` is closed. The number of connections is not limited.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reconciler import __version__
from reconciler.core.errors import ConfigError
from reconciler.jobs.watch.figures import JOB_LABELS, CheckFigures, JobFigures, ProcessFigures, Watched


class Figures(Collector):
    """The figures of all jobs and of this process. One thread updates them; any thread may ``collect``."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._jobs: Mapping[str, JobFigures] = {}
        self.process = ProcessFigures()

    def registry(self, *, of_process: bool = True) -> CollectorRegistry:
        """A new registry with these figures and, with ``of_process``, the usual ones of a process."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        if not of_process:
            return registry
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        return registry

    def job(self, name: str) -> JobFigures:
        return self._jobs[name]

    def watch_jobs(self, jobs: Mapping[str, Watched]) -> None:
        """Watch these jobs and no others. A job that was watched before keeps its figures."""
        self._jobs = {name: self._jobs.get(name, JobFigures()).only(watched) for name, watched in jobs.items()}

    def checked(self, results: Mapping[str, CheckFigures | Exception]) -> None:
        """Record the results of checks by job."""
        now = self._now_ms()
        ended = {name: self._jobs[name].after(result, now) for name, result in results.items()}
        self._jobs = {**self._jobs, **ended}

    def collect(self) -> Iterator[Metric]:
        jobs, process = self._jobs, self.process
        yield from _of_topics(jobs)
        yield from _of_jobs(jobs, self._now_ms())
        yield from _of_process(process, self._now_ms())


def _gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"reconciler_{name}", help_text, labels=labels)


def _counter(name: str, help_text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"reconciler_{name}", help_text, labels=labels)


_TOPIC_GAUGES = {
    "own": ("own_partitions", "Partitions of a job that lives on the watched cluster; 0 if it lives elsewhere."),
    "mismatched": (
        "mismatched_partitions",
        "Own partitions whose log is not the one that the job has read (cut, recreated, restored), or has lost records "
        "that the job has yet to read.",
    ),
    "blocked": ("blocked_partitions", "Partitions that must not start without a decision, by [policy]."),
    "shortfall": (
        "mirror_shortfall_partitions",
        "Partitions of which the mirror has not delivered the last processed record.",
    ),
    "lag_s": (
        "mirror_lag_seconds",
        "How much older than the job's last processed record the newest delivered one is, by the records' times, in "
        "the partition that lags most; 0 if none lags, +Inf if it cannot be known.",
    ),
    "replay": ("replay_records", "Records that would be read again at most, if the job started now."),
    "job_lag": (
        "job_lag_records",
        "Records that the job has yet to read on the cluster where it lives, up to the log's end; absent while that "
        "cluster cannot be asked.",
    ),
    "reset": (
        "reset_partitions",
        "Partitions whose topic was recreated on the cluster where the job lives since the job's last record, or whose "
        "log ends in front of the job's offset there; absent while that cluster cannot be asked.",
    ),
    "wrong_times": (
        "wrong_time_partitions",
        "Partitions whose anchor has a time that cannot be true: later than when it was stored, or more than a month "
        "from the records next to it.",
    ),
}
"""Fields of ``TopicFigures``, and the gauges that show them."""


def _of_topics(jobs: Mapping[str, JobFigures]) -> Iterator[Metric]:
    labels = (*JOB_LABELS, "topic")
    partitions = _gauge(
        "partitions", "Partitions by finding; a finding that no partition has is absent.", (*labels, "finding")
    )
    gauges = {key: _gauge(name, meaning, labels) for key, (name, meaning) in _TOPIC_GAUGES.items()}
    for name, job in jobs.items():
        of = job.labels(name)
        for topic, figures in job.found.topics.items() if job.found else ():
            for verdict, count in figures.verdicts.items():
                partitions.add_metric((*of, topic, verdict.value), count)
            for key, gauge in gauges.items():
                if (value := getattr(figures, key)) is not None:
                    gauge.add_metric((*of, topic), value)
    yield partitions
    yield from gauges.values()


def _of_jobs(jobs: Mapping[str, JobFigures], now_ms: int) -> Iterator[Metric]:
    up = _gauge("up", "1 if the job's last check was complete, else 0; 0 also before the first check ends.", JOB_LABELS)
    success = _gauge("last_success_timestamp_seconds", "When the job's last complete check ended.", JOB_LABELS)
    blocked = _gauge(
        "must_not_start",
        "1 if the job must not start without a decision, because a partition is blocked or a sink forbids it; else 0.",
        JOB_LABELS,
    )
    age = _gauge(
        "anchor_age_seconds",
        "Time since the newest of the job's anchors was stored, or since that anchor's record was made if the store "
        "does not know. It grows while checks fail.",
        JOB_LABELS,
    )
    sinks = _gauge(
        "blocking_sinks",
        "Sinks that forbid the job's next start, because it would lose batches or write records again; absent for a "
        "job that names no sink.",
        JOB_LABELS,
    )
    checks = _counter("checks", "Checks of the job by outcome.", (*JOB_LABELS, "outcome"))
    for name, job in jobs.items():
        of = job.labels(name)
        up.add_metric(of, job.up)
        if job.succeeded_ms is not None:
            success.add_metric(of, job.succeeded_ms / 1000)
        if (found := job.found) is not None:
            blocked.add_metric(of, found.is_blocked)
            if found.anchored_ms is not None:
                age.add_metric(of, max(0, now_ms - found.anchored_ms) / 1000)
            if found.blocking_sinks is not None:
                sinks.add_metric(of, found.blocking_sinks)
        for outcome, count in job.checks.items():
            checks.add_metric((*of, outcome), count)
    yield from (up, success, blocked, sinks, age, checks)


def _of_process(process: ProcessFigures, now_ms: int) -> Iterator[Metric]:
    info = _gauge("build_info", "Always 1.", ("version",))
    info.add_metric((__version__,), 1)
    beats = _gauge(
        "mirror_heartbeat_age_seconds",
        "Time since the newest of MirrorMaker's heartbeats that was delivered was sent: later records may be missing "
        "here. Absent without heartbeats.",
        ("from", "to"),
    )
    for mirror, sent_ms in process.heartbeats_ms.items():
        beats.add_metric(mirror, max(0, now_ms - sent_ms) / 1000)
    yield from (beats, info, *_of_mirrors(process))
    plain: list[tuple[GaugeMetricFamily | CounterMetricFamily, float | None]] = [
        (_gauge("watch_interval_seconds", "The interval at which each job is to be checked."), process.interval_s),
        (_counter("watch_rounds", "Complete rounds: all jobs checked once."), process.rounds),
        (
            _gauge("watch_round_duration_seconds", "The time of the last round that was spent checking."),
            process.round_s,
        ),
        (
            _counter("requests_held_back_seconds", "Time for which the rate limit delayed requests."),
            process.held_back_s,
        ),
        (
            _gauge(
                "config_last_reload_successful",
                "0 if the configuration was refused at its last reload, and the previous one stays in use; else 1.",
            ),
            process.reload_ok,
        ),
    ]
    for family, value in plain:
        if value is not None:
            family.add_metric((), value)
        yield family


def _of_mirrors(process: ProcessFigures) -> tuple[Metric, Metric]:
    labels = ("from", "to", "topic")
    skipped = _gauge(
        "mirror_skipped_records",
        "Records of the source's topic that the mirror skipped within a day, at least, by MirrorMaker's offset syncs. "
        "Absent without syncs here, and for topics that may be compacted.",
        labels,
    )
    again = _gauge(
        "mirror_began_again",
        "How many times within a day the mirror began a partition of the source's topic again: the topic was recreated "
        "or cut on one of the clusters, or the mirror lost its positions. Absent as the metric before.",
        labels,
    )
    for of, gaps in process.gaps.items():
        skipped.add_metric(of, gaps.skipped)
        again.add_metric(of, gaps.began_again)
    return skipped, again


SILENT_S = 10.0
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})")

log = logging.getLogger("reconciler.jobs.watch")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. An empty host means every address of the machine; port 0 a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``. Raises ConfigError for anything else."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(
                f'The address to listen on, "{text}", is not HOST:PORT.',
                hint="For example 127.0.0.1:9464 or [::1]:9464.",
            )
        return cls(match["v6"] or match["host"] or "", int(match["port"]))

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MetricsListener:
    """Serves a registry until it is closed. Raises ConfigError if it cannot listen."""

    def __init__(self, address: ListenAddress, registry: CollectorRegistry) -> None:
        self._asked = address
        host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
        try:
            self._server, self._thread = start_http_server(address.port, host, registry)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be a host's, like .example.com
            raise ConfigError(
                f"Nothing can listen on {address}: {getattr(error, 'strerror', None) or error}.",
                hint="Choose another address with --listen or [watch] listen; another watch may be running there.",
            ) from error
        self._server.RequestHandlerClass = _Visit
        self._server.handle_error = _debug  # type: ignore[method-assign,assignment]
        bound, port = self._server.server_address[:2]
        self.address = ListenAddress(str(bound), int(port))

    @property
    def url(self) -> str:
        return f"http://{self.address}/metrics"

    def keep(self, address: ListenAddress) -> None:
        """Warn if another address is configured now: it needs a restart."""
        if self._asked != address:
            log.warning("[watch] listen has changed, and watch still serves %s. Restart it to change that.", self.url)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Visit(WSGIRequestHandler):
    """One connection. Its faults are the client's, and not logged."""

    timeout = SILENT_S

    def log_message(self, *_: Any) -> None:
        pass

    def get_stderr(self) -> TextIO:
        return io.StringIO()


def _debug(_: object, client: object) -> None:
    log.debug("a client of the metrics: %s", client, exc_info=True)
