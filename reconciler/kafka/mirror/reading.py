"""Reading the pairs of offsets in MirrorMaker 2's own topics at the destination.

Both topics are read backwards from their ends, since a stored offset is near the newest pairs: at least ``LEAST`` of
their records, and on until every partition in question has a pair before its offset (of its group, if one is asked
for), or ``MOST`` were read. A topic that cannot be read is not an error: its pairs are unknown, and ``Known.note`` says
why.

The checkpoints also show which numbers of a group a mirror's group sync may have committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from reconciler.config.file import Config
from reconciler.core.anchors import Record
from reconciler.core.errors import NotRead, Refused, Unreachable
from reconciler.core.mirrored.pairs import MirrorCheckpoint, Pairs, Sync
from reconciler.kafka.mirror.records import CHUNK, UnreadableRecord, between, read_checkpoint, read_sync
from reconciler.kafka.mirror.topics import checkpoints_topic
from reconciler.ports import LogReader, TopicPartition

LEAST = 200_000
MOST = 1_000_000
HEARTBEATS = "heartbeats"
"""Names of topics that every mirror copies, and whose copies may be deleted or left out."""

P = TypeVar("P", Sync, MirrorCheckpoint)


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The names of MirrorMaker's own topics: each is the first of its names that exists. ``offsets`` are its worker's.

    ``is_one_way``: the operator states that the offset syncs are of the mirror to this cluster only. A mirror from here
    to that source keeps its own under the same name, unless its ``offset-syncs.topic.location`` is ``target``.
    """

    offset_syncs: tuple[str, ...]
    checkpoints: tuple[str, ...]
    heartbeats: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    is_one_way: bool = False
    other_checkpoints: tuple[str, ...] = ()
    """Names with other separators, which are only reported."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition whose pairs are wanted, by its name on both clusters, and the source's offset that they are for.

    ``offset`` None: it is not known yet, and one checkpoint of any offset will do. ``groups``: only a checkpoint of a
    group of such a name will do. Many of others may follow its last one: MirrorMaker writes no new one for an idle one.
    """

    source: TopicPartition
    destination: TopicPartition
    offset: int | None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Known:
    """The pairs that were read: syncs by the source's partition, checkpoints by the destination's.

    ``delivered``: the source's offsets that Connect committed, by the source's partition. ``is_one_way`` as in
    ``OwnTopics``. ``is_whole`` is False where checkpoints that may exist were not read, or not understood.
    ``unreached``: of these only older checkpoints than the newest ``MOST`` may tell.
    """

    syncs: Mapping[TopicPartition, Sequence[Sync]] = field(default_factory=dict)
    checkpoints: Mapping[TopicPartition, Sequence[MirrorCheckpoint]] = field(default_factory=dict)
    note: str = ""
    delivered: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_one_way: bool = False
    is_whole: bool = True
    unreached: frozenset[Wanted] = frozenset()
    misnamed: str = ""
    """How the checkpoints, or their topic, are named otherwise than the configuration says."""

    def doubt(self, wanted: Wanted) -> str:
        """Why there may be checkpoints of the partition and group that were not read; empty: there are no others."""
        if not self.is_whole:
            return self.note
        if wanted not in self.unreached:
            return ""
        whose = f"group {' or '.join(sorted(wanted.groups))}" if wanted.groups else "any group"
        return (
            f"none of the newest {MOST:,} records of MirrorMaker's checkpoints is of {whose} and this partition, and "
            "older ones were not read"
        )

    def of(self, source: TopicPartition, destination: TopicPartition) -> Pairs:
        syncs, checkpoints = tuple(self.syncs.get(source, ())), tuple(self.checkpoints.get(destination, ()))
        return Pairs(syncs, checkpoints, self.delivered.get(source), self.is_one_way)


