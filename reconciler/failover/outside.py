"""The world outside of a check: the clusters, the stores, the clocks, and the operator's decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reconciler.clock import clock_ms
from reconciler.config.file import Config, SearchSettings
from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable
from reconciler.core.verdicts import Finding, Verdict
from reconciler.kafka import engine, import_client
from reconciler.kafka.engine import EngineSettings, Inquiry, Outcome, Progress
from reconciler.near import NearTopics
from reconciler.ports import LogReader, OffsetStore, Row
from reconciler.retry import PatientReader

if TYPE_CHECKING:
    from reconciler.state.jobs import JobState

StoreOpener = Callable[[str], OffsetStore]
"""Opens the store at an address; the caller closes it."""

K = TypeVar("K")


class Engine(Protocol):
    """Runs every search to its finding: ``engine.run``, or an engine that runs them on other machines.

    An inquiry's ``start`` is a module's function with its arguments, so it can be sent to another process.
    """

    def __call__(
        self,
        reader: LogReader,
        inquiries: Mapping[K, Inquiry[Finding]],
        /,
        *,
        clock: Callable[[], float],
        settings: EngineSettings | None = None,
    ) -> Outcome[K, Finding]: ...


@dataclass(frozen=True, slots=True)
class ByHand:
    """The operator's decisions: offsets by (topic, partition), and verdicts accepted as they are.

    ``time_ms`` places every partition of one job that has no offset here at that time (epoch ms). ``skips`` accepts
    that offsets set by hand skip records.
    """

    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    accepted: frozenset[Verdict] = frozenset()
    time_ms: int | None = None
    skips: bool = False


class WrongDecision(ConfigError):
    """The operator's decision fits none of the chosen jobs' partitions: the command line is wrong, not a job."""


def nothing_recorded(job: str) -> JobState:
    """The state of a job without any record."""
    from reconciler.state.jobs import JobState
    from reconciler.state.memory import MemoryState
    from reconciler.state.store import StateStore

    return JobState(StateStore(MemoryState("memory:"), new_nonce=str), job)


def not_asked(group: str, topics: Collection[str]) -> Sequence[Row]:
    """As ``Outside.commits_left`` of a cluster that is lost."""
    raise Unreachable(f"The commits of group {group} were not asked for.")


@dataclass(frozen=True, slots=True)
class Outside:
    """The destination, the stores, the clocks (monotonic seconds and epoch ms), and two callbacks.

    ``on_progress`` is called after every round of a search, ``on_copied`` with how far a checkpoint's copy is. ``run``
    is the engine. ``topics`` lists the destination's topics, for one that is not there; it may raise. ``state_of``:
    what the state store has of a job, by its name.
    """

    reader: LogReader
    open_store: StoreOpener
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    on_progress: Callable[[Progress], None] | None = None
    on_copied: Callable[[Any], None] | None = None
    run: Engine = engine.run
    topics: Callable[[], Iterable[str]] = tuple
    open_left: Callable[[], LogReader] | None = None
    """Opens the log of the cluster that the jobs leave, which may be lost; the caller closes it."""
    open_whole: StoreOpener | None = None
    """Opens a store itself, where ``open_store`` opens a copy of the jobs' rows."""
    state_of: Callable[[str], JobState] = nothing_recorded
    commits_left: Callable[[str, Collection[str]], Sequence[Row]] = not_asked
    """The commits of a group, by its name and topics, on the cluster that its job leaves.

    Raises Unreachable if they are not known.
    """

    def near_topics(self) -> NearTopics:
        """The topics that a misspelt name may mean. They are only hints: empty if topics cannot be listed."""

        def names() -> Iterable[str]:
            try:
                return self.topics()
            except ReconcilerError:
                return ()

        return NearTopics(names)

    def patient(self, settings: SearchSettings) -> LogReader:
        """The destination; a call that fails is repeated until the search's deadline has passed."""
        return PatientReader(self.reader, self.monotonic, settings.deadline_s)


@contextmanager
def connect(client: Mapping[str, str], *, timeout_s: float, memory: int) -> Iterator[Outside]:
    """The destination of these librdkafka properties and this machine's clocks; nothing is contacted yet.

    ``timeout_s``: how long one request may take. ``memory``: how many bytes the process that reads records may
    hold. Raises ConfigError for properties that the client does not accept.
    """
    import_client()
    from reconciler.kafka.reading_process import open_log
    from reconciler.kafka.requests import topics_of
    from reconciler.places.registry import open_store

    with closing(open_log(client, timeout_s=timeout_s, memory=memory)) as reader:
        opener = partial(open_store, kafka_client=client, timeout_s=timeout_s)
        topics = partial(topics_of, client, timeout_s=timeout_s)
        yield Outside(reader, opener, time.monotonic, clock_ms, topics=topics)


LIMIT_S = 3.0
"""Seconds for an answer of the cluster that is left: each start of a move waits for it."""
NO_CLUSTER = "The configuration has no address of the cluster that is left."


def log_of(config: Config) -> Callable[[], LogReader] | None:
    """Opens the log of the cluster that the jobs of ``config`` leave; None if they leave none."""
    source = config.source

    def opened() -> LogReader:
        from reconciler.kafka import reading_process

        assert source is not None
        return reading_process.open_log(source.client, timeout_s=LIMIT_S, memory=config.search.memory)

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
    """The commits of groups on a cluster that may be lost: after one failure it is not asked again."""

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
