"""The topics that a ``subscribePattern`` reads. Asks the cluster; needs no pyspark."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.core.errors import ConfigError

TIMEOUT_S = 10.0

Client = Mapping[str, str]
"""librdkafka properties, ``bootstrap.servers`` among them."""

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, which no ``subscribePattern`` reads (``Topic.INTERNAL_TOPICS`` of Kafka's clients)."""


def topics_matching(client: Client, pattern: str) -> list[str]:
    """The names of the cluster's topics that Spark reads by this ``subscribePattern``.

    These are the names in which the expression is found anywhere. Source: Spark 4.0.4 and 4.2.0
    (``SubscribePatternStrategy``).

    Raises ConfigError for an invalid expression and if no topic matches, Unreachable or Refused if the cluster cannot
    be reached.
    """
    from confluent_kafka import KafkaException

    from reconciler.kafka.connection import Connection

    wanted = compiled(pattern)
    connection, doing = Connection(client, timeout_s=TIMEOUT_S, whose="job's"), "list the topics"
    try:
        names = connection.admin().list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise connection.failure(error, doing) from error
    found = sorted(name for name in names if wanted.search(name) and name not in _INTERNAL)
    if not found:
        raise ConfigError(
            f'No topic of the cluster at {client["bootstrap.servers"]} matches "{pattern}".',
            hint="Correct the pattern. In it, a dot stands for any character.",
        )
    return found


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled expression. Raises ConfigError if Python cannot read it."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f'The pattern "{pattern}" is not a regular expression that Python reads: {error}.',
            hint="Use what Java and Python have in common: characters, classes, groups, | * + ? and {n}.",
        ) from error
