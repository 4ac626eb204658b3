"""Lists a cluster's topics and groups. Reads only, and creates nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka.admin import AdminClient

from reconciler.kafka.errors import Needs
from reconciler.kafka.requests import Admin

TIMEOUT_S = 10.0


class Surveyor:
    """A cluster by its client settings. Every method raises Unreachable and Refused as ``Admin.call`` does."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> None:
        self._admin = Admin(client, timeout_s=timeout_s)

    def topics(self) -> dict[str, int]:
        """Names of all topics that this user may describe, internal ones too, and their numbers of partitions."""

        def ask(client: AdminClient, timeout_s: float) -> dict[str, int]:
            listed = client.list_topics(timeout=timeout_s).topics
            return {name: len(topic.partitions) for name, topic in sorted(listed.items()) if topic.error is None}

        return self._admin.call("list the topics", ask, Needs(topic="Describe on the topics"))

    def groups(self) -> list[str]:
        """Names of all consumer groups that this user may describe."""

        def ask(client: AdminClient, timeout_s: float) -> list[str]:
            listed = client.list_consumer_groups(request_timeout=timeout_s).result()
            if listed.errors and not listed.valid:
                raise listed.errors[0]
            return sorted(group.group_id for group in listed.valid)

        return self._admin.call("list the groups", ask, Needs(group="Describe on the groups"))

    def close(self) -> None:
        self._admin.close()


def topics_of(client: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> list[str]:
    """The names of all topics that this user may describe. Raises as ``Surveyor`` does."""
    with closing(Surveyor(client, timeout_s=timeout_s)) as surveyor:
        return list(surveyor.topics())
