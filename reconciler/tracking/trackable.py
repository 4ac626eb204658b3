"""Which jobs can be tracked, and which cannot share an [anchors] store."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.config.file import Config, Job
from reconciler.config.places import one_store
from reconciler.core.errors import ConfigError


def why_not(config: Config, job: Job) -> str:
    """Why a job is not tracked whose store keeps anchors; empty if its rows without one are.

    With one topic name on both sides such a row does not tell which cluster's number it is: where the store keeps
    anchors, ``apply`` leaves no mark of the failover in the [anchors] store.
    """
    if one_store(job.store, config.anchor_store or ""):
        return "its rows are in the [anchors] store itself, which keeps anchors beside them"
    if any(config.topics.destination_of(topic) == topic for topic in job.topics):
        return "its store keeps anchors beside the offsets, and its topics have one name on both sides"
    return ""


def refuse_shared(jobs: Iterable[Job]) -> None:
    """Raise ConfigError for two jobs of one group and topic: they would share a row of the anchor store."""
    owner: dict[tuple[str, str], str] = {}
    for job in jobs:
        for topic in job.topics:
            other = owner.setdefault((job.group, topic), job.name)
            if other != job.name:
                raise ConfigError(
                    f'Jobs "{other}" and "{job.name}" have one group and the topic "{topic}": '
                    "their anchors cannot be told apart.",
                    hint="Give one of them a group of its own.",
                )
