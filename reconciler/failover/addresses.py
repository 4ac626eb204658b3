"""Tells which addresses of a configuration are wrong, before a cluster is asked: an unreachable one is waited for."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, together
from reconciler.places.registry import open_store

log = logging.getLogger("reconciler.check")


def refuse_wrong(config: Config, jobs: Sequence[Job], *, sinks: bool = False) -> None:
    """Raise ConfigError if no job's store can be opened; log the faults of some jobs.

    The other jobs go on: one job hides no other. With ``sinks``, a job's sinks count as its store does. Contacts
    nothing.
    """
    faults: dict[str, ConfigError] = {}
    for job in jobs:
        try:
            _open(config, job.store)
            if sinks and job.sinks:
                from reconciler.failover.sinks.registry import open_sink  # noqa: PLC0415 (others need no sinks)

                for sink in job.sinks:
                    open_sink(sink)
        except ConfigError as error:
            faults[job.name] = error
    if len(faults) == len(jobs):
        raise together(faults.values())
    for name, fault in faults.items():
        log.warning('job "%s": %s', name, fault)


def _open(config: Config, address: str) -> None:
    open_store(address, kafka_client=config.destination.client).close()
