"""``config check``: whether the records at the destination have what ``[jobs.identity]`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Identity, Record
from reconciler.core.errors import ReconcilerError
from reconciler.core.unanchored.spelling import reader_of
from reconciler.identity import settings_of
from reconciler.ports import LogReader, TopicInfo
from reconciler.preflight.identity import are_framed
from reconciler.preflight.results import TrialResult, failed, warn
from reconciler.preflight.survey import sample

DOTS = "; a name with dots is written like json:$['trace.id']"
RECORDS = 20
"""Records that are read of a topic."""


def identities(
    config: Config, jobs: Sequence[Job], known: Mapping[str, TopicInfo], reader: LogReader
) -> Iterator[TrialResult]:
    """Warnings for jobs whose records do not have an id, a time or a source's offset where the configuration says."""
    for job in jobs:
        names = [config.topics.destination_of(topic) for topic in job.topics]
        try:
            records = [
                list(found) for found in sample(reader, [name for name in names if name in known], RECORDS).values()
            ]
        except ReconcilerError as error:
            yield failed(f"job {job.name}", error, only_warn=True)
            continue
        yield from _fits(f"job {job.name}", job.identity, [found for found in records if found])


def _fits(subject: str, identity: Identity, partitions: Sequence[Sequence[Record]]) -> Iterator[TrialResult]:
    records, settings = [record for found in partitions for record in found], settings_of(identity)
    if not records:
        return
    if not identity.framed and are_framed(records):
        yield warn(
            subject,
            "the values of its records are framed by a schema registry (a byte 0 and a schema's id), and another "
            "registry may give the schema another id.",
            'Add to its [jobs.identity]: frame = "confluent"',
        )
    readers: dict[str, tuple[str, Callable[[Record], object] | None, str]] = {}
    readers["id"] = (settings.id, identity.id_of, identity.id_name)
    if settings.timestamp != "record":
        readers["timestamp"] = (settings.timestamp, identity.timestamp_of, identity.time_name)
    for setting, (spec, read, name) in readers.items():
        if read is not None and all(read(record) is None for record in records):
            yield warn(
                subject,
                f'{setting} = "{spec}": none of the {len(records):,} records read has {name}.',
                f"Correct [jobs.identity] {setting}{DOTS if spec.startswith('json:') else ''}.",
            )
    if identity.source_value_of is not None:
        why = [found for each in partitions if isinstance(found := reader_of(identity, each), str)]
        if why:
            yield warn(
                subject,
                f'source_offset = "{settings.source_offset}": {why[0]}.',
                "Correct [jobs.identity] source_offset.",
            )