def read_pairs(reader: LogReader, topics: OwnTopics, wanted: Sequence[Wanted]) -> Known:
    """Read the mirror's records about these partitions."""
    by_source: dict[TopicPartition, list[Wanted]] = {}
    by_destination: dict[TopicPartition, list[Wanted]] = {}
    for each in wanted:
        by_source.setdefault(each.source, []).append(replace(each, groups=frozenset()))  # a sync is of all groups
        by_destination.setdefault(each.destination, []).append(each)
    syncs = _Pairs[Sync](read_sync, by_source)
    checkpoints = _Pairs[MirrorCheckpoint](read_checkpoint, by_destination)
    notes = {}
    if topics.offset_syncs:
        notes[topics.offset_syncs[0]] = _read(reader, topics.offset_syncs, syncs)
    if topics.checkpoints:
        notes[topics.checkpoints[0]] = _read(reader, topics.checkpoints, checkpoints)
    if topics.checkpoints and notes[topics.checkpoints[0]] is None:
        misnamed = _elsewhere(reader, topics)
    else:
        misnamed = _misnamed(reader, checkpoints.topics, wanted) if not checkpoints.is_cut else ""
    missing = [f'"{name}"' for name, note in notes.items() if note is None]
    reasons = [note for note in (misnamed, *notes.values()) if note]
    is_whole = not (topics.checkpoints and notes[topics.checkpoints[0]])
    if len(missing) == len(notes):
        reasons.append(f"the mirror left no offsets here (no topic {' or '.join(missing)})")
    elif missing:
        reasons.append(f"there is no topic {missing[0]}")
    found = syncs.found()
    wanted_topics = {place.topic for place in found}
    doubtful = set() if topics.is_one_way else _own_topics(reader, wanted_topics, syncs.topics, wanted)
    if doubtful:
        reasons.append(
            f'offset syncs are left out: this cluster has a topic "{min(doubtful)}" of its own, so they may be of a '
            "mirror from here. If they are not, name their topic: [mirror] offset_syncs_topic"
        )
    if doubtful - wanted_topics:  # another mirror writes there
        doubtful |= wanted_topics
    kept = {place: pairs for place, pairs in found.items() if place.topic not in doubtful}
    note = "; ".join(reasons)
    return Known(
        kept,
        checkpoints.found(),
        note,
        is_one_way=topics.is_one_way,
        is_whole=is_whole,
        unreached=frozenset(checkpoints.lacking if checkpoints.is_cut else ()),
        misnamed=misnamed,
    )


def _misnamed(reader: LogReader, named: set[str], wanted: Sequence[Wanted]) -> str:
    """Each connector of MirrorMaker is told its naming policy, so checkpoints may be of names that no topic has."""
    for source, there in sorted({(each.source.topic, each.destination.topic) for each in wanted}):
        end = re.compile(rf"(?:.*[^A-Za-z0-9])?{re.escape(source)}")
        others = [name for name in sorted(named - {there}) if end.fullmatch(name)]
        if there in named or not others:
            continue
        here = _existing(reader, others[:1])
        absent = ", which is not here" if here == [] else ""
        return (
            f'the checkpoints name "{others[0]}"{absent}, where [topics] gives "{there}": correct [topics], or give '
            "MirrorMaker's checkpoint connector the source connector's replication.policy.class and separator"
        )
    return ""


def _elsewhere(reader: LogReader, topics: OwnTopics) -> str:
    """The checkpoints' topic is named by the separator of its own connector."""
    if not topics.checkpoints or not (here := _existing(reader, topics.other_checkpoints)):
        return ""
    return (
        f'the checkpoints are in "{here[0]}", where [topics] separator gives "{topics.checkpoints[0]}": correct it, or '
        "give MirrorMaker's checkpoint connector the source connector's replication.policy.separator"
    )


def _existing(reader: LogReader, names: Sequence[str]) -> list[str] | None:
    """The topics that exist; None if they cannot be looked up."""
    try:
        return sorted(reader.describe(names).topics) if names else []
    except (NotRead, Refused, Unreachable):
        return None


def _own_topics(reader: LogReader, names: set[str], others: set[str], wanted: Sequence[Wanted]) -> set[str]:
    """Those of the source's topics that exist here under the same name: a mirror from here may copy them.

    Of topics that are not wanted, only the ones that no mirror to this cluster copies: a mirror from here does.
    """
    if not names:
        return set()
    prefixes = {each.destination.topic.removesuffix(each.source.topic) for each in wanted}
    copies = {name: {prefix + name for prefix in prefixes} for name in others - names if not name.endswith(HEARTBEATS)}
    asked = {*names, *copies, *(copy for each in copies.values() for copy in each)} if "" not in prefixes else names
    here = set(reader.describe(tuple(sorted(asked))).topics)
    return {name for name in here if name in names or (name in copies and not copies[name] & here)}


