"""Numbers of a group that a mirror's group sync may have committed: those that its checkpoints name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.config.file import Config
from reconciler.kafka.mirror.reading import OwnTopics, Wanted, read_pairs
from reconciler.kafka.mirror.topics import checkpoints_topic
from reconciler.ports import LogReader, TopicPartition

NAMED = "MirrorMaker's checkpoint names this offset, so its group sync may have put it over the corrected one"
UNKNOWN = "MirrorMaker's group sync may have put this offset over the corrected one"


def of_any_mirror(
    numbers: Mapping[TopicPartition, int],
    groups: frozenset[str],
    reader: LogReader,
    mirrors: Iterable[tuple[str, ...]],
) -> dict[TopicPartition, str]:
    """Those of a group's numbers that a mirror may have committed, each with the reason.

    ``groups``: the group's names on all clusters. ``mirrors``: the names of each mirror's checkpoints, of which the
    first one that exists counts.
    """
    found: dict[TopicPartition, str] = {}
    for names in mirrors:
        found |= named_by_mirror(numbers, groups, reader, names)
    return found


def mirrors_to(cluster: str, config: Config) -> list[tuple[str, ...]]:
    """The names of the checkpoints of each mirror to ``cluster``, as ``of_any_mirror`` takes them."""
    marks = tuple(dict.fromkeys((config.topics.separator, ".")))
    named = () if config.mirror.checkpoints_topic is None else (config.mirror.checkpoints_topic,)
    others = [name for name in config.clusters if name != cluster]
    return [(*named, *(checkpoints_topic(alias, mark) for mark in marks)) for alias in others]


def named_by_mirror(
    numbers: Mapping[TopicPartition, int], groups: frozenset[str], reader: LogReader, names: tuple[str, ...]
) -> dict[TopicPartition, str]:
    """As ``of_any_mirror``, for the mirror whose checkpoints are in the first of these topics that exists."""
    wanted = {key: Wanted(key, key, None, groups) for key in numbers}
    known, found = read_pairs(reader, OwnTopics((), names), list(wanted.values())), dict[TopicPartition, str]()
    for key, number in numbers.items():
        checkpoints = [each for each in known.of(key, key).checkpoints if each.group in groups]
        if any(each.downstream == number for each in checkpoints):
            found[key] = NAMED
        elif doubt := known.doubt(wanted[key]):
            found[key] = f"{UNKNOWN}: {doubt}"
    return found
