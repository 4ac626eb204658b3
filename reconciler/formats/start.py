"""One start of a job, format ``reconciler.start/1``: what the hook decided, for the process that it starts.

One JSON object with the fields of ``JobStart``, ``format``, and ``sha256`` over the canonical JSON of all else. It is
the same on both sides; a plan exists only at the destination.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.core.errors import ConfigError
from reconciler.core.policies import StartPlace
from reconciler.core.question import StartAt
from reconciler.formats.decimal_text import partition_of
from reconciler.formats.json_fields import INT64_MIN, FieldError, Fields, digest_without, integer, json_value

FORMAT = "reconciler.start/1"
_TEXTS = frozenset({"tool_version", "created_at", "job", "group", "side", "bootstrap_servers", "new", "correction"})
_FIELDS = _TEXTS | {"format", "cluster_id", "topics", "offsets", "new_time_ms", "may_be_new", "include_headers"}
_OPTIONAL = frozenset({"store", "sinks", "topic_ids", "expires_at", "rows_in"})

Offsets = Mapping[str, Mapping[str, int]]
"""Topic to partition (as text, as Spark's JSON has it) to the next offset to read."""


class Side(StrEnum):
    """The cluster that a job reads."""

    SOURCE = "source"
    DESTINATION = "destination"


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where a job starts, and with which options.

    ``topics`` are the names on this side. ``offsets``: at the destination, every partition's, from the plan; at the
    source, those that the job has stored, and ``new`` says where its other partitions start. ``may_be_new``: there may
    be no stored offset at all. ``cluster_id`` is the cluster in whose numbering the offsets are, None if unknown.
    ``correction`` is the time of the last correction of the job's offsets, as sortable text; empty without one.
    ``store`` is the address of a store that lives in the cluster itself: at the source, only the job can read it.
    ``sinks`` are the addresses of what the query writes to: compared with its checkpoint in the job, which knows that.
    ``topic_ids``: by topic, the ids of the topics whose numbers the offsets are, where their anchors tell.
    ``expires_at``: when the offsets are too old for a new query; empty: never. ``rows_in``: the address of the job's
    store, if that is files without a login, which the job compares with the offsets.
    """

    tool_version: str
    created_at: str
    job: str
    group: str
    side: Side
    bootstrap_servers: str
    cluster_id: str | None
    topics: tuple[str, ...]
    offsets: Offsets
    new: StartAt
    may_be_new: bool
    include_headers: bool
    correction: str = ""
    store: str | None = None
    sinks: tuple[str, ...] = ()
    topic_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expires_at: str = ""
    rows_in: str | None = None

    def to_text(self) -> str:
        content: dict[str, object] = {
            "format": FORMAT,
            "tool_version": self.tool_version,
            "created_at": self.created_at,
            "job": self.job,
            "group": self.group,
            "side": self.side.value,
            "bootstrap_servers": self.bootstrap_servers,
            "cluster_id": self.cluster_id,
            "topics": list(self.topics),
            "offsets": {topic: dict(of) for topic, of in self.offsets.items()},
            "new": self.new.place.value,
            "new_time_ms": self.new.timestamp_ms,
            "may_be_new": self.may_be_new,
            "include_headers": self.include_headers,
            "correction": self.correction,
            "store": self.store,
        }
        if self.sinks:
            content["sinks"] = list(self.sinks)
        if self.topic_ids:
            content["topic_ids"] = {topic: list(ids) for topic, ids in self.topic_ids.items()}
        content |= {"expires_at": self.expires_at} if self.expires_at else {}
        content |= {"rows_in": self.rows_in} if self.rows_in else {}
        return json.dumps(content | {"sha256": digest_without(content, "sha256")}, indent=1) + "\n"


def parse_start(text: str, place: str) -> JobStart:
    """The start in the file ``place``. Raises ConfigError for a text that is not one, or was altered."""
    try:
        value = json_value(text, fractions=False)
        fields = Fields(value, "", _FIELDS | {"sha256"}, _OPTIONAL)
        assert isinstance(value, dict)
        if fields.text("format") != FORMAT:
            raise FieldError("format", f"is not {FORMAT}")
        if fields.text("sha256") != digest_without(value, "sha256"):
            raise FieldError(None, "was altered")
        return JobStart(
            tool_version=fields.text("tool_version"),
            created_at=fields.text("created_at"),
            job=fields.text("job"),
            group=fields.text("group"),
            side=fields.member("side", Side),
            bootstrap_servers=fields.text("bootstrap_servers"),
            cluster_id=fields.text_or_null("cluster_id"),
            topics=_texts(fields, "topics", "names"),
            offsets=_offsets(fields.value("offsets")),
            new=_new(fields),
            may_be_new=fields.flag("may_be_new"),
            include_headers=fields.flag("include_headers"),
            correction=fields.any_text("correction"),
            store=fields.text_or_null("store"),
            sinks=_texts(fields, "sinks", "addresses") if "sinks" in value else (),
            topic_ids=_topic_ids(fields.value("topic_ids")) if "topic_ids" in value else {},
            expires_at=fields.text("expires_at") if "expires_at" in value else "",
            rows_in=fields.text("rows_in") if "rows_in" in value else None,
        )
    except FieldError as error:
        raise ConfigError(
            f"{place} is not what the hook wrote: {error.sentence}.", hint="Start the job by `reconciler hook` again."
        ) from error


def _new(fields: Fields) -> StartAt:
    place, time_ms = fields.member("new", StartPlace), fields.number_or_null("new_time_ms", INT64_MIN)
    try:
        return StartAt(place, time_ms)
    except ValueError as error:
        raise FieldError("new", "does not go with new_time_ms") from error


def _texts(fields: Fields, name: str, what: str) -> tuple[str, ...]:
    texts = tuple(each for each in fields.items(name) if isinstance(each, str) and each)
    if len(texts) < len(fields.items(name)):
        raise FieldError(name, f"is not a list of {what}")
    return texts


def _topic_ids(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise FieldError("topic_ids", "is not an object of topics")
    for ids in value.values():
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise FieldError("topic_ids", "holds what is no list of ids")
    return {topic: tuple(ids) for topic, ids in value.items()}


def _offsets(value: object) -> dict[str, dict[str, int]]:
    if not isinstance(value, dict):
        raise FieldError("offsets", "is not an object of topics")
    found: dict[str, dict[str, int]] = {}
    for topic, partitions in value.items():
        if not topic or not isinstance(partitions, dict):
            raise FieldError("offsets", "is not an object of topics and partitions")
        for number in partitions:
            if partition_of(number) is None or integer(partitions, number, 0) is None:
                raise FieldError("offsets", "holds what is no partition's offset")
        found[topic] = dict(partitions)
    return found
