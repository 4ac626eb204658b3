"""The manifest in a copy of a checkpoint, as far as it says whose numbers the copy's offsets are.

Written by ``checkpoints.clone``. ``anchors`` has the offsets at which the copy began, each with its anchor (since this
release). The [anchors] store may have none of them: a topic with one name on both clusters has the original's there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.checkpoint.layout import kafka_offsets
from reconciler.formats.json_fields import FieldError

MANIFEST = "_reconciler-clone.json"
"""A file in the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
BARRIER = b"This copy is not finished: do not start a query on it.\n"
"""The first line of the newest entry of a copy's offset log, while the copy is made."""


@dataclass(frozen=True, slots=True)
class CopiedOffsets:
    """The cluster for which the copy was made, when (RFC 3339), and the topics that it reads there.

    ``first``: the offsets at which it began that have an anchor here; of one that lags, the offset it was made for.
    """

    cluster_id: str
    made_at: str
    topics: frozenset[str]
    first: Mapping[TopicPartition, StoredOffset] = field(default_factory=lambda: MappingProxyType({}))


def anchors_field(first: Mapping[TopicPartition, StoredOffset]) -> list[dict[str, object]]:
    """The manifest's ``anchors``, without ids: anyone who reads the checkpoint can read it, and an id may be a name."""
    return [
        {"topic": key.topic, "partition": key.partition, **anchor_fields.dump_stored(_without_id(stored))}
        for key, stored in sorted(first.items())
    ]


def _without_id(stored: StoredOffset) -> StoredOffset:
    return stored if stored.anchor is None else replace(stored, anchor=replace(stored.anchor, id=None))


def parse_copied(text: str) -> CopiedOffsets | None:
    """What a manifest says; None for one that names no cluster. Raises FieldError."""
    made = json_fields.json_object(text)
    destination = made.get("destination")
    cluster = json_fields.string(destination, "cluster_id") if isinstance(destination, dict) else None
    if cluster is None:
        return None
    first = dict(_first(made.get("anchors")))
    topics = {key.topic for key in first} | set(_topics(made.get("changed"), made.get("kept")))
    made_at = json_fields.string(made, "created_at") or ""
    return CopiedOffsets(cluster, made_at, frozenset(topics), MappingProxyType(first))


def _first(anchors: object) -> Iterator[tuple[TopicPartition, StoredOffset]]:
    for each in anchors if isinstance(anchors, list) else ():
        if not isinstance(each, dict):
            raise FieldError("anchors", "has an entry that is not a JSON object")
        topic, partition = json_fields.string(each, "topic"), json_fields.integer(each, "partition", 0)
        stored = anchor_fields.load_stored(each)
        if topic is None or partition is None or stored is None:
            raise FieldError("anchors", "has an entry without a topic, a partition or an offset")
        yield TopicPartition(topic, partition), stored


def _topics(changed: object, kept: object) -> Iterator[str]:
    """The topics of the lines that were rewritten, without those of sources that stay at their cluster."""
    stay = kept if isinstance(kept, list) else []
    for edit in changed if isinstance(changed, list) else ():
        if not isinstance(edit, dict):
            continue
        before, after = (json_fields.string(edit, name) or "" for name in ("before", "after"))
        known = set(before.split("\n"))
        for number, line in enumerate(after.split("\n"), start=-2):  # two lines come before the sources'
            name, brace, offsets = line.partition("{")  # the source's name is there in version 2
            if line not in known and (name.removesuffix(":") or str(number)) not in stay:
                yield from {topic for topic, _ in kafka_offsets(brace + offsets) or ()}
