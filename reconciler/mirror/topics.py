"""Recognizes the mirrors that fill a cluster by the names of its topics. Pure.

MirrorMaker 2 keeps topics of its own at the destination of a flow (Kafka's ``DefaultReplicationPolicy``; KIP-382, and
KIP-690 for the separator in their names): ``ALIAS.checkpoints.internal``, ``ALIAS.heartbeats``, and at the source of
one, or where ``offset-syncs.topic.location = target`` says so, ``mm2-offset-syncs.ALIAS.internal``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.core.policies import TopicPolicy

_SEPARATOR = r"(?P<separator>[^A-Za-z0-9]+)"
_CHECKPOINTS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}checkpoints(?P=separator)internal")
_HEARTBEATS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}heartbeats")
_OFFSET_SYNCS = re.compile(rf"mm2-offset-syncs{_SEPARATOR}(?P<alias>.+)(?P=separator)internal")
_OTHER_SEPARATORS = (".", "_", "-")


@dataclass(frozen=True, slots=True)
class Mirror:
    """One source that is mirrored here: its alias, the policy for its topics' names, and its topics here.

    ``seen`` are MirrorMaker's own topics that reveal it; empty if a person named the mirror.
    """

    alias: str | None
    policy: TopicPolicy
    separator: str
    topics: tuple[str, ...]
    seen: tuple[str, ...] = ()

    def source_of(self, topic: str) -> str:
        """The source's name of a mirrored topic."""
        return topic.removeprefix(f"{self.alias}{self.separator}") if self.policy is TopicPolicy.DEFAULT else topic


def mirrors(topics: Iterable[str]) -> list[Mirror]:
    """Every source that is mirrored to a cluster with these topics, the one with most topics first."""
    names = sorted(topics)
    seen: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        for pattern in (_OFFSET_SYNCS, _CHECKPOINTS, _HEARTBEATS):
            if found := pattern.fullmatch(name):
                seen.setdefault(found["alias"], []).append((name, found["separator"]))
                break
    found_here = [_mirror(alias, marks, names) for alias, marks in seen.items()]
    return sorted((each for each in found_here if each.topics), key=lambda each: -len(each.topics))


def named(alias: str | None, policy: TopicPolicy, separator: str, topics: Iterable[str]) -> Mirror:
    """The mirror that a person names."""
    plain = [name for name in topics if not is_internal(name)]
    begins = f"{alias}{separator}" if policy is TopicPolicy.DEFAULT else ""
    return Mirror(alias, policy, separator, tuple(sorted(name for name in plain if name.startswith(begins))))


def checkpoints_topic(alias: str, separator: str) -> str:
    """MirrorMaker's topic with the checkpoints of the flow from ``alias``."""
    return f"{alias}{separator}checkpoints{separator}internal"


def is_source(topics: Iterable[str]) -> bool:
    """Whether these are the topics of a cluster that is a source: MirrorMaker keeps offset syncs there."""
    return any(_OFFSET_SYNCS.fullmatch(name) for name in topics)


def is_internal(name: str) -> bool:
    """True for topics that no job reads: Kafka's, Connect's and MirrorMaker's own."""
    if name.startswith(("__", "mm2-")) or name.endswith((".internal", "-internal", "_internal")):
        return True
    return name == "heartbeats" or _HEARTBEATS.fullmatch(name) is not None


def _mirror(alias: str, marks: list[tuple[str, str]], names: list[str]) -> Mirror:
    """The default policy if topics have the alias in front; the identity policy if none has."""
    seen = tuple(name for name, _ in marks)
    for separator in dict.fromkeys([*(separator for _, separator in marks), *_OTHER_SEPARATORS]):
        found = named(alias, TopicPolicy.DEFAULT, separator, names)
        if found.topics:
            return Mirror(alias, TopicPolicy.DEFAULT, separator, found.topics, seen)
    kept: tuple[str, ...] = ()
    if any(_CHECKPOINTS.fullmatch(name) for name in seen):
        kept = named(None, TopicPolicy.IDENTITY, ".", names).topics
    return Mirror(alias, TopicPolicy.IDENTITY, ".", kept, seen)
