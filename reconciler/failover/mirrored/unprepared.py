"""The findings of a failover that the jobs had not prepared: by their bare offsets, and the mirror's records of them.

Each number is searched for twice, with MirrorMaker's offset syncs and by its checkpoints alone: the difference is what
``offset-syncs.topic.location = target`` gives. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reconciler.config.file import Config
from reconciler.core.anchors import StoredOffset
from reconciler.core.question import Limits
from reconciler.core.reconcile import reconcile
from reconciler.core.unanchored.pairs import evidence_for
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.gather import GatheredJob, JobPartition, Key, question_of
from reconciler.failover.mirrored.own_offset import source_offset
from reconciler.failover.outside import Outside
from reconciler.failover.stored import Selected
from reconciler.kafka.engine import EngineSettings, Inquiry
from reconciler.kafka.mirror.reading import Known
from reconciler.ports import Row

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
class Unprepared:
    """The findings by place: with syncs, and by checkpoints alone.

    ``unknown``: places whose number at the source is not known, or that already have an offset of this cluster.
    """

    with_syncs: Mapping[Key, Finding]
    by_checkpoints: Mapping[Key, Finding]
    unknown: tuple[Key, ...]


def unprepared(
    config: Config, jobs: Sequence[GatheredJob], known: Known, outside: Outside, cluster_id: str
) -> Unprepared:
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
    return Unprepared(
        {key: found[key, True].finding for key in numbers},
        {key: found[key, False].finding for key in numbers},
        tuple(unknown),
    )


def _bare(at: JobPartition, offset: int) -> JobPartition:
    row = Row(at.source, StoredOffset(offset), "")
    return replace(at, selected=Selected(row, None, row), translated=False, own=False)
