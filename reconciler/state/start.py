"""One start of a job, ``reconciler.start/1``: what a hook hands to the process that it starts. Pure.

It has no secrets: only the cluster's addresses, the state store's without its login, and the path of the configuration
file that has the logins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.core import json_fields
from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import INT64_MIN, FieldError, Fields
from reconciler.core.question import StartAt, StartPlace
from reconciler.core.text import partition_of
from reconciler.plan.start import by_topic, spark_text
from reconciler.ports import TopicPartition

FORMAT = "reconciler.start/1"
START_VARIABLE = "RECONCILER_START"
"""The path of a start's file, in the environment of the process that is started."""
DIGEST_VARIABLE = "RECONCILER_START_SHA256"
"""The file's SHA-256."""
OFFSETS_VARIABLE = "RECONCILER_STARTING_OFFSETS"
"""The path of the start's offsets alone, as Spark's JSON."""
CHECKPOINT_VARIABLE = "RECONCILER_CHECKPOINT"
"""The checkpoint of the stay, for a job that continues from one."""
PLAN_VARIABLE = "RECONCILER_PLAN"
"""The path of the plan, if the start was planned."""
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
    new: StartAt | None = None
    """Where a partition without an offset begins; None where a plan has an offset for each."""
    cluster_id: str | None = None
    """The cluster in whose numbering the offsets are; None if that is unknown."""
    topic_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic, the ids of the topics in whose numbering the offsets are, as far as their anchors have them."""
    sinks: tuple[str, ...] = ()
    """Addresses of the query's sinks, for a checkpoint whose path only the job knows."""
    checkpoint: str | None = None
    """The checkpoint that this stay uses; None for a job whose offsets are elsewhere."""
    config: str | None = None
    """The configuration file."""

    def starting_offsets(self) -> str:
        """Spark's ``startingOffsets``."""
        return spark_text(self.offsets)


def digest_of(content: bytes) -> str:
    """The value of ``DIGEST_VARIABLE`` for a file of this content."""
    return hashlib.sha256(content).hexdigest()


def dump(start: Start) -> str:
    """The file's text."""
    content = {
        **{name: getattr(start, name) for name in _TEXTS},
        "format": FORMAT,
        "stay": start.stay,
        "topics": {name: str(stream) for name, stream in start.topics.items()},
        "offsets": by_topic(start.offsets),
        "identity": {name: getattr(start.identity, name) for name in _IDENTITY},
        "new": None if start.new is None else start.new.place.value,
        "new_time_ms": None if start.new is None else start.new.timestamp_ms,
        "cluster_id": start.cluster_id,
        "topic_ids": {topic: list(ids) for topic, ids in start.topic_ids.items()},
        "sinks": list(start.sinks),
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
            new=_new(found),
            cluster_id=found.text_or_null("cluster_id"),
            topic_ids=_topic_ids(found.value("topic_ids")),
            sinks=_texts("sinks", found.items("sinks")),
            checkpoint=found.text_or_null("checkpoint"),
            config=found.text_or_null("config"),
        )
    except FieldError as error:
        raise ConfigError(
            f"{place} is not a start of a job: {error.sentence}.", hint="Start the job by its hook."
        ) from error


def _topics(value: object) -> dict[str, Stream]:
    if not isinstance(value, dict) or not all(isinstance(each, str) and encodable(each) for each in value.values()):
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
        if not topic or not encodable(topic) or not isinstance(partitions, dict):
            raise FieldError("offsets", "has a topic without a name, or without partitions")
        for text in partitions:
            partition, offset = partition_of(text), json_fields.integer(partitions, text, EARLIEST)
            if partition is None or offset is None:
                raise FieldError("offsets", "has a partition without an offset")
            found[TopicPartition(topic, partition)] = offset
    return found


def _new(found: Fields) -> StartAt | None:
    time_ms = found.number_or_null("new_time_ms", INT64_MIN)
    if found.value("new") is None and time_ms is None:
        return None
    try:
        return StartAt(found.member("new", StartPlace), time_ms)
    except ValueError as error:
        raise FieldError("new", "does not go with new_time_ms") from error


def _texts(name: str, values: Sequence[object]) -> tuple[str, ...]:
    found = tuple(each for each in values if isinstance(each, str) and each)
    if len(found) < len(values):
        raise FieldError(name, "is not a list of texts")
    return found


def _topic_ids(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not all(isinstance(ids, list) for ids in value.values()):
        raise FieldError("topic_ids", "is not an object of lists")
    return {topic: _texts("topic_ids", ids) for topic, ids in value.items()}


def _identity(value: object) -> IdentitySettings:
    found = Fields(value, "identity", frozenset(_IDENTITY))
    settings: dict[str, Any] = {name: found.text(name) for name in _IDENTITY if name != "unique_ids"}
    return IdentitySettings(**settings, unique_ids=found.flag("unique_ids"))


_IDENTITY = tuple(each.name for each in fields(IdentitySettings) if each.name != "registry")
"""The registry may have a login."""
_TEXTS = ("job", "cluster", "bootstrap_servers", "store", "store_id")
_FIELDS = frozenset(each.name for each in fields(Start)) | {"format", "new_time_ms"}
