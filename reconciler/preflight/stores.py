"""``config check`` of the jobs' stores: opens and reads each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from reconciler.config.file import Config, Job
from reconciler.config.streams import Stream
from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.core.question import NoAnchor
from reconciler.core.text import counted, some
from reconciler.failover.checking.numbers import job_topics
from reconciler.failover.sinks.judging import open_sink
from reconciler.failover.unlisted import find_unlisted, offsets_of
from reconciler.places.parameters import number_of, suspicious_name
from reconciler.ports import Capabilities, ClusterInfo, LogReader, OffsetStore, Row, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.locations import first
from reconciler.state.store import open_state


def abilities(config: Config, jobs: Sequence[Job], world: World, trials: Trials) -> dict[str, Capabilities]:
    """The abilities of each job's store, by the job's name. Reports every unusable address; contacts nothing."""
    found = {}
    for job in jobs:
        with trials.trying(f"job {job.name}"):
            found[job.name] = _capabilities(job.store, config, world)
        for address in job.sinks:
            with trials.trying(f"job {job.name}"):
                open_sink(address)
    return found


def _capabilities(address: str, config: Config, world: World) -> Capabilities:
    with closing(world.open_store(address, kafka_client=config.destination.client)) as store:
        capabilities: Capabilities = store.capabilities
        return capabilities


def job_store(
    config: Config,
    job: Job,
    able: Capabilities,
    world: World,
    destination: ClusterInfo | None,
    trials: Trials,
) -> None:
    subject = f"job {job.name}"
    doubtful_number(job, trials)
    with (
        trials.trying(subject),
        closing(world.open_store(job.store, kafka_client=config.destination.client)) as store,
    ):
        rows = store.read(job.group, job_topics(config, job))
        for row in rows:
            if row.malformed is not None:
                trials.fail(subject, row.malformed.message, row.malformed.hint)
        _rows(config, job, able, store, rows, trials)
        _against(config, job, [row for row in rows if row.malformed is None], destination, trials)
        _unlisted(config, job, store, trials)


def _unlisted(config: Config, job: Job, store: OffsetStore, trials: Trials) -> None:
    """Report topics that a start would leave unread as a failure, and topics that the job ignores as a fact."""
    subject, found = f"job {job.name}", find_unlisted(config, job, store)
    if found.topics:
        trials.fail(subject, f"The job does not list all of its topics: the store has {found.what}.", found.way_out)
    if found.ignored:
        trials.ok(subject, f"the store has {offsets_of(found.ignored)}, which the job ignores (ignore_topics)")
    if found.unknown:
        trials.warn(subject, f"Whether it has offsets of topics that it does not list is unknown: {found.unknown}")


def doubtful_number(job: Job, trials: Trials) -> None:
    """Warn if the column's name contradicts the address: the job would skip a record of each partition."""
    if (name := suspicious_name(job.store)) is not None:
        message = (
            f'The name "{name}" suggests the last processed offset, and its numbers are taken for the next offset to '
            "read: then the job skips a record of each partition."
        )
        next_step = "If it is the last one, add &number=last to its store's address; else add &number=next."
        trials.warn(f"job {job.name}", message, next_step)


def _rows(
    config: Config, job: Job, able: Capabilities, store: OffsetStore, every: Sequence[Row], trials: Trials
) -> None:
    subject, where = f"job {job.name}", f'{store.address}, group "{job.group}"'
    if not every:
        _none_of(subject, where, job_topics(config, job), trials)
        return
    rows = [row for row in every if row.malformed is None]
    by_topic = Counter(row.key.topic for row in rows)
    listed = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(by_topic.items()))
    lacking = [row for row in rows if row.stored.anchor is None and not row.stored.is_sentinel]
    synced = _synced(config, job, rows) if able.translated_by_mirror else frozenset()
    bare = [row for row in _unrecorded(config, job, lacking) if row.key not in synced]
    with_anchor = f"{len(rows) - len(lacking):,} with an anchor" if lacking else "all with an anchor"
    if len(bare) < len(lacking):
        with_anchor += f", {len(lacking) - len(bare):,} synced by the mirror, which the anchors replace"
    meaning = f"A number is taken for {number_of(job.store).words}"
    trials.ok(subject, f"{where}: {counted(len(rows), 'stored offset')} ({listed}), {with_anchor}. {meaning}")
    stored = {row.key.topic for row in every}
    for topic in job.topics if job.new is None else ():
        both = sorted({topic, config.topics.destination_of(topic)})
        if stored.isdisjoint(both):
            _none_of(subject, where, both, trials)
    if bare:
        _bare(config, job, able, bare, trials)


def _unrecorded(config: Config, job: Job, bare: Sequence[Row]) -> list[Row]:
    """The rows whose number is not in the job's journal either."""
    if config.state is None or not bare:
        return list(bare)
    known: set[tuple[TopicPartition, int]] = set()
    with suppress(ReconcilerError), closing(open_state(config.state)) as store:  # which is tried separately
        state = JobState(store, job.name)
        here = state.location() or first(job.home)
        names = {stream: name for name, stream in config.topics.naming.by_name(job.streams, here.cluster).items()}
        for entry in state.journal(here.stay):
            for at, each in entry.numbers.items():
                if (name := names.get(Stream(at.topic, at.origin))) is not None and each.record is not None:
                    known.add((TopicPartition(name, at.partition), each.number))
    return [row for row in bare if (row.key, row.stored.offset) not in known]


