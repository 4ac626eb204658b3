"""The metrics of one hook run, for Prometheus: a file for node_exporter's textfile collector, or a push gateway.

The client library loads only where one of them is configured. A failure to deliver metrics is a warning: it never stops
a job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

from reconciler.clock import clock_ms
from reconciler.config.settings import Job, MetricsSettings
from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.failover.check import Checked
from reconciler.fileio import name_for, why
from reconciler.jobs.hook.where import Place
from reconciler.plan.document import StartPolicy
from reconciler.waits import in_time

JOB_LABELS = ("job", "from", "to", "owner")
PUSH_S = 3.0
READABLE = 0o644
"""The file's mode, whatever the umask: node_exporter runs as another user and reads it."""

log = logging.getLogger("reconciler.jobs.hook")


@dataclass(slots=True)
class HookRun:
    """One run of a hook: its findings, and how it ended. Counts stay 0 if the run ends before its check."""

    job: Job
    leaves: str = ""
    """The cluster where the job lives, and in ``to`` the one where it starts; its home until that is known."""
    to: str = ""
    began: float = field(default_factory=monotonic)
    to_correct: int = 0
    blocked: int = 0
    replay: int = 0

    def goes(self, place: Place) -> None:
        """Take the clusters from the start."""
        location = place.location
        self.leaves, self.to = self.job.home if location is None else location.cluster, place.cluster

    def saw(self, checked: Checked, policy: StartPolicy) -> None:
        """Take the counts from the check that decides."""
        self.to_correct = len(checked.to_write)
        self.blocked = len(checked.stopped(policy))
        self.replay = sum(row.replay_at_most or 0 for job in checked.plan.starts.jobs for row in job.partitions)

    def values(self, code: int) -> dict[str, tuple[str, float]]:
        """By name without the prefix: the help text and the value of each metric."""
        return {
            "exit_code": ("The exit code: 0 if the job might start.", code),
            "timestamp_seconds": ("When the run ended.", clock_ms() / 1000),
            "duration_seconds": ("How long the run took, a wait for the mirror included.", monotonic() - self.began),
            "corrected_partitions": (
                "Stored offsets that the run corrected.",
                0 if code else self.to_correct,
            ),
            "blocked_partitions": ("Partitions and sinks for which the run stopped the job.", self.blocked),
            "replay_records": ("Records that are read again at most.", self.replay),
        }


@contextmanager
def record_run(settings: MetricsSettings, job: Job) -> Iterator[HookRun]:
    """A run whose metrics are delivered to the configured targets when it ends, normally or by an error."""
    run, code = HookRun(job), int(ExitCode.OK)
    try:
        yield run
    except Exception as error:
        code = int(error.exit_code if isinstance(error, ReconcilerError) else ExitCode.BUG)
        raise
    except BaseException:
        settings = MetricsSettings()  # it was interrupted: there is no result to report
        raise
    finally:
        deliver(settings, run, code)


def deliver(settings: MetricsSettings, run: HookRun, code: int) -> None:
    """Deliver the metrics of a run that ended with ``code``."""
    if settings.textfile is None and settings.pushgateway is None:
        return
    registry = _registry(run, code)
    for place, write in ((settings.textfile, _write_file), (settings.pushgateway, _push)):
        if place is not None:
            try:
                write(place, run.job.name, registry)
            except Exception as error:  # noqa: BLE001 - metrics never stop a job
                log.warning("the metrics of this run did not reach %s: %s", _without_login(place), _reason(error))


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)  # urllib puts the system's error into one of its own
    return why(cause) if isinstance(cause, OSError) else str(error)


def _registry(run: HookRun, code: int) -> Any:
    from prometheus_client import CollectorRegistry, Gauge

    registry, job = CollectorRegistry(), run.job
    for name, (meaning, value) in run.values(code).items():
        gauge = Gauge(f"reconciler_hook_{name}", meaning, JOB_LABELS, registry=registry)
        gauge.labels(job.name, run.leaves or job.home, run.to or job.home, job.owner).set(value)
    return registry


# ---------------------------------------------------------------- a file


def file_name(job: str) -> str:
    return f"reconciler_hook_{name_for(job)}.prom"


def _write_file(folder: str, job: str, registry: Any) -> None:
    """Replace the job's file in one step: the collector may read at any moment."""
    from prometheus_client import write_to_textfile

    path = Path(folder) / file_name(job)
    write_to_textfile(str(path), registry)
    path.chmod(READABLE)


# ---------------------------------------------------------------- a push gateway


def _push(url: str, job: str, registry: Any) -> None:
    """Push, and give up after ``PUSH_S`` seconds: looking up a name and slow answers can take longer than that."""

    def push() -> None:
        from prometheus_client import push_to_gateway

        address, handler = _with_login(url)
        push_to_gateway(address, job=job, registry=registry, timeout=PUSH_S, handler=handler)

    in_time(push, PUSH_S)


def _with_login(url: str) -> tuple[str, Any]:
    """The address, and how to ask there: ``https://user:password@host`` logs in."""
    from prometheus_client.exposition import basic_auth_handler, default_handler

    parts = urlsplit(url)
    if parts.username is None:
        return url, default_handler
    user, password = unquote(parts.username), unquote(parts.password or "")

    def log_in(url: str, method: str, timeout: float | None, headers: Any, data: bytes) -> Any:
        return basic_auth_handler(url, method, timeout, headers, data, user, password)

    return _without_login(url), log_in


def _without_login(place: str) -> str:
    """A URL without its user and password; a path unchanged."""
    scheme, mark, rest = place.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
