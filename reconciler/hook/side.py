"""On which side a job starts: its rows, a mark or a person's word decide it. No hook changes the side by itself.

Theory of operation. A *word* (``hook --to``) or a *mark* (``failover start``) moves the job to the destination. Without
either, the rows tell where the job lives:

- S1  A row in the destination's own numbering, under the destination's name, shows that the job was handed over. It
      lives there, unless its row of the source's name was written later: then it has gone back. So it has if both sides
      have one name and another partition's row, in another numbering, was written later.
- S2  A job without such rows lives at its source. Neither cluster is contacted for that: the destination only where a
      row under a name of the destination has an anchor, or is in a copied checkpoint, and the job has not gone back
      since, because only the destination's cluster id tells whose numbering that is.
- S3  Where rows contradict each other, or rows without anchors could be of either cluster, only a person's word counts.
      So it is if the later one of a partition's two rows has no anchor. In a group that MirrorMaker keeps, a number
      without an anchor is the mirror's, and shows nothing, if a checkpoint of the group names it; else it may be the
      job's own.
- S4  ``--to source`` never takes a job back: its rows of the source are old by then. That is a failback.
- S5  A row under the destination's name in the numbering of a third cluster shows neither side: the destination was
      rebuilt, or the configuration names another one. Only an anchor of the same cluster in the row of the source's
      name shows that it is the source's.
- S6  Where both clusters report one id, topic ids tell whose a row is (``one_id``), or a person's word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, auto

from reconciler.config.file import Config, Job
from reconciler.config.settings import cluster_table
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated, Unreachable
from reconciler.core.policies import StartPlace
from reconciler.failover.gather import job_topics
from reconciler.failover.no_rows import no_rows
from reconciler.failover.outside import Outside
from reconciler.failover.selection import by_key, is_later_bare, is_unread, went_back, written_ms
from reconciler.formats.decimal_text import some
from reconciler.formats.start import Side
from reconciler.hook.marks import Mark
from reconciler.hook.one_id import tell_apart
from reconciler.ports import ClusterInfo, Malformed, Row, TopicPartition
from reconciler.stores.registry import traits

FAILBACK = "docs/how-to/failback.md"

log = logging.getLogger("reconciler.hook")


class Lives(Enum):
    """Where rows show that a job lives."""

    SOURCE = auto()
    DESTINATION = auto()
    BOTH = auto()
    """Some partitions have gone back to the source, or may have, and others have not."""
    ELSEWHERE = auto()
    """Rows under the destination's names are of a cluster that is neither the destination nor the source."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Held:
    """A job's rows. ``absent``: half a sentence on what was looked for, where the store holds none."""

    rows: Mapping[TopicPartition, Row]
    translated: bool = False
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The side on which a job starts, and why. ``held``: the rows that were read, for a start at the source."""

    side: Side
    why: str
    held: Held | None = None


def held_by(config: Config, job: Job, outside: Outside) -> Held:
    """The job's rows. Raises as stores do; a store that does not exist yet holds none."""
    try:
        with closing(outside.open_store(job.store)) as store:
            rows = by_key(store.read(job.group, job_topics(config, job)))
            absent = "" if rows else no_rows(store, job.group, *job.topics)
            return Held(rows, store.capabilities.translated_by_mirror, absent)
    except NotCreated as error:
        return Held({}, absent=error.message.rstrip("."))


