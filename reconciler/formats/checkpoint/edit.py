"""Replacing the offsets in a Structured Streaming checkpoint's files (see ``layout``), as bytes.

Only the lines of the named sources change. Every other byte stays, including unknown keys in the batch's metadata, line
breaks and the Kafka source's NUL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from reconciler.core.anchors import TopicPartition
from reconciler.formats import json_fields
from reconciler.formats.checkpoint.layout import Offsets, parse_initial, parse_offsets
from reconciler.formats.checkpoint.text import BREAK
from reconciler.formats.json_fields import FieldError


def offsets_text(offsets: Offsets, topics: Iterable[str] = ()) -> str:
    """Kafka's offsets as Spark writes them; ``topics`` come first, the others by name, partitions by number.

    Raises FieldError for a number that is not an offset: to Spark, -1 and -2 mean latest and earliest.
    """
    order = dict.fromkeys([*topics, *sorted({topic for topic, _ in offsets})])
    content: dict[str, dict[str, int]] = {topic: {} for topic in order}
    for (topic, partition), offset in sorted(offsets.items()):
        if not 0 <= offset <= json_fields.INT64_MAX:
            raise FieldError(str(TopicPartition(topic, partition)), f"would start at {offset}, which is not an offset")
        content[topic][str(partition)] = offset
    return json.dumps({topic: each for topic, each in content.items() if each}, separators=(",", ":"))


def entry_with(batch: int, data: bytes, texts: Mapping[str, str]) -> bytes:
    """``offsets/N`` with other offsets for the sources that ``texts`` names. Raises FieldError."""
    entry = parse_offsets(batch, data)
    parts = BREAK.split(data.decode())  # each line break stays as it is
    places = {source.name: 2 * place for place, source in enumerate(entry.sources, start=2)}
    for name, text in texts.items():
        if name not in places:
            raise FieldError(f"source {name}:", "is not in this entry")
        parts[places[name]] = text if entry.version == 1 else f"{name}:{text}"
    changed = "".join(parts).encode()
    parse_offsets(batch, changed)
    return changed


def initial_with(name: str, data: bytes, text: str) -> bytes:
    """``sources/NAME/0`` of a Kafka source with other offsets. Raises FieldError."""
    before = parse_initial(name, data)
    if before.kafka is None:
        raise FieldError(None, "holds no Kafka offsets")
    changed = b"\0v1\n" + text.encode()  # whatever Spark or person wrote the file: every Spark since 2.2 reads this
    parse_initial(name, changed)
    return changed
