"""The mirror's own state and offsets, compared with the findings of the jobs' checks. Reads only.

- The offset that MirrorMaker itself would hand out for a job's partition comes from a checkpoint of its group, or from
  a group that it syncs. A job moves on, and so do its checkpoints: only one that is for no later offset than the stored
  one is compared with it. A number under the destination's name, in a group that MirrorMaker keeps, is MirrorMaker's if
  a checkpoint names it.
- A failover that the jobs have not prepared has bare offsets alone. Each is searched for twice, with MirrorMaker's
  offset syncs and by its checkpoints alone: the difference is what ``offset-syncs.topic.location = target`` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Names, StoredOffset
from reconciler.core.errors import ExitCode, NotRead, ReconcilerError, Refused, Unreachable, worst
from reconciler.core.mirror_pairs import MirrorCheckpoint, evidence_for
from reconciler.core.question import Limits
from reconciler.core.reconcile import reconcile
from reconciler.core.text import counted, some
from reconciler.core.verdicts import Finding, Position, Verdict
from reconciler.failover.apart import check_each
from reconciler.failover.check import Checked
from reconciler.failover.gather import GatheredJob, JobPartition, Key, question_of
from reconciler.failover.numbers import Selected
from reconciler.failover.outside import Outside
from reconciler.failover.unanchored import own_topics
from reconciler.kafka.engine import EngineSettings, Inquiry
from reconciler.kafka.mirror.account import (
    GroupAccount,
    PartitionAccount,
    Setting,
    group_accounts,
    partition_account,
    settings,
)
from reconciler.kafka.mirror.grade import Grade, grade_request, grades, newest_ms, own_offset
from reconciler.kafka.mirror.reading import Known, Wanted, read_pairs
from reconciler.kafka.mirror.records import Heartbeats, read_positions
from reconciler.ports import LogReader, Row, TopicPartition

MOST_TOLD = 3
"""Partitions of a job that comes back which are named."""
MOST_GROUPS = 20
"""Groups whose own offsets are asked for, those of jobs first: each costs a client."""

GroupReader = Callable[[str, Sequence[str]], Sequence[Row]]
"""The offsets that a group of the destination has in these topics."""


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """``heartbeat_ms``: when the newest heartbeat was sent. ``grades``: by group and partition, for the jobs' groups.

    ``with_syncs`` and ``by_checkpoints``: what the jobs' numbers alone would give; ``unknown`` places have no number of
    the source. ``missing``: partitions of stored offsets that the destination does not have. ``notes`` say what is not
    here, or could not be read. ``failed``: jobs that could not be checked.
    """

    made_ms: int
    cluster_id: str
    partitions: tuple[PartitionAccount, ...]
    groups: tuple[GroupAccount, ...]
    grades: Mapping[tuple[str, TopicPartition], Grade]
    heartbeat_ms: int | None
    settings: tuple[Setting, ...]
    with_syncs: Tally
    by_checkpoints: Tally
    unknown: int
    empty: frozenset[TopicPartition] = frozenset()
    missing: tuple[TopicPartition, ...] = ()
    notes: tuple[str, ...] = ()
    failed: Mapping[str, ReconcilerError] = field(default_factory=dict)

    @property
    def first(self) -> Setting | None:
        """The one property to set first."""
        return next((each for each in self.settings if not each.is_as_wanted), None)

    @property
    def without_evidence(self) -> list[PartitionAccount]:
        """Partitions with records, of which the mirror recorded nothing here."""
        known = {group.partition for group in self.groups}
        return [
            each
            for each in self.partitions
            if not each.syncs and each.destination not in known and each.destination not in self.empty
        ]

    @property
    def exit_code(self) -> ExitCode:
        """4 where a job without anchors could not fail over without a decision, else 0; or a job's that failed."""
        lacks = not self.partitions or self.missing or self.without_evidence or self.with_syncs.unresolved
        own = ExitCode.NEEDS_PERSON if lacks else ExitCode.OK
        return worst([own, *(error.exit_code for error in self.failed.values())])


