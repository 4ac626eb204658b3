"""The cluster that jobs leave: its log, and the commits of their groups there. It may be lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing

from reconciler.config.file import Config
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.ports import LogReader, OffsetStore, Row

LIMIT_S = 3.0
"""Seconds for an answer of the cluster that is left: each start of a move waits for it."""
NO_CLUSTER = "The configuration has no address of the cluster that is left."


def log_of(config: Config) -> Callable[[], LogReader] | None:
    """Opens the log of the cluster that the jobs of ``config`` leave; None if they leave none."""
    source = config.source

    def opened() -> LogReader:
        from reconciler.kafka import apart

        assert source is not None
        return apart.open_log(source.client, timeout_s=LIMIT_S, memory=config.search.memory)

    return None if source is None else opened


def groups_of(config: Config) -> CommitsLeft:
    """The commits of groups on the cluster that the jobs of ``config`` leave."""
    source = config.source

    def opened() -> OffsetStore:
        from reconciler.places.registry import open_store

        if source is None:
            raise Unreachable(NO_CLUSTER)
        return open_store("kafka-group:", kafka_client=source.client, timeout_s=LIMIT_S)

    return CommitsLeft(opened)


class CommitsLeft:
    """What groups have committed on a cluster that may be lost: after one failure it is not asked again."""

    def __init__(self, open_groups: Callable[[], OffsetStore]) -> None:
        self._open_groups = open_groups
        self._lost: Unreachable | None = None

    def __call__(self, group: str, topics: Collection[str]) -> Sequence[Row]:
        """The group's rows of these topics. Raises Unreachable for any reason for which they are not known."""
        if self._lost is not None:
            raise self._lost
        try:
            with closing(self._open_groups()) as store:
                return store.read(group, topics)
        except ReconcilerError as error:
            self._lost = error if type(error) is Unreachable else Unreachable(error.message, hint=error.hint)
            raise self._lost from error
