"""Recognizes the mirrors that fill a cluster by the names of its topics. Pure.

MirrorMaker 2 keeps topics of its own at the destination of a flow (Kafka's ``DefaultReplicationPolicy``; KIP-382, and
KIP-690 for the separator in their names): ``ALIAS.checkpoints.internal``, ``ALIAS.heartbeats``, and at the source of
one, or where ``offset-syncs.topic.location = target`` says so, ``mm2-offset-syncs.ALIAS.internal``. Its dedicated mode
adds those of its Connect worker, always with dots: ``mm2-offsets.ALIAS.internal``. With an empty alias and an empty
separator, which keep the topics' names, only these still hold the source's name. An empty alias alone puts the
separator in front of every name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from reconciler.config.settings import MirrorSettings
from reconciler.core.question import TopicPolicy, TopicTemplate

_SEPARATOR = r"(?P<separator>[^A-Za-z0-9]+)"
_CHECKPOINTS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}checkpoints(?P=separator)internal")
_HEARTBEATS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}heartbeats")
_OFFSET_SYNCS = re.compile(rf"mm2-offset-syncs{_SEPARATOR}(?P<alias>.+)(?P=separator)internal")
_WORKERS = re.compile(r"mm2-(?:configs|offsets|status)\.(?P<alias>.+)\.internal")
_ANY_CHECKPOINTS = re.compile(r".*checkpoints(?P<separator>[^A-Za-z0-9]*)internal")
USUAL_SEPARATORS = (".", "_", "-")
_OWN_KEYS = ("offset_syncs_topic", "checkpoints_topic")


@dataclass(frozen=True, slots=True)
class Mirror:
    """One source that is mirrored here: its alias, the policy for its topics' names, and its topics here.

    ``seen`` are MirrorMaker's own topics that reveal it; empty if the operator named the mirror. ``template``: the rule
    for the names, instead of the policy. ``own``: names of MirrorMaker's own topics that do not follow from these.
    """

    alias: str | None
    policy: TopicPolicy
    separator: str
    topics: tuple[str, ...]
    seen: tuple[str, ...] = ()
    template: str = ""
    own: MirrorSettings = field(default_factory=MirrorSettings)

    @property
    def rule(self) -> TopicTemplate:
        """How it names topics."""
        if self.template:
            return TopicTemplate.of(self.template, self.alias or "")
        return TopicTemplate(f"{self.alias}{self.separator}" if self.policy is TopicPolicy.DEFAULT else "", "")

    def source_of(self, topic: str) -> str:
        """The source's name of a mirrored topic."""
        found = self.rule.source_of(topic)
        return topic if found is None else found


def mirrors(topics: Iterable[str]) -> list[Mirror]:
    """Every source that is mirrored to a cluster with these topics, the one with most topics first."""
    names = sorted(topics)
    seen: dict[str, list[tuple[str, str]]] = {}
    workers: dict[str, list[str]] = {}
    for name in names:
        for pattern in (_OFFSET_SYNCS, _CHECKPOINTS, _HEARTBEATS):
            if found := pattern.fullmatch(name):
                seen.setdefault(found["alias"], []).append((name, found["separator"]))
                break
        if worker := _WORKERS.fullmatch(name):
            workers.setdefault(worker["alias"], []).append(name)
    found_here = [_mirror(alias, marks, names) for alias, marks in seen.items()]
    found_here += [_without_separator(alias, marks, names) for alias, marks in workers.items() if alias not in seen]
    if not workers:
        found_here.append(_without_separator(None, [], names))
    found_here += [_without_alias(mark, names) for mark in USUAL_SEPARATORS if checkpoints_topic("", mark) in names]
    return sorted((each for each in found_here if each.topics), key=lambda each: -len(each.topics))


def named(
    alias: str | None, policy: TopicPolicy, separator: str, topics: Iterable[str], *, template: str = ""
) -> Mirror:
    """The mirror that the operator names."""
    mirror = Mirror(alias, policy, separator, (), template=template)
    own = {"heartbeats", mirror.rule.name_of("heartbeats")}
    plain = (name for name in topics if not is_internal(name) and name not in own)
    return replace(mirror, topics=tuple(sorted(name for name in plain if mirror.rule.source_of(name) is not None)))


def checkpoints_topic(alias: str, separator: str) -> str:
    """MirrorMaker's topic with the checkpoints of the flow from ``alias``."""
    return f"{alias}{separator}checkpoints{separator}internal"


def own_names(alias: str, mark: str) -> MirrorSettings:
    """MirrorMaker's topics at the destination of a flow from ``alias``, whose names have ``mark`` as separator."""
    syncs = f"mm2-offset-syncs{mark}{alias}{mark}internal"
    return MirrorSettings(syncs, checkpoints_topic(alias, mark))


def is_source(topics: Iterable[str]) -> bool:
    """True if these are the topics of a source: MirrorMaker keeps offset syncs there."""
    return any(_OFFSET_SYNCS.fullmatch(name) for name in topics)


def is_internal(name: str) -> bool:
    """True for topics that no job reads: Kafka's, Connect's and MirrorMaker's own."""
    if name.startswith(("__", "mm2-")) or name.endswith((".internal", "-internal", "_internal")):
        return True
    if name == "heartbeats" or _HEARTBEATS.fullmatch(name) is not None:
        return True
    return _ANY_CHECKPOINTS.fullmatch(name) is not None


def _mirror(alias: str, marks: list[tuple[str, str]], names: list[str]) -> Mirror:
    """The default policy if topics have the alias in front; the identity policy if none has."""
    seen = tuple(name for name, _ in marks)
    for separator in dict.fromkeys([*(separator for _, separator in marks), *USUAL_SEPARATORS]):
        found = named(alias, TopicPolicy.DEFAULT, separator, names)
        if found.topics:
            return Mirror(alias, TopicPolicy.DEFAULT, separator, found.topics, seen)
    kept: tuple[str, ...] = ()
    if any(_CHECKPOINTS.fullmatch(name) for name in seen):
        kept = named(None, TopicPolicy.IDENTITY, ".", names).topics
    return Mirror(alias, TopicPolicy.IDENTITY, ".", kept, seen)


def _without_alias(mark: str, names: Sequence[str]) -> Mirror:
    """A mirror whose alias is empty, and whose separator is in front of each topic."""
    own = {key: name for key in _OWN_KEYS if (name := getattr(own_names("", mark), key)) in names}
    found = named(None, TopicPolicy.NAMES, mark, names, template=f"{mark}{{topic}}")
    return replace(found, seen=tuple(own.values()), own=MirrorSettings(**own))


def _without_separator(alias: str | None, seen: Sequence[str], names: Sequence[str]) -> Mirror:
    """A mirror whose separator is empty, by topics of its worker; its alias may be empty, too. Without a topic if it is
    another mirror."""
    for front in dict.fromkeys((alias or "", "")):
        own = own_names(front, "")
        here = [name for name in (own.offset_syncs_topic, own.checkpoints_topic) if name is not None and name in names]
        if here and front:
            return replace(named(front, TopicPolicy.DEFAULT, "", names), seen=(*seen, *here))
        if here:
            there = {key: name for key in _OWN_KEYS if (name := getattr(own, key)) in names}
            kept = named(None, TopicPolicy.IDENTITY, ".", names).topics
            return Mirror(alias, TopicPolicy.IDENTITY, ".", kept, (*seen, *here), own=MirrorSettings(**there))
    return Mirror(alias, TopicPolicy.IDENTITY, ".", ())
