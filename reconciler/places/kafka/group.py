"""Offsets that a group committed in Kafka, with their anchors in the commit metadata.

Kafka has no compare-and-set for commits. Instead, this store refuses a group with live members (as the broker does),
reads the rows again right before the commit, with their offset and metadata as the version, and once more after it.
One gap remains: a program that commits without being a member (manual assignment) in the milliseconds between. The
second read detects it, unless it committed exactly the same.

Kafka holds no negative offset, so sentinels are refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.core import anchor_fields
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Refused
from reconciler.places import common
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult

if TYPE_CHECKING:
    from reconciler.places.kafka.requests import GroupRequests

BATCH = 250
"""Partitions per commit. A commit becomes one record batch of at most 1 MB by default; a row takes at most 1.6 kB."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset. To a broker, no metadata and empty metadata are the same."""

    offset: int
    metadata: str

    @property
    def version(self) -> str:
        """Changes with the offset or the metadata, not with a second commit of the same."""
        return hashlib.blake2b(f"{self.offset} {self.metadata}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic's partitions by number, and whether this user has Read on it, which a commit needs."""

    numbers: frozenset[int]
    may_read: bool = True


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state by the broker's name for it, its members' ``client id (host)``, and this user's permissions."""

    state: str
    members: tuple[str, ...] = ()
    may_commit: bool = True

    @property
    def live(self) -> bool:
        """True unless the broker says that the group has no members, or does not exist."""
        return self.state not in ("EMPTY", "DEAD") or bool(self.members)


class KafkaGroupStore:
    """The committed offsets of one cluster's groups.

    ``client`` holds librdkafka properties. Every method raises Unreachable without an answer in ``timeout_s``, and
    Refused when the cluster refuses.
    """

    capabilities = Capabilities(atomic_batches=False, translated_by_mirror=True)
    address = "kafka-group:"

    def __init__(self, client: Mapping[str, str], *, timeout_s: float = common.KAFKA_TIMEOUT_S) -> None:
        self._settings = dict(client)
        self._timeout_s = timeout_s

    @cached_property
    def _requests(self) -> GroupRequests:
        # Imported late: the client takes 0.1 s to load, and a hook may never need it.
        from reconciler.places.kafka.requests import GroupRequests

        return GroupRequests(self._settings, timeout_s=self._timeout_s)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition.

        Waits for offsets in an open transaction, including a partition's first one. Without ``topics``, reads all rows
        of the group, of the topics that this user may describe.
        """
        common.check_name("group's name", group)
        wanted = common.wanted_topics(topics)
        if wanted is None:
            found = self._requests.all_committed(group)
        else:
            found = self._requests.committed(group, self._partitions(wanted))
        return [_row(key, found[key]) for key in sorted(found)]

    def group_names(self) -> list[str]:
        """The cluster's groups that this user may describe."""
        from reconciler.kafka.requests import Surveyor

        with closing(Surveyor(self._settings, timeout_s=self._timeout_s)) as surveyor:
            return surveyor.groups()

    def members(self, group: str) -> tuple[str, ...]:
        """The group's live members, as ``CLIENT_ID at HOST``; its state if the cluster names none of them."""
        common.check_name("group's name", group)
        found = self._requests.state(group)
        return found.members or ((f"state {found.state}",) if found.live else ())

    def _partitions(self, topics: frozenset[str]) -> list[TopicPartition]:
        """Every partition of those of the topics that exist.

        A broker silently leaves out the rows of topics that this user may not describe, and offsets that are only in
        an open transaction; it reports both for partitions that the request names.
        """
        known = self._requests.topics(topics, why="where the group may have offsets")
        return [TopicPartition(name, number) for name in sorted(known) for number in sorted(known[name].numbers)]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Commit the changes whose rows are still at their expected versions.

        ``reason`` is only logged: Kafka keeps no history. Raises Refused, with nothing written, for a live group, a
        sentinel, and a topic or partition that the cluster does not have.
        Raises OutcomeUnknown if a commit was not answered, was accepted in part, or was overwritten at once.
        """
        common.check_changes(group, changes)
        if not changes:
            return WriteResult()
        _refuse_sentinels(changes)
        self._refuse_live(group)
        before = self._requests.committed(group, [change.key for change in changes])
        conflicts = set(common.conflicts(changes, {key: row.version for key, row in before.items()}))
        good = [change for change in changes if change.key not in conflicts]
        new = {
            change.key: Committed(change.new.offset, anchor_fields.encode(common.with_time(change, now_ms)))
            for change in good
        }
        self._refuse_unknown_topics(group, new)
        self._commit(group, new)
        _log.info("committed %d offsets of group %r: %s", len(new), group, reason)
        return common.result_of(changes, conflicts)

    def create(self) -> None:
        """Nothing to do: a group comes with its first commit."""

    def check_writable(self, group: str) -> None:
        """Raise Refused if the group has live members, or may not be looked at or changed. Writes nothing."""
        common.check_name("group's name", group)
        found = self._refuse_live(group)
        if not found.may_commit:
            raise Refused(
                f"This user may not change group {group!r}; nothing was written.",
                hint=f"Ask the cluster's administrator for Read on group {group!r}.",
            )

    def close(self) -> None:
        if "_requests" in self.__dict__:
            self._requests.close()

    def _refuse_live(self, group: str) -> GroupState:
        """The group's state. Raises Refused if it has live members."""
        found = self._requests.state(group)
        if found.live:
            count = len(found.members)
            shown = ", ".join(sorted(found.members)[:10]) or f"state {found.state}"
            raise Refused(
                f"Group {group!r} has {count or 'perhaps'} live member{'s' if count != 1 else ''} ({shown});"
                " nothing was written.",
                hint="Stop the job, wait until its members have left or their session has timed out, then run again.",
            )
        return found

    def _refuse_unknown_topics(self, group: str, new: Mapping[TopicPartition, Committed]) -> None:
        # The broker would refuse these rows and accept the others; refuse all before anything is written.
        if not new:
            return
        known = self._requests.topics({key.topic for key in new}, why="where offsets are to be committed")
        for key in sorted(new):
            topic = known.get(key.topic)
            if topic is None or key.partition not in topic.numbers:
                what = f"partition {key.partition} of topic" if topic else "topic"
                raise Refused(
                    f"The cluster has no {what} {key.topic!r}; nothing was written.",
                    hint="Check the topic policy in the configuration, and that the mirror made this topic.",
                )
            if not topic.may_read:
                raise Refused(
                    f"This user may not commit offsets of topic {key.topic!r} in group {group!r}; nothing was written.",
                    hint=f"Ask the cluster's administrator for Read on topic {key.topic!r}.",
                )

    def _commit(self, group: str, new: Mapping[TopicPartition, Committed]) -> None:
        from reconciler.places.kafka.requests import outcome_unknown

        rows = list(new.items())
        for accepted in range(0, len(rows), BATCH):
            try:
                self._requests.commit(group, dict(rows[accepted : accepted + BATCH]))
            except ReconcilerError as err:
                if not accepted or isinstance(err, OutcomeUnknown):
                    raise
                raise outcome_unknown(group, f"{accepted} of {len(new)} were, then: {err.message}") from err
        try:
            now = self._requests.committed(group, list(new))
        except ReconcilerError as err:
            raise outcome_unknown(group, f"the commit was accepted, then: {err.message}") from err
        if _content(now) != _content(new):
            raise outcome_unknown(group, "read again right after the commit, they were others.")


def _content(rows: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, tuple[int, Anchor | None]]:
    """Without the time of writing: another process that commits the same plan at the same time writes the same."""
    return {key: (row.offset, anchor_fields.decode(row.metadata).anchor) for key, row in rows.items()}


def _row(key: TopicPartition, committed: Committed) -> Row:
    found = anchor_fields.decode(committed.metadata)
    if found.reason is not None:
        _log.debug("no anchor for %s:%d: %s", key.topic, key.partition, found.reason)
    stored = StoredOffset(committed.offset, found.anchor, found.written_at_ms)
    note = f"its anchor cannot be read: {found.reason}" if found.damaged else ""
    return Row(key, stored, committed.version, note=note)


def _refuse_sentinels(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.new.is_sentinel:
            raise Refused(
                f"Kafka holds no negative offset: {change.new.offset} for {change.key.topic}:"
                f"{change.key.partition} cannot be committed; nothing was written.",
                hint="Leave the row out: a group without a row starts by its own auto.offset.reset.",
            )


def open_address(
    address: str, *, kafka_client: Mapping[str, str] | None = None, timeout_s: float = common.KAFKA_TIMEOUT_S
) -> OffsetStore:
    """``kafka-group:``, on the cluster that ``kafka_client`` names."""
    if address.partition(":")[2]:
        raise ConfigError(
            "The address of the group store is kafka-group: with nothing behind it.",
            hint="The cluster is one under [clusters]; each job names its group and topics.",
        )
    if not kafka_client or not kafka_client.get("bootstrap.servers"):
        raise ConfigError(
            "The store kafka-group: needs the destination's client settings, and there are none.",
            hint="Set its bootstrap_servers under [clusters].",
        )
    return KafkaGroupStore(kafka_client, timeout_s=timeout_s)
