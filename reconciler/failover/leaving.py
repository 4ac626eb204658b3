"""The commits of a consumer group on the cluster that its job leaves, beside what is known of them elsewhere.

The store of a move is the group at the destination, with what ``track`` copied from the other cluster. The copy may be
older than the group's last commit there, and the group at the destination may have commits of an earlier stay. While
the cluster that the job leaves answers, its commits say how far the job is: work that a copy does not show is counted,
and a group of which nothing is known since its earlier stay is not taken for that stay's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Malformed
from reconciler.core.errors import ReconcilerError
from reconciler.failover.outside import StoreOpener
from reconciler.ports import Change, LogReader, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores.registry import traits

LIMIT_S = 3.0
"""Seconds for an answer of the cluster that is left: it may be lost, and each start of a move waits for it."""

log = logging.getLogger("reconciler.check")


@dataclass(frozen=True, slots=True)
class Leaving:
    """A group whose job leaves. ``topics``: by that cluster's names. ``was_there``: it has lived at the destination."""

    topics: Collection[str]
    was_there: bool


@dataclass(frozen=True, slots=True)
class Left:
    """The cluster that is left: its id, and its groups. Both raise Unreachable and Refused."""

    cluster_id: Callable[[], str]
    commits: Callable[[str, Collection[str]], Iterable[Row]]


def beside(config: Config, open_store: StoreOpener) -> StoreOpener:
    """``open_store``, which looks at the groups of jobs that leave on the cluster where they live, too."""
    groups: dict[str, Leaving] = {}
    for job in filter(_leaves, config.jobs):  # several may share a group, each with topics of its own
        other = groups.get(job.group, Leaving((), was_there=False))
        groups[job.group] = Leaving({*other.topics, *job.topics}, other.was_there or bool(job.left))
    if not groups or config.source is None:
        return open_store
    left = _left(config.source.client)

    def opened(address: str) -> OffsetStore:
        store = open_store(address)
        return LivingGroups(store, groups, left) if traits(address).holds_commits else store

    return opened


def log_of(config: Config) -> Callable[[], LogReader] | None:
    """Opens the log of the cluster that the jobs of ``config`` leave; None if they leave none."""
    source = config.source

    def opened() -> LogReader:
        from reconciler.kafka import apart

        assert source is not None
        return apart.open_log(source.client, timeout_s=LIMIT_S, memory=config.search.memory)

    return None if source is None else opened


def _leaves(job: Job) -> bool:
    return job.moved is False and traits(job.store).holds_commits


def _left(client: Mapping[str, str]) -> Left:
    from reconciler.kafka.reader import KafkaLogReader
    from reconciler.stores.registry import open_store

    def cluster_id() -> str:
        with closing(KafkaLogReader(client, timeout_s=LIMIT_S)) as reader:
            return reader.describe(()).cluster_id

    def commits(group: str, topics: Collection[str]) -> Iterable[Row]:
        with closing(open_store("kafka-group:", kafka_client=client, timeout_s=LIMIT_S)) as store:
            return store.read(group, topics)

    return Left(cluster_id, commits)


class LivingGroups:
    """A store of groups; what it reads of those that leave is compared with their commits where they live."""

    def __init__(self, store: OffsetStore, groups: Mapping[str, Leaving], left: Left) -> None:
        self._store = store
        self._groups = groups
        self._left = left
        self._written: set[str] = set()

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """As the store. From here on this object reads what is there: the move's numbers."""
        self._written.add(group)
        return self._store.write(group, changes, reason=reason, now_ms=now_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """As the store reads. A cluster that does not answer is needed for nothing: then what is known counts."""
        wanted = None if topics is None else list(topics)
        rows = {row.key: row for row in self._store.read(group, wanted)}
        leaving = None if group in self._written else self._groups.get(group)
        if leaving is not None:
            try:
                commits = list(self._left.commits(group, leaving.topics))
                here = self._left.cluster_id() if commits else ""
            except ReconcilerError as error:
                log.debug("the commits of group %s where its job lives were not read: %s", group, error)
            else:
                judge = partial(_judged, group, here, was_there=leaving.was_there)
                rows |= {each.key: found for each in commits if (found := judge(each, rows.get(each.key))) is not None}
        return [rows[key] for key in sorted(rows)]


def _judged(group: str, here: str, commit: Row, row: Row | None, *, was_there: bool) -> Row | None:
    """The row that counts, where the job has committed ``commit`` on cluster ``here``; None: what is known counts."""
    if commit.malformed is not None or commit.stored.offset == 0:
        return None
    if commit.stored.anchor is not None:
        if row is None or row.malformed is not None:
            return Row(commit.key, commit.stored, "", is_copy=True)
        return replace(row, stored=replace(row.stored, anchor=commit.stored.anchor), anchor_lag=commit.anchor_lag or 0)
    anchor = None if row is None or row.malformed is not None else row.stored.anchor
    if row is not None and anchor is not None and anchor.cluster_id == here and anchor.offset is not None:
        lag = commit.stored.offset - anchor.offset - 1
        if row.is_copy and row.stored.offset == commit.stored.offset:
            return None  # a gap may part the record and the commit
        return replace(row, anchor_lag=lag) if lag >= 0 else Row(commit.key, _unknown(group, commit), row.version)
    return Row(commit.key, _unknown(group, commit), "" if row is None else row.version) if was_there else None


def _unknown(group: str, commit: Row) -> Malformed:
    where: TopicPartition = commit.key
    return Malformed(
        f"Group {group} has committed {commit.stored.offset} of {where} where its job lives, and no record before that "
        "number is kept.",
        "While that cluster answers, run: reconciler track --once",
    )
