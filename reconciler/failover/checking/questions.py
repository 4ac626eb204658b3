"""The questions of a check: what is searched for, one for each place at the destination.

The mirror's own pairs of offsets can locate a stored offset without an anchor. Such a number is in the numbering of the
cluster where its job lives. Where a group's own number is not known, the
number that MirrorMaker keeps of it at the destination serves, if a checkpoint names it: that is for the source's number
of the newest such checkpoint. If only an older checkpoint names it, it is for the number in that checkpoint, unless the
operator chose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.config.settings import Config, SearchSettings
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.question import Limits, NoAnchor, Question, StartAt, latest_possible_ms
from reconciler.failover.checking.gather import JobPartition, Key
from reconciler.ports import LogReader, Row

if TYPE_CHECKING:
    from reconciler.core.mirrored.pairs import MirrorEvidence
    from reconciler.kafka.mirror.reading import Known, OwnTopics, Wanted

TAIL_TOTAL = 200_000
"""Records read behind resume points to count replays, over all partitions of a run: about half a second's work."""
TAIL_LEAST = 100
NOTHING_READ = -1
"""The stored offset of a partition of which no record was processed (a sentinel)."""
OWN_COPY = "the checkpoint is a copy that was made for the destination, so its offsets are the destination's already"
NOT_SYNCED = "no checkpoint of the group names this offset, so MirrorMaker did not put it there"


def questions_of(
    config: Config, places: Sequence[JobPartition], cluster_id: str, reader: LogReader, now_ms: int
) -> dict[Key, Question]:
    """The question of every place that exists at the destination. Reads what the mirror recorded there."""
    jobs = {at.job.name: at.job for at in places}
    limits = {name: _limits(config.search_of(job), len(places)) for name, job in jobs.items()}
    mirror = _mirror_evidence(config, places, reader)
    return {
        at.key: _question_of(config, at, cluster_id, limits[at.job.name], now_ms, mirror.get(at.key))
        for at in places
        if at.exists
    }


def _limits(search: SearchSettings, partitions: int) -> Limits:
    tail = min(max(TAIL_LEAST, TAIL_TOTAL // max(partitions, 1)), search.scan_records)
    return Limits(search.max_disorder_ms, search.scan_records, tail)


def _question_of(
    config: Config,
    place: JobPartition,
    cluster_id: str,
    limits: Limits,
    now_ms: int,
    mirror: MirrorEvidence | None = None,
) -> Question:
    """The question that a search answers for one place. ``mirror``: what the mirror recorded of its stored offset."""
    row = place.selected.row
    stored = row.stored if row else None
    is_unanchored, new = place.is_unanchored, config.new_of(place.job)
    anchor = None if stored is None or is_unanchored else stored.anchor
    if stored is not None and stored.is_unread and not stored.is_sentinel and not place.own:
        # The job did have an offset, before every record: it must not be moved to where new partitions begin.
        stored, new = StoredOffset(NOTHING_READ), StartAt()
    elif stored is not None and is_unanchored:
        stored = replace(stored, anchor=None)
    elif stored is not None:  # when it was written decides nothing, and parts equal questions
        stored = StoredOffset(stored.offset, anchor)
    identity = place.job.identity
    if row is not None and anchor is not None and row.key != place.source and not place.translated:
        identity = replace(identity, source_value_of=None)  # its anchor's offset is not one of the source's numbers
    return Question(
        stored=stored,
        cluster_id=cluster_id,
        topic_id=place.topic_id,
        identity=identity,
        limits=limits,
        new=new,
        latest_ms=_too_late_for_ms(row, anchor, now_ms, limits),
        by_row_time=config.policy_of(place.job).no_anchor is NoAnchor.ROW_TIME,
        anchor_lag=0 if is_unanchored else place.anchor_lag,
        beyond=place.selected.again,
        hints=(anchor.offset,) if anchor is not None and anchor.offset is not None else (),
        compacted=place.compacted,
        no_rows=bool(place.no_rows)
        or ((stored is None or stored.is_unread) and not place.own and place.selected.ahead > 0),
        mirror=mirror,
    )


def _too_late_for_ms(row: Row | None, anchor: Anchor | None, now_ms: int, limits: Limits) -> int | None:
    """The latest time that the anchor can have, epoch ms; None if its own is not later."""
    if row is None or anchor is None or anchor.timestamp_ms is None:
        return None
    latest_ms = latest_possible_ms(row.stored, now_ms, limits.max_disorder_ms)
    return latest_ms if anchor.timestamp_ms > latest_ms else None


def _mirror_evidence(config: Config, places: Sequence[JobPartition], reader: LogReader) -> Mapping[Key, MirrorEvidence]:
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
