"""The requests about topics of a cluster, with this product's errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic, OffsetSpec, TopicDescription

from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.kafka.errors import FORBIDDEN, LEADER_MOVING, TOPIC_GONE, Needs
from reconciler.kafka.requests import Admin, code_of, may_have_happened
from reconciler.retry import insist
from reconciler.waits import for_seconds

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "60000",
    "segment.ms": "3600000",
}
"""About an hour of history stays: only closed segments are compacted. A writer that lost a race looks for its records
within a minute of writing them, and they must not be compacted by then."""

NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})


@dataclass(frozen=True, slots=True)
class Look:
    """A topic that exists."""

    name: str
    topic_id: str
    partitions: int
    may_write: bool


class TopicRequests:
    """One cluster's topics. Every method raises Unreachable and Refused as ``Admin.call`` does."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        self._admin = Admin(client, timeout_s=timeout_s)
        self._timeout_s = timeout_s

    def close(self) -> None:
        self._admin.close()

    def look(self, names: Iterable[str]) -> dict[str, Look]:
        """Those of the topics that exist. Raises Refused for one that this user may not describe."""
        asked = sorted(names)

        def ask(client: AdminClient, timeout_s: float) -> dict[str, Look]:
            found = {}
            for name, topic in described(client, asked, timeout_s):
                if isinstance(topic, KafkaException):
                    raise topic
                may_write = allows(AclOperation.WRITE, topic.authorized_operations)
                found[name] = Look(name, str(topic.topic_id), len(topic.partitions), may_write)
            return found

        what = " and ".join(repr(name) for name in asked)
        return self._admin.look_up(
            f"look up topic {what}", ask, Needs(topic=f"Describe on topic {what} (Read, to read it)")
        )

    def edges(self, topic: str) -> tuple[int, int]:
        """The topic's only partition: its first offset, and the offset after its last record, committed or not."""
        place = KafkaPartition(topic, 0)
        doing, needs = f"look up the offsets of topic {topic!r}", Needs(topic=f"Describe on topic {topic!r}")

        def edge(spec: OffsetSpec) -> int:
            def ask(client: AdminClient, timeout_s: float) -> int:
                futures = client.list_offsets(
                    {place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
                )
                offset = int(futures[place].result().offset)
                if offset < 0:  # librdkafka 2.16 says -1001, and no error, where the broker stays silent
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                return offset

            return self._admin.call(doing, ask, needs)

        def once() -> tuple[int, int]:
            return edge(OffsetSpec.earliest()), edge(OffsetSpec.latest())

        # A topic just created, or a broker just started, has no leader for a moment.
        return insist(once, left_s=for_seconds(self._timeout_s), helps=_has_no_leader_yet)

    def is_compacted(self, topic: str) -> bool | None:
        """Whether the topic's only cleanup policy is compaction; None if this user may not see its settings."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

        def ask(client: AdminClient, timeout_s: float) -> bool | None:
            try:
                found = client.describe_configs([resource], request_timeout=timeout_s)[resource].result()
            except KafkaException as err:
                if code_of(err) in FORBIDDEN:
                    return None
                raise
            return bool(found["cleanup.policy"].value == "compact")

        return self._admin.call(f"look up the settings of topic {topic!r}", ask, Needs())

    def mirrored(self, topic: str) -> list[str]:
        """Topics that may be mirrored copies of a source's topic of this name, by MirrorMaker's default policy.

        They are called ``ALIAS.topic``, compacted, and have one partition. Raises Refused or Unreachable if that is not
        known.
        """

        def ask(client: AdminClient, timeout_s: float) -> list[str]:
            found = []
            for name, about in client.list_topics(timeout=timeout_s).topics.items():
                alias = name.removesuffix(f".{topic}")
                if alias == name or not alias or "." in alias:
                    continue
                if about.error is not None and about.error.code() not in NO_TOPIC:
                    raise KafkaException(about.error)  # its partitions are not known yet
                if len(about.partitions) == 1:
                    found.append(name)
            return found

        def once() -> list[str]:
            return self._admin.call("list the topics", ask, Needs())

        candidates = []
        for name in sorted(insist(once, left_s=for_seconds(self._timeout_s), helps=_has_no_leader_yet)):
            compacted = self.is_compacted(name)
            if compacted is None:
                raise Refused(
                    f"Whether topic {name!r} is a mirrored copy of {topic!r} is not known: this user may not see"
                    " its settings.",
                    hint=f"Name it in the store's address, as kafka-topic:{topic}?mirrored={name} (or"
                    " ?mirrored= for none), or ask for DescribeConfigs on it.",
                )
            if compacted:
                candidates.append(name)
        return candidates

    def create(self, topic: str) -> None:
        """Create the topic with one partition and the cluster's default replication, unless it exists."""

        def ask(client: AdminClient, timeout_s: float) -> None:
            new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=SETTINGS)
            try:
                client.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)[topic].result()
            except KafkaException as err:
                if code_of(err) != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        try:
            self._admin.call(f"make topic {topic!r}", ask, Needs(topic=f"Create on topic {topic!r}"))
        except Unreachable as err:
            if may_have_happened(err.__cause__):
                raise OutcomeUnknown(
                    f"Whether topic {topic!r} was made is not known: {err.message}", hint="Run this again."
                ) from err
            raise


def described(
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
            if code_of(err) not in NO_TOPIC:
                yield name, err


def allows(operation: AclOperation, allowed: Sequence[AclOperation] | None) -> bool:
    """Whether a broker allows an operation; an old broker does not say, and is taken to allow it."""
    return not allowed or operation in allowed or AclOperation.ALL in allowed


def _has_no_leader_yet(error: BaseException) -> bool:
    code = code_of(error.__cause__)
    return code in LEADER_MOVING or code in TOPIC_GONE
