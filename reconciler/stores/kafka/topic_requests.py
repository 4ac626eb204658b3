"""What the topic store asks a cluster about its topics, in this product's words and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic, OffsetSpec

from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.kafka.errors import FORBIDDEN, LEADER_MOVING, TOPIC_GONE, Needs
from reconciler.kafka.requests import Admin, code_of, may_have_happened
from reconciler.retry import insist

T = TypeVar("T")

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "60000",
    "segment.ms": "3600000",
}
"""A history of about an hour stays: only closed segments are compacted. What lost a race is looked for within a minute
of its writing, and must not be compacted away by then."""

_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})


@dataclass(frozen=True, slots=True)
class Look:
    """A topic that exists."""

    name: str
    topic_id: str
    partitions: int
    may_write: bool


class Requests:
    """One cluster's topics. Every method raises Unreachable and Refused as ``Admin.call`` does."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        self._admin = Admin(client, timeout_s=timeout_s)
        self._timeout_s = timeout_s

    def close(self) -> None:
        self._admin.close()

    def look(self, names: Iterable[str]) -> dict[str, Look]:
        """Those of the topics that exist. Raises Refused for one that may not be described."""
        asked = sorted(names)

        def ask(client: AdminClient, timeout_s: float) -> dict[str, Look]:
            futures = client.describe_topics(
                TopicCollection(asked), include_authorized_operations=True, request_timeout=timeout_s
            )
            found = {}
            for name, future in futures.items():
                try:
                    topic = future.result()
                except KafkaException as err:
                    if code_of(err) in _NO_TOPIC:
                        continue
                    raise
                allowed = topic.authorized_operations
                may_write = not allowed or AclOperation.WRITE in allowed or AclOperation.ALL in allowed
                found[name] = Look(name, str(topic.topic_id), len(topic.partitions), may_write)
            return found

        what = " and ".join(repr(name) for name in asked)
        return self._admin.call(
            f"look up topic {what}", ask, Needs(topic=f"Describe on topic {what} (Read, to read it)")
        )

    def edges(self, topic: str) -> tuple[int, int]:
        """The first offset of the topic's only partition, and the one after the last record, finished or not."""
        place = KafkaPartition(topic, 0)

        def edge(spec: OffsetSpec) -> Callable[[AdminClient, float], int]:
            def ask(client: AdminClient, timeout_s: float) -> int:
                futures = client.list_offsets(
                    {place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
                )
                return int(futures[place].result().offset)

            return ask

        doing, needs = f"look up the offsets of topic {topic!r}", Needs(topic=f"Describe on topic {topic!r}")
        began = monotonic()

        def once() -> tuple[int, int]:
            first, last = edge(OffsetSpec.earliest()), edge(OffsetSpec.latest())
            return self._admin.call(doing, first, needs), self._admin.call(doing, last, needs)

        # A topic just made, or a broker just started, has no leader for a moment.
        return insist(once, give_up=lambda: monotonic() - began >= self._timeout_s, helps=_has_no_leader_yet)

    def is_compacted(self, topic: str) -> bool | None:
        """Whether compaction alone removes records; None where this user may not know."""
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
        """Topics that MirrorMaker's default policy may have made of a source's topic of this name.

        Those called ``ALIAS.topic``, with one partition, that are compacted. Raises Refused where that is not known.
        """

        def ask(client: AdminClient, timeout_s: float) -> list[str]:
            known = client.list_topics(timeout=timeout_s).topics
            return [name for name, about in known.items() if len(about.partitions) == 1]

        candidates = []
        for name in sorted(self._admin.call("list the topics", ask, Needs())):
            alias = name.removesuffix(f".{topic}")
            if alias != name and alias and "." not in alias:
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
        """Make the topic with one partition and the cluster's default replication. One that is there is no error."""

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


def _has_no_leader_yet(error: BaseException) -> bool:
    code = code_of(error.__cause__)
    return code in LEADER_MOVING or code in TOPIC_GONE
