"""Offsets with their anchors in a compacted topic of the cluster that a job reads, so that a mirror carries them along.

A job's rows are records of one topic of one partition, written in transactions (``topic_writer``: they make this a
compare-and-set) and read to the end (``topic_log``). The destination cluster may have two topics:

- NAME holds the records written there and, if the mirror renames nothing, also the mirrored ones.
- ``ALIAS.NAME`` is the source's NAME as MirrorMaker's default policy mirrors it. This store only reads it.

If both have a row for the same group, topic and partition, the one written later counts. Changes are always written to
NAME, and dated no earlier than the mirrored row, whose writer's clock may be ahead. Deleting a row that only the
mirrored topic has writes a record to NAME that hides it.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from reconciler.core.errors import ConfigError, NotCreated, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.formats.json_fields import FieldError
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.retry import insist
from reconciler.stores import common
from reconciler.stores.kafka import require_client, topic_rows
from reconciler.stores.kafka.topic_rows import RowName, Value
from reconciler.stores.parameters import Parameters, wrong_address
from reconciler.waits import for_seconds

if TYPE_CHECKING:
    from reconciler.stores.kafka.topic_log import LatestRecord, TopicLog
    from reconciler.stores.kafka.topic_requests import TopicRequests
    from reconciler.stores.kafka.topic_writer import Writer

CONTENDED_S = 30.0
"""Seconds for which a fenced writer tries again."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NOT_MIRRORED = re.compile(r"__.*|\..*|.*[.-]internal|.*\.replica")
"""Topics that MirrorMaker 2 takes for internal and does not mirror (DefaultTopicFilter, ReplicationPolicy)."""

_COMPARE_CLOCKS = "Compare the clocks of the two sides, then run this again after the later time."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Record:
    """A row's record in one topic."""

    topic: str
    offset: int
    raw: bytes

    def value(self, name: RowName) -> Value:
        try:
            return topic_rows.decode_value(self.raw)
        except FieldError as err:
            raise Refused(
                f"The record at offset {self.offset} of topic {self.topic!r}, which holds the offset of group"
                f" {name.group!r} for {TopicPartition(name.topic, name.partition)}, is damaged: {err}.",
                hint="Find its writer. Delete the row by a record with the same key and no value, then import it.",
            ) from err


@dataclass(slots=True)
class _Found:
    """One group's records by row: one from each topic that has the row, NAME's first."""

    ids: Mapping[str, str]
    records: dict[RowName, list[_Record]] = field(default_factory=dict)

    def row(self, name: RowName) -> Row | None:
        """The row that counts, None if there is none. Raises Refused for a damaged record."""
        values = [(record, record.value(name)) for record in self.records.get(name, ())]
        if not values:
            return None
        record, value = max(values, key=lambda pair: pair[1].written_at_ms)  # NAME's where they are equal
        if value.stored is None:
            return None
        key = TopicPartition(name.topic, name.partition)
        return Row(key, value.stored, self.version(name), text=record.raw.decode())

    def any_row(self, name: RowName) -> Row | None:
        """As ``row``; a damaged record gives a malformed one."""
        try:
            return self.row(name)
        except Refused as err:
            return common.unread(TopicPartition(name.topic, name.partition), err, self.version(name))

    def version(self, name: RowName) -> str:
        """Changes with every record, and when a topic is recreated."""
        return " ".join(f"{self.ids[record.topic]}@{record.offset}" for record in self.records[name])


