"""A mirror's own account at the destination: its deliveries and records per partition, and settings to change.

Pure: the readings are arguments. What was not found is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from reconciler.core.mirrored.pairs import MirrorCheckpoint, Sync, usable_syncs
from reconciler.ports import TopicPartition

LOCATION = "offset-syncs.topic.location"


@dataclass(frozen=True, slots=True)
class Sent:
    """The last source offset that was surely delivered, and what says so: the position that Connect committed, or a
    sync."""

    offset: int
    by: str


@dataclass(frozen=True, slots=True)
class PartitionAccount:
    """One mirrored partition. Distances are in offsets of the source, between syncs that are still in their topic.

    ``missing``: at least so many offsets of the source between syncs have no record here. ``again``: at least so many
    records between syncs are further copies. Both None without two syncs.
    """

    source: TopicPartition
    destination: TopicPartition
    sent: Sent | None
    newest_ms: int | None
    syncs: int
    median_distance: int | None = None
    largest_distance: int | None = None
    missing: int | None = None
    again: int | None = None


@dataclass(frozen=True, slots=True)
class GroupAccount:
    """One group in one partition: MirrorMaker's newest checkpoint ``offset`` → ``place`` for it.

    ``behind``: records from that place to the log's end.
    """

    group: str
    partition: TopicPartition
    offset: int
    place: int
    written_ms: int | None
    behind: int


@dataclass(frozen=True, slots=True)
class Setting:
    """A property of MirrorMaker: what is seen of it here, and what it would give."""

    name: str
    wanted: str
    seen: str
    gives: str
    is_as_wanted: bool
    is_default: bool = False
    """True for a property whose default is right: what is missing here may have other causes."""


def partition_account(
    source: TopicPartition,
    destination: TopicPartition,
    syncs: Sequence[Sync],
    position: int | None,
    newest_ms: int | None,
) -> PartitionAccount:
    """``syncs`` in the order of their topic; ``position``: Connect's, the last source offset that it committed."""
    usable = usable_syncs(syncs)
    steps = [(one, other) for one, other in pairwise(usable) if other.upstream > one.upstream]
    distances = [other.upstream - one.upstream for one, other in steps]
    surplus = [other.downstream - one.downstream - (other.upstream - one.upstream) for one, other in steps]
    last = max((sync.upstream for sync in usable), default=None)
    return PartitionAccount(
        source=source,
        destination=destination,
        sent=_sent(position, last),
        newest_ms=newest_ms,
        syncs=len(usable),
        median_distance=median_low(distances) if distances else None,
        largest_distance=max(distances, default=None),
        missing=sum(max(0, -each) for each in surplus) if steps else None,
        again=_again(usable, surplus) if len(usable) > 1 else None,
    )


def _sent(position: int | None, synced: int | None) -> Sent | None:
    if position is not None and (synced is None or position >= synced):
        return Sent(position, "connect")
    return Sent(synced, "sync") if synced is not None else None


def _again(usable: Sequence[Sync], surplus: Sequence[int]) -> int:
    """Each step back to a smaller number is a record that was sent again; syncs do not show how many follow it."""
    back = sum(other.upstream <= one.upstream for one, other in pairwise(usable))
    return sum(max(0, each) for each in surplus) + back


def group_accounts(
    checkpoints: Mapping[TopicPartition, Sequence[MirrorCheckpoint]],
    ends: Mapping[TopicPartition, int],
) -> list[GroupAccount]:
    """The newest checkpoint of every group in every partition, by group and partition."""
    newest = {(each.group, place): each for place, found in checkpoints.items() for each in found}
    return [
        GroupAccount(
            group=group,
            partition=place,
            offset=each.upstream,
            place=each.downstream,
            written_ms=each.written_ms,
            behind=max(0, ends[place] - each.downstream),
        )
        for (group, place), each in sorted(newest.items(), key=lambda item: (item[0][0], str(item[0][1])))
        if place in ends
    ]


def settings(
    partitions: Sequence[PartitionAccount],
    groups: Sequence[GroupAccount],
    *,
    heartbeat: bool,
) -> list[Setting]:
    """The properties that decide how exactly a job without anchors can fail over, the one that gives most first."""
    synced_here = sum(each.syncs > 0 for each in partitions)
    return [
        Setting(
            LOCATION,
            "target",
            f"offset syncs of {synced_here:,} of {len(partitions):,} partitions are at the destination",
            "most stored offsets without anchors become exact, the others repeat about offset.lag.max records",
            synced_here > 0,
        ),
        Setting(
            "emit.checkpoints.enabled",
            "true",
            f"{len(groups):,} checkpoints of groups and partitions" if groups else "no checkpoints",
            "a place to resume at, early but safe, also without offset syncs",
            bool(groups) or synced_here > 0,  # without a group that commits there are none
            is_default=True,
        ),
        Setting(
            "emit.heartbeats.enabled",
            "true",
            "heartbeats arrive" if heartbeat else "no heartbeats",
            "how old the newest delivered data is, also while nothing is written",
            heartbeat,
            is_default=True,
        ),
    ]