def _none_of(subject: str, where: str, topics: Sequence[str], trials: Trials) -> None:
    """Report topics without any row: with records they stop a failover, unless the job is declared new."""
    next_step = "If the job has run, check its store, group and topics."
    trials.warn(subject, f"{where}: there is no stored offset for {', '.join(topics)}.", next_step)


def _synced(config: Config, job: Job, rows: Sequence[Row]) -> frozenset[TopicPartition]:
    """The destination's partitions whose source partition has an anchor: a mirror's row there needs none."""
    names = {topic: config.topics.destination_of(topic) for topic in job.topics}
    anchored = (row.key for row in rows if row.stored.anchor is not None)
    return frozenset(
        TopicPartition(names[key.topic], key.partition)
        for key in anchored
        if names.get(key.topic, key.topic) != key.topic
    )


def _bare(config: Config, job: Job, able: Capabilities, bare: Sequence[Row], trials: Trials) -> None:
    names = some([str(row.key) for row in bare], 3)
    message = f"{counted(len(bare), 'stored offset')} {'has' if len(bare) == 1 else 'have'} no anchor: {names}."
    next_step = "let reconciler track run while the cluster where the job lives answers."
    if config.policy_of(job).no_anchor is NoAnchor.ROW_TIME:
        next_step = "by [policy] no_anchor the mirror's own records locate them, else the time of their rows."
    elif not able.needs_tracking:
        next_step = f"let the job record them (track(query) of job()), or {next_step}"
    trials.warn(f"job {job.name}", message, f"{next_step[0].upper()}{next_step[1:]}")


def _against(config: Config, job: Job, rows: Sequence[Row], destination: ClusterInfo | None, trials: Trials) -> None:
    """Compare the rows with the destination: it may be their source, or lack some of their partitions."""
    if destination is None:
        return
    names = {topic: config.topics.destination_of(topic) for topic in job.topics}
    absent = {topic for topic, name in names.items() if name not in destination.topics}
    anchors = [row.stored.anchor for row in rows if row.key.topic in absent and row.stored.anchor is not None]
    if any(anchor.cluster_id == destination.cluster_id for anchor in anchors):
        message = f"The destination lacks its topics, and has the cluster id of its anchors ({destination.cluster_id})."
        trials.fail(f"job {job.name}", message, "If they are of that cluster, swap the addresses under [clusters].")
    for topic, name in names.items():
        info = destination.topics.get(name)
        stored = {row.key.partition for row in rows if row.key.topic in (topic, name)}
        if info is not None and (beyond := stored - set(info.partitions)):
            there = f"{len(info.partitions):,} there, without partition {min(beyond)}"
            message = f"{topic}: {counted(len(stored), 'partition')} stored, and {there}."
            next_step = "The counts differ: offsets would be located by time, if at all."
            trials.warn(f"job {job.name}", message, next_step)


# ---------------------------------------------------------------- results


class Level(Enum):
    """How a step ended. Only ``FAIL`` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial's subject, a sentence about it, the next step, and the exit code of a failure."""

    level: Level
    subject: str
    message: str
    next_step: str = ""
    code: ExitCode = ExitCode.OK


class Trials:
    """Collects results in order, each once."""

    def __init__(self) -> None:
        self.found: list[TrialResult] = []

    def _add(self, result: TrialResult) -> None:
        if result not in self.found:
            self.found.append(result)

    def ok(self, subject: str, message: str) -> None:
        self._add(TrialResult(Level.OK, subject, message))

    def warn(self, subject: str, message: str, next_step: str = "") -> None:
        self._add(TrialResult(Level.WARN, subject, message, next_step))

    def fail(self, subject: str, message: str, next_step: str = "", code: ExitCode = ExitCode.USAGE) -> None:
        self._add(TrialResult(Level.FAIL, subject, message, next_step, code))

    @contextmanager
    def trying(self, subject: str, *, only_warn: bool = False) -> Iterator[None]:
        """Adds the error that ends the block as a failure; as a warning where no command needs what failed."""
        try:
            yield
        except ReconcilerError as error:
            if only_warn:
                self.warn(subject, error.message, error.hint or "")
            else:
                self.fail(subject, error.message, error.hint or "", error.exit_code)

    @property
    def exit_code(self) -> ExitCode:
        """2 if the configuration must be corrected, else 6 if something did not answer or was recreated, else 0."""
        codes = {each.code for each in self.found if each.level is Level.FAIL}
        if not codes:
            return ExitCode.OK
        return ExitCode.UNREACHABLE if codes <= {ExitCode.UNREACHABLE, ExitCode.CHANGED} else ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class World:
    """Opens readers of clusters' logs, by client settings and the cluster's name in sentences, and stores by address.

    ``topics`` lists a cluster's topics, for "did you mean"; it may raise.
    """

    reader: Callable[[Mapping[str, str], str], LogReader]
    open_store: Callable[..., OffsetStore]
    topics: Callable[[Mapping[str, str]], Iterable[str]]
