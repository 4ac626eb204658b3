"""Streams: one topic of one origin cluster, under whatever name each cluster gives it. Pure.

``events@a`` is ``events`` on a, where it is produced, and ``a.events`` on b with MirrorMaker's default policy. A job
that also reads what is produced on b reads ``events@b``, too: ``events`` on b, ``b.events`` on a. Where both clusters
use one name, the records of both origins are in one topic, so there is one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.core.question import TopicPolicy, TopicTemplate


class Stream(NamedTuple):
    """A topic and the cluster that produces it."""

    topic: str
    origin: str

    def __str__(self) -> str:
        return f"{self.topic}@{self.origin}"

    @classmethod
    def parse(cls, text: str) -> Stream:
        """``TOPIC@CLUSTER``. Raises ValueError: the end of a sentence."""
        topic, at, origin = text.rpartition("@")
        if not (at and topic and origin):
            raise ValueError("is not TOPIC@CLUSTER")
        return cls(topic, origin)


@dataclass(frozen=True, slots=True)
class Naming:
    """How mirrors name topics: ``[topics]``.

    ``template`` replaces the policy. ``names`` are exceptions by cluster, for chained or renamed topics.
    """

    policy: TopicPolicy = TopicPolicy.DEFAULT
    separator: str = "."
    template: str = ""
    names: Mapping[str, Mapping[Stream, str]] = field(default_factory=dict)

    @property
    def is_identity(self) -> bool:
        return self.policy is TopicPolicy.IDENTITY and not self.template

    def name_on(self, stream: Stream, cluster: str) -> str:
        """The stream's topic on ``cluster``."""
        named = self.names.get(cluster, {}).get(stream)
        if named is not None:
            return named
        if cluster == stream.origin or self.is_identity:
            return stream.topic
        if self.template:
            return TopicTemplate.of(self.template, stream.origin).name_of(stream.topic)
        return f"{stream.origin}{self.separator}{stream.topic}"

    def stream_of(self, topic: str, cluster: str, clusters: Iterable[str]) -> Stream:
        """The stream that is ``topic`` on ``cluster``. ``clusters``: all that may be origins.

        Under one name, the origin is not known by the topic: it is said to be ``cluster``.
        """
        for stream, name in self.names.get(cluster, {}).items():
            if name == topic:
                return stream
        for origin in sorted(clusters, key=len, reverse=True):
            plain = None if origin == cluster else self._mirrored_as(topic, origin)
            if plain is not None:
                return Stream(plain, origin)
        return Stream(topic, cluster)

    def _mirrored_as(self, topic: str, origin: str) -> str | None:
        """The topic's name at its origin; None if no mirror of ``origin`` gives it this name."""
        if self.is_identity:
            return None
        if self.template:
            return TopicTemplate.of(self.template, origin).source_of(topic)
        front = f"{origin}{self.separator}"
        return topic.removeprefix(front) if topic.startswith(front) and topic != front else None

    def streams(self, topics: Iterable[str], home: str, origins: Sequence[str]) -> tuple[Stream, ...]:
        """The streams of a job: its topics of each origin. Under one name, an origin adds nothing."""
        found = [Stream(topic, origin) for topic in topics for origin in (origins or [home])]
        if not self.is_identity:
            return tuple(found)
        return tuple(dict.fromkeys(Stream(each.topic, home) for each in found))

    def by_name(self, streams: Iterable[Stream], cluster: str) -> dict[str, Stream]:
        """The streams by their topics on ``cluster``. Raises ValueError where two have one name."""
        found: dict[str, Stream] = {}
        for stream in streams:
            name = self.name_on(stream, cluster)
            if name in found:
                raise ValueError(f"{found[name]} and {stream} are both {name} on {cluster}")
            found[name] = stream
        return found

    def is_mirrored_back(self, stream: Stream, clusters: Iterable[str]) -> bool:
        """True if a mirror may add to the stream's topics on both of ``clusters``, in turn.

        One that names topics after their origin never writes to the origin's own.
        """
        by_origin = "{cluster}" in self.template if self.template else not self.is_identity
        return not by_origin or any(stream in self.names.get(each, {}) for each in clusters)

    def is_shared(self, streams: Sequence[Stream], stream: Stream, cluster: str, clusters: Iterable[str]) -> bool:
        """True if the name of ``stream`` on ``cluster`` is also a name of the job's streams on another cluster."""
        name = self.name_on(stream, cluster)
        others = [each for each in clusters if each != cluster]
        return any(self.name_on(each, other) == name for other in others for each in streams)
