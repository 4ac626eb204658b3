"""Which ranges of offsets a run reads, from the stored rows and the log's edges. No I/O.

Rules, each a test:

- P1  A range begins at the stored offset, or further on where the log is known to hold nothing in between.
- P2  Records are skipped only where the policy says so, and the plan lists them so that they can be reported.
- P3  A stored offset of another cluster, or of the topic before it was recreated, is never read from.
- P4  A cap on a run is shared evenly; partitions that want less leave the rest to the others. The remainder rotates by
      the sum of the offsets, so that a partition waits for at most as many runs as there are partitions, even if every
      run is a process of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args, get_type_hints

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.text import some
from reconciler.ports import ClusterInfo, Row, TopicPartition

CORRECT_THEM = (
    "Start the job by `reconciler hook -c FILE -- COMMAND`, or run `reconciler plan` and `reconciler apply`, which "
    "find the right offsets here."
)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from ``from_offset`` up to, and without, ``until_offset``."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """How many offsets; where the log has gaps, there are fewer records."""
        return self.until_offset - self.from_offset

    def __str__(self) -> str:
        return f"{TopicPartition(self.topic, self.partition)}:{self.from_offset}-{self.until_offset}"


@dataclass(frozen=True, slots=True)
class Caps:
    """The most offsets in one batch: of all partitions together, and of each. None: no limit."""

    per_run: int | None = None
    per_partition: int | None = None

    def __post_init__(self) -> None:
        for name in ("per_run", "per_partition"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"Caps({name}={value}) would never read anything.", hint="Give 1 or more, or None.")


@dataclass(frozen=True, slots=True)
class Policy:
    """Decisions for cases in which the stored offsets do not say where to read. ``stop`` raises NeedsPerson.

    - ``first``: the group has no offset of these topics at all. (A partition that is added later is read from its
      beginning.)
    - ``fewer``: the topic no longer has a stored partition. ``leave``: continue without it; its row stays.
    - ``overtaken``: retention has removed records after the stored offset. ``earliest``: continue at the first that is
      left; the lost ones are logged as a warning and listed in the plan.
    """

    first: Literal["earliest", "latest", "stop"] = "earliest"
    fewer: Literal["stop", "leave"] = "stop"
    overtaken: Literal["stop", "earliest"] = "stop"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Policy).items():
            if getattr(self, name) not in get_args(hint):
                raise ConfigError(
                    f"Policy({name}={getattr(self, name)!r}) is not known.", hint=f"Use {get_args(hint)}."
                )


NO_CAPS = Caps()
BY_DEFAULT = Policy()

EmptyStretches = Mapping[tuple[TopicPartition, str | None], tuple[int, int]]
"""By partition and its topic's id, offsets that hold no record: from one up to, and without, the other."""


@dataclass(frozen=True, slots=True)
class LogEdges:
    """The cluster's topics now, with each partition's first offset and the offset after its last record."""

    cluster: ClusterInfo
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The next batch.

    ``begin``: offsets of a first start at the latest. Their rows must be created before anything is read, so that the
    next start does not take the partitions for new. ``lost``: records that retention removed unread. ``left``: stored
    partitions that no longer exist.
    """

    ranges: tuple[OffsetRange, ...] = ()
    begin: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: tuple[OffsetRange, ...] = ()
    left: tuple[TopicPartition, ...] = ()


def plan(
    rows: Mapping[TopicPartition, Row],
    log: LogEdges,
    topics: Iterable[str],
    *,
    group: str,
    caps: Caps = NO_CAPS,
    policy: Policy = BY_DEFAULT,
    empty: EmptyStretches | None = None,
) -> RangePlan:
    """The ranges that the next batch reads. ``rows``: all rows of the group. A range does not begin within one of the
    ``empty`` stretches, but after it.

        plan(rows, log, ["events"], group="clicks", caps=Caps(per_run=100_000)).ranges

    Raises NeedsPerson if offsets cannot be trusted on this cluster or the policy says stop, ConfigError for a topic
    that the cluster does not have.
    """
    wanted = sorted(set(topics))
    _require_topics(log, wanted)
    partitions = [place for topic in wanted for place in log.cluster.topics[topic].places]
    own = {at: row for at, row in rows.items() if at.topic in wanted}
    _refuse_not_handed_over(rows, own, log, group, wanted)
    left = _fewer(own, partitions, log, policy)
    stored = {at: row.stored for at, row in own.items() if at not in left}
    _refuse_foreign(stored, log)
    begin = _begin(stored, partitions, log, policy)
    from_, lost = _starts(stored, partitions, begin, log, policy, empty or {})
    waiting = {at: max(0, log.ends[at] - offset) for at, offset in sorted(from_.items())}
    shared = _taken(waiting, caps, turn=sum(from_.values()))
    ranges = tuple(
        OffsetRange(at.topic, at.partition, from_[at], from_[at] + count) for at, count in shared.items() if count
    )
    return RangePlan(ranges, begin, lost, left)


def name_of(ranges: Iterable[OffsetRange], cluster: ClusterInfo) -> str:
    """A name for these ranges of these topics: 32 hex digits, always the same.

    Equal numbers on another cluster, or of a recreated topic, are other records and have another name: the ids of
    cluster and topics are part of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    for each in sorted(ranges):
        topic_id = cluster.topic_id(each.topic) or ""
        for part in (cluster.cluster_id, topic_id, each.topic, each.partition, each.from_offset, each.until_offset):
            data = str(part).encode()
            digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()


