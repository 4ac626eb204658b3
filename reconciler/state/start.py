"""One start of a job, ``reconciler.start/1``: what a hook hands to the process that it starts. Pure.

It has no secrets: only the cluster's addresses, the state store's without its login, and the path of the configuration
file that has the logins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from reconciler.config.streams import Stream
from reconciler.core.errors import ConfigError
from reconciler.formats import json_fields
from reconciler.formats.decimal_text import partition_of
from reconciler.formats.json_fields import FieldError, Fields
from reconciler.identity import IdentitySettings
from reconciler.ports import TopicPartition

FORMAT = "reconciler.start/1"
EARLIEST = -2
"""The lowest offset of a start: Spark's number for the first record, of a partition that is new to the job."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a job starts, and who it is."""

    job: str
    cluster: str
    bootstrap_servers: str
    stay: int
    store: str
    """The state store's address, without its login."""
    store_id: str
    topics: Mapping[str, Stream]
    """The job's streams by their topics on this cluster."""
    offsets: Mapping[TopicPartition, int]
    """Where each partition begins that has no later number in the job's place."""
    identity: IdentitySettings
    checkpoint: str | None = None
    """The checkpoint that this stay uses; None for a job whose offsets are elsewhere."""
    config: str | None = None
    """The configuration file."""

    def starting_offsets(self) -> str:
        """Spark's ``startingOffsets``."""
        return json_fields.compact(_by_topic(self.offsets))


def dump(start: Start) -> str:
    """The file's text."""
    content = {
        **{name: getattr(start, name) for name in _TEXTS},
        "format": FORMAT,
        "stay": start.stay,
        "topics": {name: str(stream) for name, stream in start.topics.items()},
        "offsets": _by_topic(start.offsets),
        "identity": asdict(start.identity),
        "checkpoint": start.checkpoint,
        "config": start.config,
    }
    return json.dumps(content, indent=1) + "\n"


def load(text: str, place: str) -> Start:
    """The start in the file ``place``. Raises ConfigError for text that ``dump`` does not write."""
    try:
        found = Fields(json_fields.json_value(text, fractions=False), "", _FIELDS)
        if found.text("format") != FORMAT:
            raise FieldError("format", f"is not {FORMAT}")
        return Start(
            **{name: found.text(name) for name in _TEXTS},
            stay=found.number("stay", 1),
            topics=_topics(found.value("topics")),
            offsets=_offsets(found.value("offsets")),
            identity=_identity(found.value("identity")),
            checkpoint=found.text_or_null("checkpoint"),
            config=found.text_or_null("config"),
        )
    except FieldError as error:
        raise ConfigError(
            f"{place} is not a start of a job: {error.sentence}.", hint="Start the job by its hook."
        ) from error


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _topics(value: object) -> dict[str, Stream]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise FieldError("topics", "is not an object of streams")
    try:
        return {name: Stream.parse(stream) for name, stream in value.items()}
    except ValueError as error:
        raise FieldError("topics", f"has a stream that {error}") from error


def _offsets(value: object) -> dict[TopicPartition, int]:
    if not isinstance(value, dict):
        raise FieldError("offsets", "is not an object of topics")
    found = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise FieldError("offsets", "has a topic without partitions")
        for text in partitions:
            partition, offset = partition_of(text), json_fields.integer(partitions, text, EARLIEST)
            if partition is None or offset is None:
                raise FieldError("offsets", "has a partition without an offset")
            found[TopicPartition(topic, partition)] = offset
    return found


def _identity(value: object) -> IdentitySettings:
    names = [each.name for each in fields(IdentitySettings)]
    found = Fields(value, "identity", frozenset(names))
    settings: dict[str, Any] = {name: found.text(name) for name in names if name != "unique_ids"}
    return IdentitySettings(**settings, unique_ids=found.flag("unique_ids"))


_TEXTS = ("job", "cluster", "bootstrap_servers", "store", "store_id")
_FIELDS = frozenset(each.name for each in fields(Start)) | {"format"}
