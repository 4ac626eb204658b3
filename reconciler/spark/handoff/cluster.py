"""The destination's topics and partitions that a hand-off needs beyond the plan. Asks the cluster; needs no pyspark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from reconciler.core.errors import ConfigError, NeedsPerson, ReconcilerError
from reconciler.near import MOST_NAMES, near_topics

TIMEOUT_S = 10.0
NO_TOPIC = "Correct the name, or create the topic first: Spark cannot subscribe to one that does not exist."

Client = Mapping[str, str]
"""librdkafka properties, ``bootstrap.servers`` among them."""

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, which no ``subscribePattern`` reads (``Topic.INTERNAL_TOPICS`` of Kafka's clients)."""
_FLAGS = re.compile(r"(?:\(\?[A-Za-z]+\))*")
"""Flags such as ``(?i)``, which Python takes at an expression's start only."""


def topics_matching(client: Client, pattern: str) -> list[str]:
    """The names of the cluster's topics that Spark reads by this ``subscribePattern``.

    These are the names in which the expression is found anywhere, unless it says where (``whole``). Source: Spark 4.0.4
    and 4.2.0 (``SubscribePatternStrategy``).

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


def whole(pattern: str) -> str:
    """The expression for whole names, whether it is searched for (as Spark does) or compared."""
    flags = _FLAGS.match(pattern)
    assert flags is not None
    return f"{flags[0]}^(?:{pattern[flags.end() :]})$"


def partitions_of(client: Client, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The numbers of the topics' partitions. Raises ConfigError for a topic that does not exist, else as above."""
    from reconciler.kafka.reader import KafkaLogReader

    names = sorted(set(topics))
    with closing(KafkaLogReader(client, timeout_s=TIMEOUT_S, who="job's")) as reader:
        found = reader.describe(names).topics
    absent = [name for name in names if name not in found]
    if absent:
        raise ConfigError(
            f"The cluster at {client['bootstrap.servers']} has no topic {', '.join(absent)}.",
            hint=f"{near_topics_of(client, absent)}{NO_TOPIC}",
        )
    return {name: found[name].partitions for name in names}


def near_topics_of(client: Client, absent: Sequence[str]) -> str:
    """A sentence about the topics that may be meant; empty where none is like them, or they cannot be listed."""
    if "bootstrap.servers" not in client:
        return ""
    from reconciler.kafka.requests import topics_of

    try:
        there = topics_of(client, timeout_s=TIMEOUT_S)
    except ReconcilerError:
        return ""
    near = sorted({each for name in absent[:MOST_NAMES] for each in near_topics(name, name, there)})[:MOST_NAMES]
    return f"It has {', '.join(near)}. " if near else ""


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled expression. Raises ConfigError if Python cannot read it."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f'The pattern "{pattern}" is not a regular expression that Python reads: {error}.',
            hint="Use what Java and Python have in common: characters, classes, groups, | * + ? and {n}.",
        ) from error


def require_planned(planned: Mapping[str, Mapping[str, int]], there: Mapping[str, Iterable[int]]) -> None:
    """Raise NeedsPerson if a planned topic has new partitions: Spark needs an offset for each."""
    for topic, partitions in planned.items():
        new = sorted(set(there.get(topic, ())) - {int(number) for number in partitions})
        if new:
            raise NeedsPerson(
                f"{topic} has partitions that are not in the plan: {', '.join(map(str, new))}.",
                hint="Make the plan again: the topic has grown since.",
            )


def refuse_unmatched(topics: Iterable[str], pattern: str, job: str) -> None:
    """Raise ConfigError for topics that were added to those of a pattern: Spark would not start the query."""
    wanted = compiled(pattern)
    if left_out := sorted(topic for topic in topics if not wanted.search(topic)):
        raise ConfigError(
            f'The pattern "{pattern}" of job {job} does not match {", ".join(left_out)}, which also() or joined() '
            "added.",
            hint="Let the pattern match these topics, too; or name all topics with also(), without matching().",
        )
