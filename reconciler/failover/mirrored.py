"""The mirror's own state, by what it recorded at the destination, and the jobs that come back there. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode, NotRead, ReconcilerError, Refused, Unreachable, worst
from reconciler.core.text import counted, some
from reconciler.core.verdicts import Verdict
from reconciler.failover.apart import check_each
from reconciler.failover.check import Checked
from reconciler.failover.checking.questions import own_topics
from reconciler.failover.outside import Outside
from reconciler.kafka.mirror.account import (
    GroupAccount,
    PartitionAccount,
    Setting,
    group_accounts,
    partition_account,
    settings,
)
from reconciler.kafka.mirror.delivered import newest_ms
from reconciler.kafka.mirror.reading import Wanted, read_pairs
from reconciler.kafka.mirror.records import Heartbeats, read_positions
from reconciler.ports import LogReader, TopicPartition

MOST_TOLD = 3
"""At most so many partitions of a job that comes back are named."""


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """``heartbeat_ms``: when the newest heartbeat was sent. ``missing``: partitions of stored offsets that the
    destination does not have. ``notes`` say what is not here, or could not be read. ``failed``: jobs that could not be
    checked.
    """

    made_ms: int
    cluster_id: str
    partitions: tuple[PartitionAccount, ...]
    groups: tuple[GroupAccount, ...]
    heartbeat_ms: int | None
    settings: tuple[Setting, ...]
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
        lacks = not self.partitions or self.missing or self.without_evidence
        own = ExitCode.NEEDS_PERSON if lacks else ExitCode.OK
        return worst([own, *(error.exit_code for error in self.failed.values())])


def report(config: Config, jobs: Sequence[Job], outside: Outside) -> MirrorReport:
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
    groups = group_accounts(known.checkpoints, ends)
    asked = settings(partitions, groups, heartbeat=heartbeat_ms is not None)
    return MirrorReport(
        made_ms=outside.now_ms(),
        cluster_id=checked.plan.cluster_id,
        partitions=tuple(partitions),
        groups=tuple(groups),
        heartbeat_ms=heartbeat_ms,
        settings=tuple(asked),
        empty=frozenset(place for place in places if ends[place] <= starts[place]),
        missing=missing,
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        failed=checked.failed,
    )


def _ways_back(checked: Checked) -> list[str]:
    """The findings that are not exact of jobs that have lived at the destination before, as sentences."""
    back = {each.job.name for each in checked.jobs if each.job.left}
    found = []
    for job in (each for each in checked.plan.jobs if each.name in back):
        early = [row for row in job.partitions if row.finding is not Verdict.EXACT]
        for row in early[:MOST_TOLD]:
            found.append(f"job {job.name} comes back to {row.key} {row.finding.value}: {row.detail}")
        if len(early) > MOST_TOLD:
            more = f"{len(early) - MOST_TOLD:,} more partitions not exactly"
            found.append(f"job {job.name} comes back to {more} (move shows them)")
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
