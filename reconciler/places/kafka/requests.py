"""The requests of the group store, with this product's errors.

A consumer that subscribes to nothing reads the committed offsets; it joins no group and disturbs no member. The admin
client's request for them aborts the whole process (librdkafka 2.16, its issue 5040) if a broker answers that another
broker is the group's coordinator, which happens whenever a coordinator is restarted or moved. A consumer sends the same
request and finds the new coordinator itself, but only for partitions that it is given: for all of a group's offsets,
those of all topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConsumerGroupDescription, TopicDescription

from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.kafka.errors import COORDINATOR_MOVING, ON_TOPIC, UNANSWERED, Needs
from reconciler.kafka.requests import Admin, Ask, code_of
from reconciler.places.kafka.group import Committed, GroupState, KnownTopic
from reconciler.ports import TopicPartition

AT_ONCE = 1_000
"""Partitions whose offsets are asked for in one request: librdkafka's time for an answer grows with their square."""
_LEAVES_OPEN = UNANSWERED | COORDINATOR_MOVING
"""Ends of a commit that was sent, after which it may have been done. A coordinator also says that it moves when its own
log has taken it, and a replica or its leadership was lost before the others had it: the next one may have it."""
_LIVE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
"""A broker's answers to a commit or deletion for a group that has members."""
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})
_NEVER_JOINS = {"enable.auto.commit": False, "enable.auto.offset.store": False, "isolation.level": "read_committed"}
"""read_committed: requests wait for offsets in an open transaction."""


class GroupRequests:
    """One cluster's groups. Every method raises Unreachable and Refused as ``Admin.call`` does."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        self._admin = Admin(client, timeout_s=timeout_s)
        self._consumers: dict[str, Consumer] = {}

    def close(self) -> None:
        while self._consumers:
            self._consumers.popitem()[1].close()
        self._admin.close()

    def committed(self, group: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The group's committed offsets of the given partitions. Waits for offsets in an open transaction."""
        asked = [KafkaPartition(key.topic, key.partition) for key in keys]

        def ask(client: AdminClient, timeout_s: float) -> list[KafkaPartition]:
            if group not in self._consumers:
                _described_group(client, group, timeout_s)  # else a consumer without permission retries without end
                self._consumers[group] = self._admin.connection.consumer({**_NEVER_JOINS, "group.id": group})
            try:
                parts = [asked[first : first + AT_ONCE] for first in range(0, len(asked), AT_ONCE)]
                rows = [row for part in parts for row in self._consumers[group].committed(part, timeout=timeout_s)]
            except KafkaException as error:
                self._consumers.pop(group).close()
                if code_of(error) in UNANSWERED and self._answers_about(group, asked, timeout_s):
                    raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)) from error
                raise
            for row in rows:
                if row.error is not None and row.error.code() not in _NO_TOPIC:
                    raise KafkaException(row.error)
            return rows

        if not asked:
            return {}
        rows = self._admin.call(f"read the offsets of group {group!r}", ask, _to_look_at(group))
        return {
            TopicPartition(row.topic, row.partition): Committed(row.offset, row.metadata or "")
            for row in rows
            if row.error is None and row.offset >= 0
        }

    def _answers_about(self, group: str, asked: Sequence[KafkaPartition], timeout_s: float) -> bool:
        """True if only an open transaction delayed the answer: a request that does not wait for one is answered."""
        consumer = self._admin.connection.consumer(
            {**_NEVER_JOINS, "isolation.level": "read_uncommitted", "group.id": group}
        )
        try:
            consumer.committed(list(asked), timeout=timeout_s)
        except KafkaException:
            return False
        finally:
            consumer.close()
        return True

    def all_committed(self, group: str) -> dict[TopicPartition, Committed]:
        """All of the group's committed offsets, of every topic that this user may describe.

        Each partition of the cluster is asked for: only the request that must not be used names none. Waits for
        offsets in an open transaction.
        """

        def ask(client: AdminClient, timeout_s: float) -> list[TopicPartition]:
            listed = client.list_topics(timeout=timeout_s).topics
            for topic in listed.values():
                if topic.error is not None and topic.error.code() not in _NO_TOPIC:
                    raise KafkaException(topic.error)  # its partitions are not known yet: the group may have offsets
            return [TopicPartition(name, number) for name, topic in listed.items() for number in topic.partitions]

        return self.committed(group, self._admin.call("list the topics", ask, Needs(topic="Describe on the topics")))

    def state(self, group: str) -> GroupState:
        """Whether the group has members, and who they are."""

        def ask(client: AdminClient, timeout_s: float) -> GroupState:
            found = _described_group(client, group, timeout_s)
            if found is None:
                return GroupState("DEAD")
            return GroupState(
                state=found.state.name,
                members=tuple(f"{member.client_id} at {member.host.lstrip('/')}" for member in found.members),
                may_commit=_allows(AclOperation.READ, found.authorized_operations),
            )

        return self._admin.call(f"look at the members of group {group!r}", ask, _to_look_at(group))

    def topics(self, names: Iterable[str], *, why: str) -> dict[str, KnownTopic]:
        """The existing ones of the topics. Creates none.

        Raises Refused if this user may not describe one: it may exist or not. ``why`` ends the error's sentence.
        """
        asked = sorted(names)
        if not asked:
            return {}
        hidden: dict[str, KafkaException] = {}

        def ask(client: AdminClient, timeout_s: float) -> dict[str, KnownTopic]:
            found = {}
            for name, topic in _described_topics(client, asked, timeout_s):
                if not isinstance(topic, KafkaException):
                    numbers = frozenset(partition.id for partition in topic.partitions)
                    found[name] = KnownTopic(numbers, _allows(AclOperation.READ, topic.authorized_operations))
                elif code_of(topic) in ON_TOPIC:
                    hidden[name] = topic
                else:
                    raise topic
            return found

        known = self._admin.look_up(f"look up {_some(asked)}, {why}", ask, Needs())
        if hidden:
            which = _some(sorted(hidden))
            needs = Needs(topic=f"Describe on {which} (Read to commit offsets), if there is such a topic")
            raise self._admin.connection.failure(next(iter(hidden.values())), f"look up {which}, {why}", needs)
        return known

    def commit(self, group: str, rows: Mapping[TopicPartition, Committed]) -> None:
        """Commit the rows as one request.

        Raises Refused if the broker accepted none, OutcomeUnknown if it accepted some or did not answer.
        """
        asked = [KafkaPartition(key.topic, key.partition, row.offset, row.metadata) for key, row in rows.items()]

        def ask(client: AdminClient, timeout_s: float) -> None:
            request = [ConsumerGroupTopicPartitions(group, asked)]
            futures = client.alter_consumer_group_offsets(request, request_timeout=timeout_s)
            answers = futures[group].result().topic_partitions
            failed = [answer for answer in answers if answer.error is not None]
            failed.sort(key=lambda answer: answer.error.code() not in _LEAVES_OPEN)
            if failed and len(failed) == len(answers):
                raise KafkaException(failed[0].error)  # of several, one that leaves the outcome open
            if failed:
                first = f"{failed[0].topic}:{failed[0].partition}: {failed[0].error.str()}"
                raise outcome_unknown(group, f"{len(failed)} of {len(answers)} rows were refused ({first}).")

        topics = _some(sorted({key.topic for key in rows}))
        needs = Needs(topic=f"Read on {topics}", group=f"Read on group {group!r}")
        self._send(group, f"commit offsets of group {group!r}", ask, needs)

    def _send(self, group: str, doing: str, ask: Ask[None], needs: Needs) -> None:
        was_sent = False

        def send(client: AdminClient, timeout_s: float) -> None:
            nonlocal was_sent
            was_sent = True
            ask(client, timeout_s)

        try:
            self._admin.call(doing, send, needs)
        except Unreachable as err:
            if was_sent and code_of(err.__cause__) in _LEAVES_OPEN:
                raise outcome_unknown(group, err.message) from err
            if code_of(err.__cause__) in _LIVE:
                raise Refused(
                    f"Could not {doing}: it has live members; nothing was written by this request.",
                    hint="Stop the job, wait until its members have left, then run again.",
                ) from err
            raise