def report(config: Config, jobs: Sequence[Job], outside: Outside, read_group: GroupReader) -> MirrorReport:
    """Check the jobs, and read what the mirror recorded of their topics.

    Raises Unreachable and Refused for the destination. The notes name topics of the mirror that cannot be read.
    """
    checked = check_each(config, jobs, outside)
    reader = outside.patient(config.search)
    places = {at.destination: at.source for job in checked.jobs for at in job.places if at.exists}
    missing = tuple(sorted({at.destination for job in checked.jobs for at in job.places if not at.exists}))
    own = own_topics(config)
    known = read_pairs(reader, own, [Wanted(source, there, None) for there, source in places.items()])
    notes = [*_ways_back(checked), _missing_words(missing), known.note]
    read = read_positions(reader, config.topics.alias, own.offsets)
    positions = read.delivered
    notes.append(read.why_none)
    known = replace(known, delivered=positions)
    ends = reader.log_ends(list(places)) if places else {}
    starts = reader.log_starts(list(places)) if places else {}
    newest = newest_ms(reader, list(places))
    partitions = [
        partition_account(source, there, known.syncs.get(source, ()), positions.get(source), newest.get(there))
        for there, source in sorted(places.items(), key=lambda item: (item[0].topic, item[0].partition))
    ]
    heartbeat_ms, note = _heartbeat(reader, own.heartbeats, outside.now_ms())
    notes.append(note)
    synced, note = _synced(known, {name: job.group for job in jobs for name in job.group_names}, read_group)
    notes.append(note)
    groups = group_accounts(known.checkpoints, ends, synced or {})
    bare = find_unprepared(config, checked.jobs, known, outside, checked.plan.cluster_id)
    notes += _unproven(bare)
    asked = settings(partitions, groups, heartbeat=heartbeat_ms is not None, asked_groups=synced is not None)
    return MirrorReport(
        made_ms=outside.now_ms(),
        cluster_id=checked.plan.cluster_id,
        partitions=tuple(partitions),
        groups=tuple(groups),
        grades=_grades(checked, known, reader),
        heartbeat_ms=heartbeat_ms,
        settings=tuple(asked),
        with_syncs=Tally.of(list(bare.with_syncs.values())),
        by_checkpoints=Tally.of(list(bare.by_checkpoints.values())),
        unknown=len(bare.unknown),
        empty=frozenset(place for place in places if ends[place] <= starts[place]),
        missing=missing,
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        failed=checked.failed,
    )


def _unproven(found: UnpreparedFindings) -> list[str]:
    """Why the mirror's records prove nothing, as ``check`` says it; without records the tally says enough."""
    details = (each.detail for each in found.with_syncs.values() if each.resume_offset is None)
    return list(dict.fromkeys(each for each in details if not each.startswith("stored without an anchor")))[:3]


def _ways_back(checked: Checked) -> list[str]:
    """The findings that are not exact of jobs that have lived at the destination before, as sentences."""
    back = {each.job.name for each in checked.jobs if each.job.left}
    found = []
    for job in (each for each in checked.plan.jobs if each.name in back):
        early = [row for row in job.partitions if row.finding is not Verdict.EXACT]
        for row in early[:MOST_TOLD]:
            found.append(f"job {job.name} comes back to {row.key} {row.finding.value}: {row.detail}")
        if len(early) > MOST_TOLD:
            found.append(
                f"job {job.name} comes back so to {len(early) - MOST_TOLD:,} more partitions (move shows them)"
            )
    return found


def _missing_words(missing: Sequence[TopicPartition]) -> str:
    if not missing:
        return ""
    names = some([str(place) for place in missing], 3)
    return f"offsets are stored for {counted(len(missing), 'partition')} that the destination does not have: {names}"


def _heartbeat(reader: LogReader, names: Sequence[str], now_ms: int) -> tuple[int | None, str]:
    heartbeats = Heartbeats(names)
    try:
        heartbeats.read(reader, now_ms)
    except (NotRead, Refused, Unreachable) as error:
        return None, f"heartbeats could not be read: {error.message.rstrip('.')}"
    if heartbeats.newest_ms is None:
        return None, f'no heartbeat is known (topic "{names[0]}")' if names else "no heartbeat is known"
    return heartbeats.newest_ms, ""


def _synced(
    known: Known, of_jobs: Mapping[str, str], read_group: GroupReader
) -> tuple[dict[tuple[str, TopicPartition], int] | None, str]:
    """The offsets that groups with checkpoints have stored here themselves; None if the cluster did not list them.

    ``of_jobs``: the groups that are asked first, with their names here.
    """
    there = {each.group for found in known.checkpoints.values() for each in found}
    chosen = [*(group for group in of_jobs if group in there), *sorted(there - of_jobs.keys())]
    topics = sorted({place.topic for place in known.checkpoints})
    found: dict[tuple[str, TopicPartition], int] = {}
    for group in chosen[:MOST_GROUPS]:
        try:
            rows = read_group(of_jobs.get(group, group), topics)
        except ReconcilerError as error:
            return None, f"groups could not be read: {error.message.rstrip('.')}"
        found.update({(group, row.key): row.stored.offset for row in rows if row.malformed is None})
    left = len(chosen) - MOST_GROUPS
    return found, f"{left:,} more groups were not asked for their own offsets" if left > 0 else ""