# ---------------------------------------------------------------- offsets that are refused


def _require_topics(log: LogEdges, topics: Sequence[str]) -> None:
    absent = [topic for topic in topics if topic not in log.cluster.topics]
    if absent or not topics:
        raise ConfigError(
            f"The cluster has no topic {', '.join(absent)}." if absent else "The job names no topic.",
            hint="Correct the topics. After a failover they have the mirror's names (a.events), and bootstrap_servers "
            "is the other cluster's.",
        )


def _refuse_not_handed_over(
    rows: Mapping[TopicPartition, Row],
    own: Mapping[TopicPartition, Row],
    log: LogEdges,
    group: str,
    topics: Sequence[str],
) -> None:
    """Refuse a first start on a cluster to which the group was never moved: it would read everything again."""
    elsewhere = sorted(
        {at.topic for at, row in rows.items() if at not in own and not is_numbered_here(row.stored, log, at)}
    )
    if elsewhere and not own:
        raise NeedsPerson(
            f"Group {group} has no offset of {', '.join(topics)}, but offsets of {', '.join(elsewhere)} on another "
            "cluster: it was not moved here.",
            hint=CORRECT_THEM,
        )


def _refuse_foreign(stored: Mapping[TopicPartition, StoredOffset], log: LogEdges) -> None:
    foreign = [at for at, each in stored.items() if not is_numbered_here(each, log, at)]
    if not foreign:
        return
    recreated = [at for at in foreign if _cluster_id(stored[at]) == log.cluster.cluster_id]
    if recreated:
        raise NeedsPerson(
            f"The topic was deleted and recreated since the offsets of {names_of(recreated)} were stored.",
            hint=CORRECT_THEM,
        )
    raise NeedsPerson(
        f"The stored offsets of {names_of(foreign)} are of another cluster ({_cluster_id(stored[foreign[0]])}), and "
        f"the job reads from {log.cluster.cluster_id}.",
        hint=CORRECT_THEM,
    )


def is_numbered_here(stored: StoredOffset, log: LogEdges, at: TopicPartition) -> bool:
    """False if the offset's anchor shows that it is not a number of this topic on this cluster."""
    if stored.is_sentinel or stored.anchor is None or stored.anchor.cluster_id is None:
        return True
    return stored.anchor.numbered_by(log.cluster.cluster_id, log.cluster.topic_id(at.topic))


def _cluster_id(stored: StoredOffset) -> str | None:
    return stored.anchor.cluster_id if stored.anchor else None


# ---------------------------------------------------------------- where ranges begin


def _fewer(
    own: Mapping[TopicPartition, Row], partitions: Sequence[TopicPartition], log: LogEdges, policy: Policy
) -> tuple[TopicPartition, ...]:
    """The stored partitions that the cluster does not have. A job that was moved here may have kept a row of the other
    cluster's topic of this name.
    """
    left = tuple(sorted(set(own) - set(partitions)))
    clusters, here = {at: _cluster_id(row.stored) for at, row in own.items()}, log.cluster.cluster_id
    is_here = here in clusters.values()
    gone = [at for at in left if not is_here or clusters[at] in (None, here)]
    if gone and policy.fewer == "stop":
        raise NeedsPerson(
            f"Offsets are stored for {names_of(gone)}, which the cluster does not have: the topic has fewer partitions "
            "than before.",
            hint=f'{CORRECT_THEM} Or continue without them: Policy(fewer="leave").',
        )
    return left


