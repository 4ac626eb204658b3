"""The offsets that a restart reads, place by place: file, source and position. Nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import TopicPartition
from reconciler.core.verdicts import Position
from reconciler.formats.checkpoint.layout import (
    END,
    NEXT,
    START,
    Checkpoint,
    OffsetEntry,
    Offsets,
    SourceOffset,
    began,
)
from reconciler.formats.checkpoint.text import UnusableError

_MEANING = {-1: "Spark takes it for the latest record", -2: "Spark takes it for the earliest record"}


@dataclass(frozen=True, slots=True)
class Reading:
    """One source's offsets in a file that a restart reads.

    ``name`` is the source's name in that file, ``source`` the one in the newest entry of the offset log.
    """

    file: str
    name: str
    source: str
    text: str
    kafka: Offsets | None
    position: Position


def readings(found: Checkpoint) -> tuple[Reading, ...]:
    """All places from which a restart reads offsets. Sources that have not begun have none."""
    if found.last is None:
        return tuple(_initial_reading(name, name, each, NEXT) for name, each in sorted(found.initial.items()))
    read: list[Reading] = []
    for each in found.last.sources:
        if found.committed and not each.is_void:
            read.append(_entry_reading(found.last, each, each.name, NEXT))
        elif (earlier := _earlier(each, found)) is not None and found.before is not None:
            read.append(_entry_reading(found.before, earlier, each.name, START))
        elif (first := began(each, found.initial)) is not None:
            read.append(_initial_reading(first.name, each.name, first, NEXT if found.committed else START))
        if not found.committed and not each.is_void:
            read.append(_entry_reading(found.last, each, each.name, END))
    return tuple(read)


def _earlier(source: SourceOffset, found: Checkpoint) -> SourceOffset | None:
    earlier = found.before.source(source.name) if found.before is not None and not found.committed else None
    return None if earlier is None or earlier.is_void else earlier


def _entry_reading(entry: OffsetEntry, each: SourceOffset, source: str, position: Position) -> Reading:
    return Reading(f"offsets/{entry.batch}", each.name, source, each.text, each.kafka, position)


def _initial_reading(name: str, source: str, each: SourceOffset, position: Position) -> Reading:
    return Reading(f"sources/{name}/0", name, source, each.text, each.kafka, position)


def refuse_unusable(found: Checkpoint) -> None:
    """Raise UnusableError for a number that is no offset where a restart reads one."""
    for each in readings(found):
        for (topic, partition), offset in (each.kafka or {}).items():
            if offset < 0:
                raise UnusableError(
                    each.file,
                    f"has {offset} for {TopicPartition(topic, partition)}, which is no offset: "
                    + _MEANING.get(offset, "Spark cannot read from there"),
                    "Write the offset of the next record to read in its place, or begin a new checkpoint.",
                )