class _Pairs(Generic[P]):
    """Collects the pairs of the wanted partitions, the newest chunk first."""

    def __init__(
        self,
        decode: Callable[[Record], tuple[TopicPartition, P] | None],
        wanted: Mapping[TopicPartition, Sequence[Wanted]],
    ) -> None:
        self._decode: Callable[[Record], tuple[TopicPartition, P] | None] = decode
        self._wanted = wanted
        self._parts: dict[TopicPartition, list[list[P]]] = {}
        self.lacking = {each for asked in wanted.values() for each in asked}
        self.is_cut = False
        """True if older records were left unread."""
        self.unreadable = 0
        self.topics: set[str] = set()

    def add(self, records: Sequence[Record]) -> None:
        """Add records that lie before all that were added so far."""
        here: dict[TopicPartition, list[P]] = {}
        for record in records:
            try:
                decoded = self._decode(record)
            except UnreadableRecord:
                self.unreadable += 1
                continue
            if decoded is not None:
                self.topics.add(decoded[0].topic)
            if decoded is not None and decoded[0] in self._wanted:
                here.setdefault(decoded[0], []).append(decoded[1])
        for place, pairs in here.items():
            self._parts.setdefault(place, []).append(pairs)
            least = _least(pairs)
            self.lacking -= {
                each
                for each in self._wanted[place]
                if any(
                    name in least and (each.offset is None or least[name] < each.offset)
                    for name in each.groups or (None,)
                )
            }

    def found(self) -> dict[TopicPartition, list[P]]:
        """The pairs in the order of the topic."""
        return {place: [pair for part in reversed(parts) for pair in part] for place, parts in self._parts.items()}


def _least(pairs: Sequence[Sync | MirrorCheckpoint]) -> dict[str | None, int]:
    """The source's smallest number in them: of all (None), and of each group."""
    least: dict[str | None, int] = {None: min(pair.upstream for pair in pairs)}
    for pair in pairs:
        if isinstance(pair, MirrorCheckpoint):
            least[pair.group] = min(pair.upstream, least.get(pair.group, pair.upstream))
    return least


def _read(reader: LogReader, names: Sequence[str], pairs: _Pairs[P]) -> str | None:
    """Read the first existing topic into ``pairs``. Returns a remark for the operator; None if none exists."""
    for name in names:
        try:
            info = reader.describe((name,)).topics.get(name)
            if info is None:
                continue
            read = 0
            for place, begin, end in _backwards(reader, info.places):
                if read >= (MOST if pairs.lacking else LEAST):
                    pairs.is_cut = True
                    break
                records = list(between(reader, place, begin, end))
                pairs.add(records)
                read += len(records)
        except (NotRead, Refused, Unreachable) as error:
            return f'"{name}" could not be read: {error.message.rstrip(".")}'
        count = pairs.unreadable
        return f'{count:,} records of "{name}" are not of a known format' if count else ""
    return None


def _backwards(reader: LogReader, partitions: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, int, int]]:
    """The ranges of each partition, from its end to its start. MirrorMaker's topics have one partition."""
    starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
    for place in partitions:
        end, width = ends[place], CHUNK
        while end > starts[place]:
            begin = max(starts[place], end - width)
            yield place, begin, end
            end, width = begin, width * 2


NAMED = "MirrorMaker's checkpoint names this offset, so its group sync may have put it over the corrected one"
UNKNOWN = "MirrorMaker's group sync may have put this offset over the corrected one"


def of_any_mirror(
    numbers: Mapping[TopicPartition, int | None],
    groups: frozenset[str],
    reader: LogReader,
    mirrors: Iterable[tuple[str, ...]],
) -> dict[TopicPartition, str]:
    """Those of a group's numbers that a mirror may have committed, each with the reason.

    A number None is any: it counts as the mirror's if the mirror has a checkpoint of the partition.
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
    numbers: Mapping[TopicPartition, int | None], groups: frozenset[str], reader: LogReader, names: tuple[str, ...]
) -> dict[TopicPartition, str]:
    """As ``of_any_mirror``, for the mirror whose checkpoints are in the first of these topics that exists."""
    wanted = {key: Wanted(key, key, None, groups) for key in numbers}
    known, found = read_pairs(reader, OwnTopics((), names), list(wanted.values())), dict[TopicPartition, str]()
    for key, number in numbers.items():
        checkpoints = [each for each in known.of(key, key).checkpoints if each.group in groups]
        if any(number in (None, each.downstream) for each in checkpoints):
            found[key] = NAMED
        elif doubt := known.doubt(wanted[key]):
            found[key] = f"{UNKNOWN}: {doubt}"
    return found