def lives(held: Held, names: Mapping[str, str], cluster_id: str | None) -> Lives:
    """Where the rows show that the job lives. ``names``: the destination's name of each topic.

    ``cluster_id`` is the destination's; None if it was not asked, because no row needs it.
    """
    handed_over = returned = perhaps = elsewhere = unclear = False
    own_ms: list[int] = []
    others_ms: list[int] = []  # of the rows that both sides have under one name
    for ours, theirs in _pairs(held, names):
        if cluster_id is not None and _numbering(ours) == cluster_id:
            if theirs is not ours and went_back(ours, theirs):
                returned = True
            elif is_later_bare(theirs, ours):
                perhaps = True
            else:
                handed_over = True
                own_ms.append(written_ms(ours))
        elif held.translated or is_unread(ours.stored):
            continue
        elif _numbering(ours) is None:
            unclear = True
        elif theirs is not ours and not went_back(ours, theirs):
            perhaps = perhaps or is_later_bare(theirs, ours)
            is_third = theirs is None or _numbering(ours) != _numbering(theirs)
            elsewhere = elsewhere or (is_third and not is_later_bare(theirs, ours))
        elif theirs is ours:
            others_ms.append(written_ms(ours))
    # A failback wrote the latter later, and left a row of a partition that the source has not.
    returned = returned or (bool(own_ms and others_ms) and max(others_ms) > min(own_ms))
    if handed_over:
        return Lives.BOTH if returned or perhaps else Lives.DESTINATION
    if elsewhere:
        return Lives.ELSEWHERE
    return Lives.UNKNOWN if unclear or perhaps else Lives.SOURCE


def asks_for_cluster(held: Held, names: Mapping[str, str]) -> bool:
    """True if only the destination's cluster id tells whose numbering a row is in, and the job may live there."""
    return any(
        _numbering(ours) is not None and (theirs is ours or not went_back(ours, theirs))
        for ours, theirs in _pairs(held, names)
    )


def _pairs(held: Held, names: Mapping[str, str]) -> Iterator[tuple[Row, Row | None]]:
    """Each row of a name of the destination, with that of the source's name: the same one if both have one name."""
    topics = {name: topic for topic, name in names.items()}
    for key, row in held.rows.items():
        if key.topic in topics:
            yield row, held.rows.get(TopicPartition(topics[key.topic], key.partition))


def numberings(rows: Iterable[Row]) -> list[str]:
    """The clusters in whose numbering the rows are."""
    return sorted({found for row in rows if (found := _numbering(row)) is not None})


def _numbering(row: Row) -> str | None:
    """The cluster in whose numbering a row is: by its anchor, or by the word of its store (a copied checkpoint)."""
    if row.stored.cluster_id is None and row.numbering is not None:
        return row.numbering.cluster_id
    return row.stored.cluster_id


# ---------------------------------------------------------------- the choice


def choose(
    config: Config, job: Job, outside: Outside, *, word: Side | None, mark: Mark | None, is_copied: bool = False
) -> Chosen:
    """The side on which the job starts now.

    ``is_copied``: its checkpoint has a corrected copy. Raises ConfigError for a word that contradicts a mark,
    NeedsPerson where the rows do not allow a start or do not tell the side, Unreachable and Refused as stores do.
    """
    if word is Side.SOURCE and mark is not None:
        raise ConfigError(
            f'--to source contradicts the failover of job "{job.name}", which {mark.by} started at {mark.since}.',
            hint="Leave it out, or end the failover first: reconciler failover end.",
        )
    if mark is not None:
        return Chosen(Side.DESTINATION, f"{mark.by} started its failover at {mark.since}")
    if word is Side.DESTINATION:
        return Chosen(Side.DESTINATION, "--to destination")
    if is_copied:
        return _at_destination(job, word, "its checkpoint has a corrected copy")
    held, malformed = _sound(held_by(config, job, outside))
    names = {topic: config.topics.destination_of(topic) for topic in job.topics}
    told, cluster_id = held, None
    if (there := _described(config, job, held, names, outside, word)) is not None:
        cluster_id, sources = there.cluster_id, {name: topic for topic, name in names.items()}
        unclear = None if word is Side.SOURCE else job.name
        rows = tell_apart(held.rows, sources, there, outside.ask_source, unclear, translated=held.translated)
        told = replace(held, rows=rows)
    where = lives(told, names, cluster_id)
    if where is Lives.DESTINATION:
        return _at_destination(job, word, "its stored offsets are the destination's")
    if malformed is not None:
        raise NeedsPerson(malformed.message, hint=f"{malformed.hint} Then start the job again.")
    if where is Lives.BOTH:
        raise _both(job, told, names, cluster_id)
    if where is Lives.ELSEWHERE:
        raise _elsewhere(job, told, names)
    if where is Lives.UNKNOWN and word is None:
        raise _unknown(job, held, names)
    if held.translated and word is None:
        _refuse_unsynced(config, job, held, names, outside)
    by_rows = "its stored offsets are the source's" if held.rows else "it has no stored offset yet"
    return Chosen(Side.SOURCE, "--to source" if word else by_rows, held)