def _begin(
    stored: Mapping[TopicPartition, StoredOffset],
    partitions: Sequence[TopicPartition],
    log: LogEdges,
    policy: Policy,
) -> dict[TopicPartition, int]:
    """Where partitions of a first start begin, if not at their first record."""
    if stored or policy.first == "earliest":
        return {}
    if policy.first == "stop":
        raise NeedsPerson(
            f"There is no stored offset for {names_of(partitions)}: the group starts for the first time, or this is "
            "not the store it used before.",
            hint='Check the group and the store, then say where to start with Policy(first="earliest").',
        )
    return {at: log.ends[at] for at in partitions}


def _starts(
    stored: Mapping[TopicPartition, StoredOffset],
    partitions: Sequence[TopicPartition],
    begin: Mapping[TopicPartition, int],
    log: LogEdges,
    policy: Policy,
    empty: EmptyStretches,
) -> tuple[dict[TopicPartition, int], tuple[OffsetRange, ...]]:
    def past_empty(at: TopicPartition, offset: int) -> int:
        since, until = empty.get((at, log.cluster.topic_id(at.topic)), (0, 0))
        return until if since <= offset <= until <= log.ends[at] else offset

    found: dict[TopicPartition, int] = {}
    lost = []
    for at in partitions:
        each = stored.get(at)
        if each is None or each.is_sentinel:
            found[at] = past_empty(at, begin.get(at, log.starts[at]))
            continue
        unread = past_empty(at, each.offset)  # in front of it, retention removed nothing unread
        found[at] = past_empty(at, max(unread, log.starts[at]))
        if unread < log.starts[at]:
            lost.append(OffsetRange(at.topic, at.partition, unread, log.starts[at]))
    beyond = [at for at in partitions if at in stored and stored[at].offset > log.ends[at]]
    if beyond:
        raise NeedsPerson(
            f"The stored offset of {names_of(beyond)} is beyond the end of the log: the log was cut, or the offset is "
            "of another cluster.",
            hint=CORRECT_THEM,
        )
    if lost and policy.overtaken == "stop":
        raise NeedsPerson(f"{lost_sentence(lost)}.", hint='To continue without them: Policy(overtaken="earliest").')
    return found, tuple(lost)


def lost_sentence(lost: Sequence[OffsetRange]) -> str:
    """The records that retention removed, as a sentence without full stop."""
    return (
        f"Retention has overtaken the job: up to {sum(each.offsets for each in lost):,} records that it had not read "
        f"are gone ({some(list(map(str, lost)))})"
    )


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a sentence: the first ones, in order."""
    return some([str(at) for at in sorted(partitions)])


# ---------------------------------------------------------------- how far a batch reads


def _taken(waiting: Mapping[TopicPartition, int], caps: Caps, *, turn: int) -> dict[TopicPartition, int]:
    """How many of the waiting offsets of each partition the next batch takes. ``turn`` as in ``share_out``."""
    most = caps.per_partition
    wants = [count if most is None else min(count, most) for count in waiting.values()]
    if caps.per_run is not None:
        wants = share_out(wants, caps.per_run, turn=turn)
    return dict(zip(waiting, wants, strict=True))


def share_out(wants: Sequence[int], total: int, *, turn: int = 0) -> list[int]:
    """Shares of ``total``, none above its want, as even as possible (P4). ``turn`` rotates who gets the remainder.

    share_out([10, 2, 10], 12)  # [5, 2, 5]
    """
    given, left = [0] * len(wants), min(total, sum(wants))
    while left:
        hungry = [index for index, want in enumerate(wants) if given[index] < want]
        first, each = turn % len(hungry), max(1, left // len(hungry))
        for index in hungry[first:] + hungry[:first]:
            more = min(each, wants[index] - given[index], left)
            given[index] += more
            left -= more
    return given