def _grades(checked: Checked, known: Known, reader: LogReader) -> dict[tuple[str, TopicPartition], Grade]:
    """MirrorMaker's offsets of the jobs' groups against the proven ones."""
    rows = {(job.name, row.key): row for job in checked.plan.jobs for row in job.partitions}
    rows = {key: row for key, row in rows.items() if row.position != Position.END}
    found: dict[tuple[str, TopicPartition], Grade] = {}
    for job in checked.jobs:
        asked = {}
        for at in (at for at in job.places if at.key in rows):
            own = [each for each in known.checkpoints.get(at.destination, ()) if each.group in job.job.group_names]
            if (graded := grade_request(rows[at.key], mirrors_offset(at, own))) is not None:
                asked[at.destination] = graded
        for place, grade in grades(reader, job.job.identity, asked).items():
            found |= {(group, place): grade for group in job.job.group_names}
    return found


TAIL = 100


@dataclass(frozen=True, slots=True)
class Tally:
    """Findings over some partitions: exact ones, early ones, and those where nothing is proven.

    ``replay`` is the sum of the bounds.
    """

    exact: int
    early: int
    unresolved: int
    replay: int

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Tally:
        known = [each for each in findings if each.resume_offset is not None]
        exact = sum(each.verdict is Verdict.EXACT for each in known)
        replay = sum(each.replay_at_most or 0 for each in known)
        return cls(exact, len(known) - exact, len(findings) - len(known), replay)


@dataclass(frozen=True, slots=True)
class UnpreparedFindings:
    """The findings by place: with syncs, and by checkpoints alone.

    ``unknown``: places whose number at the source is not known, or that already have an offset of this cluster.
    """

    with_syncs: Mapping[Key, Finding]
    by_checkpoints: Mapping[Key, Finding]
    unknown: tuple[Key, ...]


def find_unprepared(
    config: Config, jobs: Sequence[GatheredJob], known: Known, outside: Outside, cluster_id: str
) -> UnpreparedFindings:
    """Raises Unreachable and Refused as the engine does."""
    numbers: dict[Key, tuple[JobPartition, int]] = {}
    unknown = []
    for at in (at for job in jobs for at in job.places if at.exists):
        own = [each for each in known.checkpoints.get(at.destination, ()) if each.group in at.job.group_names]
        offset = source_offset(at, own)
        if offset is None:
            unknown.append(at.key)
        else:
            numbers[at.key] = (at, offset)
    limits = Limits(config.search.max_disorder_ms, config.search.scan_records, TAIL)
    asked: dict[tuple[Key, bool], Inquiry[Finding]] = {}
    for key, (at, offset) in numbers.items():
        pairs = known.of(at.source, at.destination)
        for with_syncs, used in ((True, pairs), (False, replace(pairs, syncs=()))):
            evidence = evidence_for(offset, used, local_writers=at.source.topic == at.destination.topic)
            question = question_of(config, _bare(at, offset), cluster_id, limits, outside.now_ms(), evidence)
            asked[key, with_syncs] = Inquiry(at.destination, partial(reconcile, question))
    settings = EngineSettings(config.search.deadline_s, outside.on_progress)
    found = outside.run(outside.reader, asked, clock=outside.monotonic, settings=settings).found
    return UnpreparedFindings(
        {key: found[key, True].finding for key in numbers},
        {key: found[key, False].finding for key in numbers},
        tuple(unknown),
    )


def _bare(at: JobPartition, offset: int) -> JobPartition:
    row = Row(at.source, StoredOffset(offset), "")
    return replace(at, selected=Selected(row, None, row), translated=False, own=False)


def source_offset(at: JobPartition, checkpoints: Sequence[MirrorCheckpoint]) -> int | None:
    """The stored offset in the source's numbering; None where that is not known, or the job reads here already.

    ``checkpoints`` are those of the job's group for this partition, oldest first.
    """
    stored, row = at.selected.stored, at.selected.row
    if stored is None or row is None or stored.is_sentinel or at.own or at.fault:
        return None
    anchor = stored.anchor
    if at.translated and row.key == at.destination:
        if anchor is not None and anchor.offset is not None:
            return anchor.offset + (anchor.names is Names.LAST)
        named = [each for each in checkpoints if each.downstream == stored.offset]
        return named[-1].upstream if named else None
    return stored.offset


def mirrors_offset(at: JobPartition, checkpoints: Sequence[MirrorCheckpoint]) -> int | None:
    """MirrorMaker's offset for the job's group in this partition; None if it has none for what is stored."""
    offset, stored, row = source_offset(at, checkpoints), at.selected.stored, at.selected.row
    if offset is None or stored is None or row is None:
        return None
    if at.translated and row.key == at.destination:
        by_place = (each for each in checkpoints if each.downstream == stored.offset and each.upstream <= offset)
        if next(by_place, None) is not None:
            return stored.offset
    found = own_offset(checkpoints, offset)
    return found.downstream if found is not None else None