def _sound(held: Held) -> tuple[Held, Malformed | None]:
    """The rows that can be read, and the first that cannot: at the source a job would start without its offset."""
    bad = [row.malformed for row in held.rows.values() if row.malformed is not None]
    sound = {key: row for key, row in held.rows.items() if row.malformed is None}
    return replace(held, rows=sound), bad[0] if bad else None


def _both(job: Job, held: Held, names: Mapping[str, str], cluster_id: str | None) -> NeedsPerson:
    alone = sorted(
        ours.key
        for ours, theirs in _pairs(held, names)
        if theirs is None or (theirs is ours and cluster_id is not None and _numbering(ours) == cluster_id)
    )
    lost = (
        f" If the source has no partition for {some([str(key) for key in alone], 3)}, delete that row from the store."
        if alone
        else ""
    )
    return NeedsPerson(
        f'Some stored offsets of job "{job.name}" have gone back to the source, or may have, and others have not.',
        hint=f"Finish the failback, or the failover: run its plan and apply again ({FAILBACK}).{lost}",
    )


def _unknown(job: Job, held: Held, names: Mapping[str, str]) -> NeedsPerson:
    anchored = ((ours, theirs) for ours, theirs in _pairs(held, names) if ours.stored.anchor is not None)
    later = next((theirs for ours, theirs in anchored if is_later_bare(theirs, ours)), None)
    hint = "Say it: hook --to source, or hook --to destination."
    if later is None:
        return NeedsPerson(
            f'The stored offsets of job "{job.name}" have no anchors, and may be of either cluster: they do not tell '
            "on which side it is to start.",
            hint=hint,
        )
    return NeedsPerson(
        f'Job "{job.name}" has stored offsets under the names of the destination, and later ones under those of the '
        f"source without anchors (offset {later.stored.offset} of {later.key}): whether it has gone back is not clear.",
        hint=f"{hint} If it has gone back, delete the rows of {', '.join(sorted(names.values()))} from the store: then "
        "it starts at the source without a word.",
    )


def _refuse_unsynced(config: Config, job: Job, held: Held, names: Mapping[str, str], outside: Outside) -> None:
    """Raise NeedsPerson for a number without an anchor in a group at the destination that no mirror has put there.

    The commit of a consumer has no anchor: it also replaces one that a correction wrote.
    """
    bare = {ours.key: ours for ours, _ in _pairs(held, names) if ours.stored.anchor is None and ours.stored.offset > 0}
    if not bare:
        return
    from reconciler.failover.unanchored import own_topics
    from reconciler.mirror.reading import Wanted, read_pairs

    topics = {name: topic for topic, name in names.items()}
    wanted = {key: Wanted(TopicPartition(topics[key.topic], key.partition), key, None, job.group) for key in bare}
    reader = outside.patient(config.search)
    known = read_pairs(reader, replace(own_topics(config), offset_syncs=()), list(wanted.values()))
    for key, row in sorted(bare.items()):
        synced = {each.downstream for each in known.checkpoints.get(key, ()) if each.group == job.group}
        if row.stored.offset not in synced:
            note = known.doubt(wanted[key]) or known.note
            why = f" ({note})" if note else ""
            raise NeedsPerson(
                f"Group {job.group} has offset {row.stored.offset} of {key} at the destination, without an anchor, and "
                f'no checkpoint of the mirror names it{why}: job "{job.name}" may have stored it there itself.',
                hint="Say where it lives: hook --to source, or hook --to destination. Anchors would tell "
                "(docs/how-to/track-anchors.md).",
            )


def _elsewhere(job: Job, held: Held, names: Mapping[str, str]) -> NeedsPerson:
    rows = (row for key, row in held.rows.items() if key.topic in names.values())
    return NeedsPerson(
        f'Job "{job.name}" has stored offsets under the names that topics have at the destination, in the numbering of '
        f"{' and '.join(numberings(rows))}, which is another cluster: on which side the job lives is not clear.",
        hint="If [clusters] has the wrong address, correct it. If the destination was rebuilt, move the job to "
        f"the new one: hook --to destination; or take it to the source by a failback ({FAILBACK}).",
    )


