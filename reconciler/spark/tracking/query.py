"""A running query as its driver sees it: its checkpoint, its Kafka sources, and what it does now.

The sources are internals of Spark, the same in 3.5.7, 4.0.4, 4.1.4, 4.2.1 and 4.3.0. Where one is not as expected, the
query cannot be recorded here, and goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import ConfigError

SERVERS, ISOLATION = "kafka.bootstrap.servers", "kafka.isolation.level"
BEGUN = ("Processing", "No new data but")
"""How Spark's status begins while a batch runs."""
_LOCAL = re.compile(r"file:/+")


def unseen(why: str) -> ConfigError:
    """The error for a query that this driver cannot record, because of ``why``."""
    return ConfigError(
        f"The query cannot be recorded by its driver: {why}.",
        hint="Record this job from outside of its driver: reconciler track",
    )


class Source(NamedTuple):
    """A Kafka source. ``topics``: None for those of a pattern or of single partitions."""

    topics: frozenset[str] | None
    servers: str
    is_committed_only: bool

    def reads(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


class SparkQuery:
    """A query of classic Spark. Raises ConfigError for one that cannot be seen, as over Spark Connect."""

    def __init__(self, query: Any) -> None:
        self._query = query
        java = getattr(query, "_jsq", None)
        if java is None:
            raise unseen("Spark Connect does not show its checkpoint")
        try:
            running = java.streamingQuery() if hasattr(java, "streamingQuery") else java
            self.checkpoint = _LOCAL.sub("/", str(running.resolvedCheckpointRoot()))
            self.sources = _sources(running.analyzedPlan())
        except Exception as error:
            raise unseen(f"this version of Spark does not show its sources ({type(error).__name__})") from error
        self._java = java
        self._changed = 0
        self._newest: int | None = None

    @property
    def is_active(self) -> bool:
        try:
            return bool(self._java.isActive())
        except Exception:  # noqa: BLE001 - the JVM has ended: its errors are of many kinds
            return False

    @property
    def begun(self) -> object:
        """Changes when a batch begins: the newest entry of a local offset log; elsewhere, Spark's status in memory."""
        if not os.path.isabs(self.checkpoint):
            with suppress(Exception):  # the JVM has ended
                return str(self._java.status().message()).startswith(BEGUN)
        offsets = os.path.join(self.checkpoint, "offsets")
        with suppress(OSError):  # not written yet
            changed = os.stat(offsets).st_mtime_ns
            if changed != self._changed:
                self._changed, names = changed, os.listdir(offsets)
                self._newest = max((int(name) for name in names if name.isdecimal()), default=None)
        return self._newest

    def stop(self) -> None:
        self._query.stop()

    def is_committed_only(self, topic: str) -> bool:
        """Whether it reads committed records only. Of two sources, both have read those."""
        return any(source.is_committed_only for source in self.sources if source.reads(topic))

    def topics_at(self, servers: str, topics: Collection[str]) -> set[str]:
        """Those of ``topics`` that it reads from this cluster alone."""
        here = [source for source in self.sources if shared_brokers(source.servers, servers)]
        elsewhere = [source for source in self.sources if source not in here]
        read = {topic for topic in topics if any(source.reads(topic) for source in here)}
        return {topic for topic in read if not any(source.reads(topic) for source in elsewhere)}


def _sources(plan: Any) -> tuple[Source, ...]:
    leaves = plan.collectLeaves()
    found = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if (
            leaf.isStreaming()
            and leaf.getClass().getSimpleName() == "StreamingRelationV2"
            and leaf.sourceName() == "kafka"
        ):
            options = leaf.extraOptions()  # finds names in any case
            names = options.get("subscribe")
            topics = None if names is None else frozenset(name.strip() for name in str(names).split(","))
            committed = options.get(ISOLATION) == "read_committed"
            found.append(Source(topics, str(options.get(SERVERS) or ""), committed))
    return tuple(found)