class KafkaTopicStore:
    """Rows in the topic ``name``, and read also from the topics ``mirrored`` (None: those that look like copies of it).

    ``client`` holds librdkafka properties. Every method raises Unreachable without an answer in ``timeout_s``, and
    Refused when the cluster refuses. May be used by one thread at a time.
    """

    capabilities = Capabilities(keeps_history=False, atomic_batches=True)

    def __init__(
        self,
        client: Mapping[str, str],
        name: str,
        mirrored: Sequence[str] | None = None,
        *,
        address: str | None = None,
        timeout_s: float = common.KAFKA_TIMEOUT_S,
    ) -> None:
        self._settings = dict(client)
        self._name = name
        self._mirrored = None if mirrored is None else tuple(mirrored)
        self.address = address or f"kafka-topic:{name}"
        self._timeout_s = timeout_s
        self._logs: dict[tuple[str, str], TopicLog] = {}
        self._writers: dict[str, Writer] = {}
        self._warned: set[str] = set()

    # ------------------------------------------------------------ reading

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition.

        Waits for the rows of transactions that are open when it begins. Raises Refused if the topic does not exist.
        """
        common.check_name("group's name", group)
        wanted = common.wanted_topics(topics)
        found = self._found(group)
        rows = [found.any_row(name) for name in found.records if wanted is None or name.topic in wanted]
        return sorted((row for row in rows if row is not None), key=lambda row: row.key)

    def _found(self, group: str, *, to_write: bool = False, waiting: bool = True) -> _Found:
        looks = self._requests.look([self._name, *self._others])
        if self._name not in looks and (to_write or not looks):
            raise self._missing(*(() if looks else self._others))
        self._warn_of_absent(looks)
        found = _Found({name: look.topic_id for name, look in looks.items()})
        for name in (self._name, *self._others):
            if name in looks:
                for key, latest in self._log(name, group).read(looks[name], waiting=waiting).items():
                    self._keep(found, name, key, latest)
        return found

    def _warn_of_absent(self, there: Collection[str]) -> None:
        """A misspelt topic, or one that this cluster's broker does not know yet, would just have no rows."""
        from reconciler.stores.kafka.topic_log import notes

        for name in sorted({*self._others} - {*there} - self._warned):
            self._warned.add(name)
            notes.warning("the cluster has no topic %s to read mirrored rows of topic %s from", name, self._name)

    def _keep(self, found: _Found, topic: str, key: bytes, latest: LatestRecord) -> None:
        try:
            name = topic_rows.decode_key(key)
        except FieldError as err:
            from reconciler.stores.kafka.topic_log import notes

            notes.warning("topic %s, offset %d: %s; the record is ignored", topic, latest.offset, err)
            return
        found.records.setdefault(name, []).append(_Record(topic, latest.offset, latest.value))

    @cached_property
    def _requests(self) -> TopicRequests:
        # Imported late: the client takes 0.1 s to load, and a hook may never need it.
        from reconciler.stores.kafka.topic_requests import TopicRequests

        return TopicRequests(self._settings, timeout_s=self._timeout_s)

    @cached_property
    def _others(self) -> tuple[str, ...]:
        """The mirrored topics. Raises Refused if more than one may be the copy."""
        if self._mirrored is not None:
            return self._mirrored
        found = self._requests.mirrored(self._name)
        if len(found) > 1:
            raise Refused(
                f"More than one topic may be a mirrored copy of {self._name!r}: {', '.join(found)}.",
                hint=f"Name the right one in the store's address, as kafka-topic:{self._name}?mirrored={found[0]}.",
            )
        return tuple(found)

    def _log(self, topic: str, group: str) -> TopicLog:
        from reconciler.kafka.connection import Connection
        from reconciler.stores.kafka.topic_log import TopicLog

        if (topic, group) not in self._logs:
            connection = Connection(self._settings, timeout_s=self._timeout_s)
            self._logs[topic, group] = TopicLog(connection, self._requests, group)
        return self._logs[topic, group]

    # ------------------------------------------------------------ writing

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes in one transaction, or none of them if any row is no longer at its expected version.

        Of several concurrent writers exactly one wins. The mirror's writes cannot be fenced; they conflict only if they
        came before. ``reason`` is only logged. Raises OutcomeUnknown if the commit was not answered.
        """
        common.check_changes(group, changes)
        if not changes:
            return WriteResult()
        from reconciler.stores.kafka.topic_writer import Fenced

        token = secrets.token_bytes(8)

        def once() -> WriteResult:
            try:
                return self._write(group, changes, token, now_ms)
            except BaseException as error:
                self._writers.pop(group, None)
                if isinstance(error, Fenced) and self._was_committed(group, token):
                    return common.written(changes)
                raise

        try:
            result = insist(once, left_s=for_seconds(CONTENDED_S), helps=lambda err: isinstance(err, Fenced))
        except Fenced as err:
            raise Unreachable(
                f"Other writers of group {group!r} kept this one from writing to topic {self._name!r} for"
                f" {CONTENDED_S:g} s; nothing was written.",
                hint="Stop the other writers of this group's rows, then run this again.",
            ) from err
        if result.written:
            _log.info("wrote %d rows of group %r to topic %s: %s", len(result.written), group, self._name, reason)
        return result

    def _write(self, group: str, changes: Sequence[Change], token: bytes, now_ms: int) -> WriteResult:
        """One try. Only an admitted writer may fence another, so conflicts are looked for before admission."""
        if group not in self._writers:
            # Does not wait: an open transaction may belong to a dead writer of this group, and admission ends it.
            records = self._records(group, changes, now_ms, waiting=False)
            if isinstance(records, WriteResult):
                return records
            from reconciler.stores.kafka.topic_writer import Writer

            self._writers[group] = Writer(self._settings, self._name, group, timeout_s=self._timeout_s)
        records = self._records(group, changes, now_ms)
        if isinstance(records, WriteResult):
            return records
        if records:
            self._writers[group].write(records, token)
        return common.written(changes)

    def _records(
        self, group: str, changes: Sequence[Change], now_ms: int, *, waiting: bool = True
    ) -> dict[bytes, bytes | None] | WriteResult:
        """The records to write, or the conflicts that prevent it."""
        found = self._found(group, to_write=True, waiting=waiting)
        names = {change: RowName(group, change.key.topic, change.key.partition) for change in changes}
        rows = {change.key: found.row(name) for change, name in names.items()}
        conflicts = common.conflicts(changes, {key: row.version for key, row in rows.items() if row is not None})
        if conflicts:
            return WriteResult(conflicts=conflicts)
        return {
            topic_rows.encode_key(name): self._value(change, now_ms, name, found.records.get(name, ()))
            for change, name in names.items()
            if change.new is not None or rows[change.key] is not None
        }

    def _value(self, change: Change, now_ms: int, name: RowName, there: Sequence[_Record]) -> bytes | None:
        """A record that counts beside the mirrored ones, whose writers' clocks may be ahead.

        Raises Refused for a row that must not be dated later: it is restored, or its time alone, without an anchor,
        shows how far its job is.
        """
        stored = common.stamped(change, now_ms)
        times = [record.value(name).written_at_ms for record in there if record.topic != self._name]
        if stored is None:
            return topic_rows.encode_deleted(max(now_ms, *times)).encode() if times else None
        own_ms = -1 if stored.written_at_ms is None else stored.written_at_ms
        if own_ms >= max(times, default=-1):
            return topic_rows.restored_text(change.text, stored).encode()
        if change.restores or (stored.anchor is None and not stored.is_sentinel):
            when = "has no time of writing" if own_ms < 0 else f"was written at {own_ms} (epoch ms)"
            raise Refused(
                f"The row of group {name.group!r} for {change.key} {when}, and a mirrored one was written at "
                f"{max(times)} (epoch ms): in topic {self._name!r} it would not count. Nothing was written.",
                hint=_to_restore(there, self._name) if change.restores or own_ms < 0 else _COMPARE_CLOCKS,
            )
        return topic_rows.encode_value(replace(stored, written_at_ms=max(times))).encode()

    def _was_committed(self, group: str, token: bytes) -> bool:
        """True if a write was committed although its writer looked fenced.

        Raises OutcomeUnknown if that is not known.
        """
        try:
            looks = self._requests.look([self._name])
            if self._name not in looks:
                raise self._missing()
            return self._log(self._name, group).holds(looks[self._name], token)
        except ReconcilerError as err:
            raise OutcomeUnknown(
                f"Whether the rows were written to topic {self._name!r} is not known: the commit looked refused, and"
                f" whether it was could not be read: {err.message}",
                hint="Run this again: it reads what is there and writes only what is missing.",
            ) from err

    # ------------------------------------------------------------ the topic

    def create(self) -> None:
        """Create the topic, compacted and of one partition, unless it exists."""
        if self._name in self._requests.look([self._name]):
            return
        self._requests.create(self._name)
        insist(self._see, left_s=for_seconds(self._timeout_s))

    def _see(self) -> None:
        # The broker that answers the next request may not know the topic yet.
        if self._name not in self._requests.look([self._name]):
            raise Unreachable(f"Topic {self._name!r} was created, and is not visible yet.", hint="Run this again.")

    def check_writable(self, group: str) -> None:
        """Raise Refused if the topic is missing, would lose rows, or may not be written. Writes nothing."""
        common.check_name("group's name", group)
        look = self._requests.look([self._name]).get(self._name)
        if look is None:
            raise self._missing()
        if look.partitions != 1 or self._requests.is_compacted(self._name) is False:
            raise Refused(
                f"Topic {self._name!r} cannot keep rows: it must have one partition and cleanup.policy compact, or old"
                " rows are deleted.",
                hint=f"Run kafka-configs.sh --alter --topic {self._name} --add-config cleanup.policy=compact, or name"
                " another topic.",
            )
        if not look.may_write:
            raise Refused(
                f"This user may not write to topic {self._name!r}.",
                hint=f"Ask the cluster's administrator for Write on topic {self._name!r}.",
            )

    def _missing(self, *also: str) -> Refused:
        """The error for a cluster without NAME, and without the topics ``also``."""
        nor = f" (nor {' or '.join(map(repr, also))})" if also else ""
        return NotCreated(
            f"The cluster has no topic {self._name!r}{nor} to keep offsets in.",
            hint="Correct the store's address, or create the topic:"
            " reconciler anchors import -c FILE --job JOB /dev/null",
        )

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._writers.clear()
        if "_requests" in self.__dict__:
            self._requests.close()


def _to_restore(there: Sequence[_Record], name: str) -> str:
    """The hint for a row that keeps its time, or gets none: waiting helps nothing."""
    topics = " and ".join(sorted({record.topic for record in there if record.topic != name}))
    return (
        f"Let the mirrored row count. Or stop the mirror of {topics}, write ?mirrored= in the store's address, and run "
        f"this again: rows that only {topics} has are not read then."
    )


def open_address(
    address: str, *, kafka_client: Mapping[str, str] | None = None, timeout_s: float = common.KAFKA_TIMEOUT_S
) -> OffsetStore:
    """``kafka-topic:NAME`` or ``kafka-topic:NAME?mirrored=a.NAME``, on the cluster that ``kafka_client`` names.

    ``mirrored`` may be repeated; empty, no mirrored topic is read. ``timeout=SECONDS`` limits each answer, in
    the place of ``timeout_s``.
    """
    name, _, query = address.partition(":")[2].partition("?")
    wrong = partial(wrong_address, "The address of a kafka-topic: store", "kafka-topic:NAME?mirrored=a.NAME&timeout=10")
    parameters = Parameters(query, wrong, repeatable={"mirrored"})
    named = parameters.texts("mirrored")
    mirrored = [value for value in named or () if value]
    limit_s = parameters.timeout_s(timeout_s)
    parameters.check_all_known()
    for topic in (name, *mirrored):
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ConfigError(
                f"{topic!r} is not the name of a topic, in the address of a kafka-topic: store.",
                hint="Write kafka-topic:NAME, as in kafka-topic:offsets.",
            )
    if name in mirrored:
        raise ConfigError(f"Topic {name!r} cannot be its own mirrored copy.", hint="Leave ?mirrored= out.")
    if _NOT_MIRRORED.fullmatch(name):
        raise ConfigError(
            f"MirrorMaker does not mirror topic {name!r}: it takes the name for that of an internal topic.",
            hint="Choose one that does not begin with __ or a dot, nor end in .internal, -internal or .replica.",
        )
    client = require_client("kafka-topic", kafka_client)
    return KafkaTopicStore(client, name, mirrored if named else None, address=address, timeout_s=limit_s)
