"""Stored offsets without an anchor, and the mirror's own pairs of offsets that can locate them.

Such a number is in the numbering of the cluster where its job lives. Where a group's own number is not known, the
number that MirrorMaker keeps of it at the destination serves, if a checkpoint names it: that is for the source's number
of the newest such checkpoint. If only an older checkpoint names it, it is for the number in that checkpoint, unless the
operator chose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.config.settings import Config
from reconciler.core.question import NoAnchor
from reconciler.failover.gather import JobPartition, Key
from reconciler.ports import LogReader

if TYPE_CHECKING:
    from reconciler.core.mirrored.pairs import MirrorEvidence
    from reconciler.kafka.mirror.reading import Known, OwnTopics, Wanted

OWN_COPY = "the checkpoint is a copy that was made for the destination, so its offsets are the destination's already"
NOT_SYNCED = "no checkpoint of the group names this offset, so MirrorMaker did not put it there"


def mirror_evidence(config: Config, places: Sequence[JobPartition], reader: LogReader) -> Mapping[Key, MirrorEvidence]:
    """The evidence for every place whose stored offset has no anchor. Its note names a topic that cannot be read."""
    bare = [(at, offset) for at in places if at.exists and (offset := _bare_offset(at)) is not None]
    stopped = {at.job.name for at, _ in bare if config.policy_of(at.job).no_anchor is NoAnchor.STOP}
    bare = [each for each in bare if each[0].job.name not in stopped or _carries_number(each[0])]
    if not bare:
        return {}
    from reconciler.kafka.mirror.reading import Known, read_pairs

    asked = [(at, offset) for at, offset in bare if not (at.job.name in stopped or at.numbered_here)]
    known = Known()
    if asked:
        wanted = [_wanted(at, offset) for at, offset in asked]
        known = with_positions(config, read_pairs(reader, own_topics(config), wanted), reader)
    return {at.key: _evidence(at, offset, known) for at, offset in bare}


def _carries_number(at: JobPartition) -> bool:
    """True if its records carry the source's number themselves: that is no pair of the mirror's."""
    return at.job.identity.source_value_of is not None and not at.translated


def _wanted(at: JobPartition, offset: int) -> Wanted:
    """The pairs to read for a place. Only checkpoints know the source's number of a translated one."""
    from reconciler.kafka.mirror.reading import Wanted

    if at.translated:
        return Wanted(at.source, at.destination, None, at.job.group_names)
    return Wanted(at.source, at.destination, offset)


def with_positions(config: Config, known: Known, reader: LogReader) -> Known:
    """``known`` with the positions that Connect committed, if they may show whose the offset syncs are."""
    from reconciler.kafka.mirror.records import read_positions

    alias = config.topics.alias
    if not known.syncs or known.is_one_way:
        return known
    return replace(known, delivered=read_positions(reader, alias, own_topics(config).offsets).delivered)


def own_topics(config: Config) -> OwnTopics:
    """MirrorMaker's own topics here, as configured; else by the names that it gives them."""
    from reconciler.kafka.mirror.reading import OwnTopics
    from reconciler.kafka.mirror.records import usual_topics
    from reconciler.kafka.mirror.topics import USUAL_SEPARATORS, checkpoints_topic, own_names

    alias, marks = config.topics.alias, dict.fromkeys((config.topics.separator, "."))
    usual = [own_names(alias, mark) for mark in marks]
    others = tuple(checkpoints_topic(alias, mark) for mark in USUAL_SEPARATORS if mark not in marks)
    named = config.mirror

    def names(key: str) -> tuple[str, ...]:
        return (getattr(named, key),) if getattr(named, key) else tuple(getattr(each, key) for each in usual)

    return OwnTopics(
        names("offset_syncs_topic"),
        names("checkpoints_topic"),
        _heartbeats(config, marks),
        (named.offsets_topic,) if named.offsets_topic else usual_topics(alias),
        is_one_way=named.offset_syncs_topic is not None,
        other_checkpoints=() if named.checkpoints_topic else others,
    )


def _heartbeats(config: Config, marks: Iterable[str]) -> tuple[str, ...]:
    """The source's heartbeats, mirrored: by MirrorMaker's own policies, which both add the alias, or by a template."""
    rule = config.topics.template
    by_alias = [f"{config.topics.alias}{mark}heartbeats" for mark in marks]
    return (*by_alias, *([rule.name_of("heartbeats")] if rule is not None else []))


def _bare_offset(at: JobPartition) -> int | None:
    """The stored offset, if it has no anchor."""
    stored = at.selected.stored
    if at.fault or stored is None or not at.is_unanchored or stored.is_sentinel:
        return None
    return stored.offset


def _evidence(at: JobPartition, offset: int, known: Known) -> MirrorEvidence:
    from reconciler.core.mirrored.pairs import MirrorEvidence, evidence_for

    pairs = known.of(at.source, at.destination)
    if at.numbered_here:
        return MirrorEvidence(offset, note=OWN_COPY, is_of_source=False)
    one_name = at.source.topic == at.destination.topic
    if not at.translated:
        return evidence_for(offset, pairs, local_writers=one_name, note=known.note)
    row = at.selected.row
    checkpoints = [each for each in pairs.checkpoints if each.group in at.job.group_names]
    named = [each for each in checkpoints if each.downstream == offset]
    if row is None or row.key != at.destination or not named:
        note = known.doubt(_wanted(at, offset)) or "; ".join(filter(None, (NOT_SYNCED, known.note)))
        return MirrorEvidence(offset, note=note, is_of_source=False)
    newest = checkpoints[-1]
    # A number that only older checkpoints name may be one that the operator chose: then nothing behind it is safe.
    own = None if newest.downstream == offset else offset
    upstream = min(newest.upstream, named[-1].upstream)
    return evidence_for(upstream, pairs, own=own, local_writers=one_name, note=known.note)
