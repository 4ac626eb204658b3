"""MirrorMaker 2 from one lab cluster to another, configured for a quick start and short intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from reconciler.core.errors import ConfigError
from reconciler.demo.lab.in_use import ClusterInUse
from reconciler.demo.lab.kafka import java_command
from reconciler.demo.lab.processes import Child

MIRROR_SECONDS = 120
T = TypeVar("T")


class MirrorMaker:
    """Copies ``topics`` from ``source`` to ``target``, and syncs group offsets as MirrorMaker 2 does.

    The clusters' names are the aliases: topic ``t`` of cluster ``a`` becomes ``a.t``. Two mirrors into one target from
    sources of one alias are one Connect cluster, also one after the other: the second starts with the first one's
    connectors. With a ``connect`` name it has a group and topics of its own. ``properties`` override or add lines of
    the configuration file; an empty one removes its line. ``detached``: it outlives this process.
    """

    def __init__(
        self,
        source: ClusterInUse,
        target: ClusterInUse,
        topics: Sequence[str],
        directory: Path,
        jars: Path,
        *,
        connect: str = "",
        properties: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> None:
        self.source = source
        self.target = target
        self.topics = tuple(topics)
        self.directory = directory.absolute()
        self.log = self.directory / "mirror.log"
        self._connect = connect
        self._jars = jars
        self._properties = dict(properties or {})
        self._detached = detached
        self._process: Child | None = None

    def start(self) -> Self:
        """Start it. The first record arrives some seconds later: see ``wait_until_mirrored``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "mm2.properties"
        file.write_text("".join(f"{k} = {v}\n" for k, v in self._settings().items()), encoding="utf-8")
        command = java_command(self._jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(file), heap="384m")
        name = f"MirrorMaker {self.source.name}->{self.target.name}"
        self._process = Child(name, command, self.log, cwd=self.directory, detached=self._detached)
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL: after a restart it re-sends the records that it had not committed."""
        if self._process is not None:
            self._process.kill()

    @property
    def process(self) -> Child:
        """Its process, running or not. Raises ConfigError if it was never started."""
        if self._process is None:
            raise ConfigError("MirrorMaker is not running.", hint="Start it first.")
        return self._process

    def target_topic(self, topic: str) -> str:
        """A source topic's name at the target."""
        return f"{self.source.name}.{topic}"

    def wait_until_mirrored(self, topic: str, ends: Mapping[int, int] | None = None) -> dict[int, int]:
        """Wait until the target has the source's last committed record of each partition as its own last, and ends at
        ``ends`` or later; returns its end offsets. Where the source's log ends with aborted records, wait for the end.

        Without ``ends``: as many records per partition as the source holds now, which is right for a topic without
        compaction and transactions whose mirroring began with these records. They alone do not tell: MirrorMaker sends
        records again when its task has to start again, as on a busy machine.
        """
        there = self.target_topic(topic)
        if ends is None:
            starts = self.source.start_offsets(topic)
            ends = {number: end - starts[number] for number, end in self.source.end_offsets(topic).items()}
        wanted = dict(ends)

        def arrived() -> dict[int, int] | None:
            now = self.target.end_offsets(there)
            reaches = all(now.get(number, -1) >= end for number, end in wanted.items())
            return now if reaches and self.target.ends_as(there, self.source, topic) else None

        return self.wait_until(arrived, MIRROR_SECONDS, f"topic {there} at {self.target.name} to reach {wanted}")

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """The first true answer of ``condition``. Fails at once if MirrorMaker has died."""
        return self.process.wait_until(condition, timeout, what)

    def _settings(self) -> dict[str, str]:
        a, b = self.source.name, self.target.name
        internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
        storage = ("config.storage", "offset.storage", "status.storage")
        settings = {
            "clusters": f"{a}, {b}",
            f"{a}.bootstrap.servers": self.source.bootstrap,
            f"{b}.bootstrap.servers": self.target.bootstrap,
            f"{a}->{b}.enabled": "true",
            f"{a}->{b}.topics": ", ".join(self.topics),
            f"{a}->{b}.groups": ".*",
            f"{b}->{a}.enabled": "false",
            "replication.factor": "1",
            **{f"{name}.replication.factor": "1" for name in internal + storage},
            # Each partition of Connect's own topics makes the start slower.
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "tasks.max": "1",
            # Heartbeats would start a second worker, for the reverse direction.
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "true",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.topics.interval.seconds": "2",
            "refresh.groups.interval.seconds": "2",
            "sync.topic.acls.enabled": "false",
            # Settings of the Connect worker reach it only under the target's alias. Without these two lines each of
            # two passes reads every class of the class path for plugins, which is most of the start's time.
            "plugin.discovery": "service_load",
            f"{b}.plugin.discovery": "service_load",
            f"{b}.offset.flush.interval.ms": "1000",
            f"{b}.scheduled.rebalance.max.delay.ms": "0",
            "dedicated.mode.enable.internal.rest": "false",
        }
        if self._connect:
            settings[f"{b}.group.id"] = f"{self._connect}-mm2"
            for kind in ("config", "offset", "status"):
                settings[f"{b}.{kind}.storage.topic"] = f"mm2-{kind}.{self._connect}.internal"
        return {name: value for name, value in {**settings, **self._properties}.items() if value}