def _described_group(client: AdminClient, group: str, timeout_s: float) -> ConsumerGroupDescription | None:
    """The group as a broker describes it, None if it does not exist."""
    futures = client.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=timeout_s)
    try:
        return futures[group].result()
    except KafkaException as err:
        if code_of(err) == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise


def _described_topics(
    client: AdminClient, names: Sequence[str], timeout_s: float
) -> Iterator[tuple[str, TopicDescription | KafkaException]]:
    """Each existing topic with its description, or with the error in its place."""
    futures = client.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=timeout_s
    )
    for name, future in futures.items():
        try:
            yield name, future.result()
        except KafkaException as err:
            if code_of(err) not in _NO_TOPIC:
                yield name, err


def _allows(operation: AclOperation, allowed: Sequence[AclOperation] | None) -> bool:
    """True if a broker allows an operation; an old broker does not say, and is taken to allow it."""
    return not allowed or operation in allowed or AclOperation.ALL in allowed


def outcome_unknown(group: str, what: str) -> OutcomeUnknown:
    """The error for a write that was sent, and may have happened in whole, in part or not at all."""
    return OutcomeUnknown(
        f"Whether all offsets of group {group!r} were written is not known: {what}",
        hint="Run apply again: it reads what is there and writes only what is missing.",
    )


def _to_look_at(group: str) -> Needs:
    return Needs(group=f"Describe on group {group!r} (Read to commit offsets there, Delete to remove all of them)")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return f"topic{'s' if len(names) > 1 else ''} {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