def _at_destination(job: Job, word: Side | None, why: str) -> Chosen:
    if word is Side.SOURCE:
        back = (
            " If it has gone back already, delete the group's offsets at the destination"
            " (kafka-consumer-groups.sh --delete-offsets): they are of its stay there."
            if traits(job.store).holds_commits
            else ""
        )
        raise NeedsPerson(
            f'Job "{job.name}" lives at the destination: {why}. At the source it would repeat all its work since.',
            hint=f"Take it back by a failback ({FAILBACK}); or leave --to source out.{back}",
        )
    return Chosen(Side.DESTINATION, why)


def _described(
    config: Config, job: Job, held: Held, names: Mapping[str, str], outside: Outside, word: Side | None
) -> ClusterInfo | None:
    if not asks_for_cluster(held, names):
        return None
    try:
        return outside.patient(config.search).describe(sorted(names.values()))
    except Unreachable as error:
        if word is Side.SOURCE and all(topic == name for topic, name in names.items()):
            log.warning(
                "the destination could not tell whether the offsets of job %s are its own: %s The job itself compares "
                "them with the source before it reads.",
                job.name,
                error.message,
            )
            return None
        raise type(error)(
            f'{error.message} Only there it shows on which side job "{job.name}" is to start.', hint=error.hint
        ) from error


# ---------------------------------------------------------------- a start at the source


def offsets_at_source(config: Config, job: Job, held: Held, *, may_be_new: bool) -> dict[str, dict[str, int]]:
    """The offsets that the job has stored at the source, by topic and partition. Sentinels are left out.

    Raises ConfigError without the source's address, NeedsPerson where there is no row of the source's topics and the
    job is not called new, or where the rows are of several clusters.
    """
    if config.source is None:
        raise ConfigError(
            f'Job "{job.name}" starts at the source, and {cluster_table(config.here)} bootstrap_servers is missing.',
            hint="Add it. If the source is lost, move the job: reconciler failover start, or hook --to destination.",
        )
    rows = {key: row for key, row in held.rows.items() if key.topic in job.topics}
    if not may_be_new:
        refuse_without_rows(config, job, held)
    if len(clusters := numberings(rows.values())) > 1:
        raise NeedsPerson(
            f'The stored offsets of job "{job.name}" are in the numbering of several clusters: {", ".join(clusters)}.',
            hint="Look at them (reconciler anchors export), and correct those that are not the source's: after a "
            f"failback by running its plan and apply again ({FAILBACK}).",
        )
    if traits(job.store).holds_commits:
        return {}  # these rows are a mirror's: the job reads its own at the source
    found: dict[str, dict[str, int]] = {}
    for key in sorted(rows, key=lambda key: (key.topic, key.partition)):
        if not rows[key].stored.is_sentinel:
            found.setdefault(key.topic, {})[str(key.partition)] = rows[key].stored.offset
    return found


def refuse_without_rows(config: Config, job: Job, held: Held) -> None:
    """Raise NeedsPerson for a job without a row of its topics; for one topic without, if it would start at the latest.

    A topic that starts at the earliest skips nothing: it may have had no record until now. Rows at the destination are
    a mirror's: the job reads its own at the source.
    """
    if traits(job.store).holds_commits:
        return
    there = {key.topic for key in held.rows}
    lacking = [topic for topic in job.topics if topic not in there]
    if not lacking or (len(lacking) < len(job.topics) and config.new_of(job).place is StartPlace.EARLIEST):
        return
    of = "" if len(lacking) == len(job.topics) else f" of {', '.join(lacking)}"
    absent = held.absent or f"the store has rows of {', '.join(sorted(there))} alone"
    raise NeedsPerson(
        f'Job "{job.name}" has no stored offset{of}: {absent}.',
        hint="Correct the group or the store. If the job is new, start it once with --accept new, or write "
        'new = "earliest" in its [[jobs]] table until it has stored its first offsets.',
    )
