"""What a hand-off must know of the destination's topics that no plan says. Asks the cluster; needs no pyspark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from reconciler.core.errors import ConfigError, NeedsPerson

TIMEOUT_S = 10.0

Client = Mapping[str, str]
"""librdkafka properties, ``bootstrap.servers`` among them."""


def topics_matching(client: Client, pattern: str) -> list[str]:
    """The names of the cluster's topics that the regular expression matches as a whole, as ``subscribePattern`` does.

    Raises ConfigError for an expression that cannot be read and where no topic matches, Unreachable or Refused if the
    cluster cannot be asked.
    """
    from confluent_kafka import KafkaException

    from reconciler.kafka.connection import Connection

    wanted = compiled(pattern)
    connection, doing = Connection(client, timeout_s=TIMEOUT_S, whose="job's"), "list the topics"
    try:
        names = connection.admin().list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise connection.failure(error, doing) from error
    found = sorted(name for name in names if wanted.fullmatch(name))
    if not found:
        raise ConfigError(
            f'No topic of the cluster at {client["bootstrap.servers"]} matches "{pattern}".',
            hint="A pattern must match a topic's whole name; in it, a dot stands for any character.",
        )
    return found


def partitions_of(client: Client, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The numbers of the topics' partitions. Raises ConfigError for a topic that is not there, else as above."""
    from reconciler.kafka.reader import KafkaLogReader

    names = sorted(set(topics))
    reader = KafkaLogReader(client, timeout_s=TIMEOUT_S, who="job's")
    try:
        found = reader.describe(names).topics
    finally:
        reader.close()
    absent = [name for name in names if name not in found]
    if absent:
        raise ConfigError(
            f"The cluster at {client['bootstrap.servers']} has no topic {', '.join(absent)}.",
            hint="Correct the name; or make the topic first, for Spark cannot subscribe to one that is not there.",
        )
    return {name: found[name].partitions for name in names}


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression, where it means the same in Python and in Java. Raises ConfigError where it may not."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f'The pattern "{pattern}" is not a regular expression that is read here: {error}.',
            hint="Use what Java and Python have in common: characters, classes, groups, | * + ? and {n}.",
        ) from error


def require_planned(planned: Mapping[str, Mapping[str, int]], there: Mapping[str, Iterable[int]]) -> None:
    """Raise NeedsPerson where a planned topic has got partitions since: Spark would be told of too few."""
    for topic, partitions in planned.items():
        new = sorted(set(there.get(topic, ())) - {int(number) for number in partitions})
        if new:
            raise NeedsPerson(
                f"{topic} has partitions that the plan does not know: {', '.join(map(str, new))}.",
                hint="Make the plan again: the topic has grown since.",
            )
