"""Keeps the anchors of jobs that store only numbers, without changing the jobs. It reads the jobs' stores, then the
record before each stored offset on the cluster where the job lives, and appends both to the job's journal in the
[state] store. Once that cluster is lost, the journal is all that is known of a kafka-group: job. A driver that records
its own query (track(query)) continues to do so. Runs until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from reconciler.cli import arguments, context
from reconciler.cli.terminal import progress
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import show, wrap
from reconciler.cli.terminal.signals import StopSignals
from reconciler.cli.terminal.table import Cell, print_table
from reconciler.clock import clock_ms
from reconciler.config.file import Config
from reconciler.config.settings import cluster_table
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError, together, worst
from reconciler.failover import inputs
from reconciler.failover.unlisted import offsets_of
from reconciler.failover.whereabouts import where_living
from reconciler.jobs.outages import Outages
from reconciler.jobs.tracking.beside import WAITS_S
from reconciler.jobs.tracking.journals import JobReport, Located
from reconciler.jobs.tracking.track import Round, SourceSide, Tracker
from reconciler.state.jobs import JobState
from reconciler.state.locations import first

EXAMPLE = "reconciler track -c reconciler.toml --every 10"
HELP = Help(
    __doc__,
    [
        ("every ten seconds until stopped", EXAMPLE),
        ("once, with a table of what was recorded", "reconciler track -c reconciler.toml --once"),
    ],
    {
        ExitCode.OK: "every stored offset has its record, or an older one; or stopped by a signal",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "with --once: no record before a stored offset is known, a job's store has no row of "
        "it, or it has rows of topics that the job does not list",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused",
        ExitCode.UNKNOWN_OUTCOME: "with --once: it is unknown whether an entry was appended",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/track-anchors.md", "reconciler watch"),
)
EVERY_S = 10.0
ALL_AGAIN_S = 600.0
MOST_LINES = 20
HEADS = ("JOB", "PARTITIONS", "EXACT", "LAGGING", "WITHOUT", "SAVED", "OLDEST LAG", "STORE")
RIGHT = frozenset({1, 2, 3, 4, 5, 6})
NO_ROWS = 'Correct its group, topics or store; if the job is new, write new = "earliest" in its [[jobs]] table.'

FOLLOW_S = 10.0
"""Seconds between two lookups of where the jobs live."""

log = logging.getLogger("reconciler.track")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_jobs(parser)
    parser.add_argument("--once", action="store_true", help="do one round and print a table (default: until stopped)")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=EVERY_S,
        help=f"the time between rounds (default: {EVERY_S:g})",
    )


def run(options: argparse.Namespace) -> ExitCode:
    arguments.check_every(options.every)
    signals = StopSignals()
    with closing(Trackers(options, signals)) as tracker:
        if options.once:
            return _once(tracker)
        for line in _left_out(tracker):
            log.info("%s", line)
        with signals:
            _until_stopped(tracker, options.every, signals)
    return ExitCode.OK


class Trackers:
    """A tracker for each cluster where some of the jobs live. Once a job lives elsewhere, it is tracked there."""

    def __init__(self, options: argparse.Namespace, signals: StopSignals) -> None:
        self._options, self._signals = options, signals
        self._config = context.read_config(options)
        self._jobs = self._config.chosen(*options.job)
        self._begin()

    def _begin(self) -> None:
        self._until = ExitStack()
        store = self._until.enter_context(closing(inputs.open_state_store(self._config)))
        self._locations = inputs.locations_of(self._config, self._jobs)
        self._streams = inputs.streams_of(self._config, self._jobs, self._locations)
        self._looked_s = time.monotonic()
        self._trackers: list[Tracker] = []
        unusable: list[ReconcilerError] = []
        homes = {job.name: first(job.home) for job in self._jobs}
        located = {
            name: Located(JobState(store, name, self._config.file), at or homes[name])
            for name, at in self._locations.items()
        }
        waits_s = 0.0 if self._options.once else WAITS_S
        found = inputs.with_topics(self._config, self._jobs, self._locations, lenient=True)
        for config, names in where_living(found, found.chosen(*located), self._locations):
            try:
                tracker = _tracker(config, names, self._signals, located, waits_s)
                self._trackers.append(self._until.enter_context(tracker))
            except ReconcilerError as error:
                unusable.append(error)
        if not self._trackers:
            raise together(unusable)
        for each in unusable:
            log.error("%s", each)

    @property
    def left_out(self) -> Mapping[str, str]:
        return {name: why for each in self._trackers for name, why in each.left_out.items()}

    def round(self) -> Round:
        """One look at every job. A state store that does not answer leaves each job where it was."""
        if time.monotonic() - self._looked_s >= FOLLOW_S:
            self._follow()
        rounds = [each.round() for each in self._trackers]
        return Round(
            tuple(job for each in rounds for job in each.jobs),
            {place: error for each in rounds for place, error in each.troubles.items()},
        )

    def _follow(self) -> None:
        self._looked_s = time.monotonic()
        try:
            now = inputs.locations_of(self._config, self._jobs)
            streams = inputs.streams_of(self._config, self._jobs, now)
        except ReconcilerError as error:
            log.warning("where the jobs live could not be looked up: %s", error.message)
            return
        if (now, streams) != (self._locations, self._streams):
            log.info("a job was moved, or has other topics: tracking starts again where each job lives now")
            self.close()
            self._begin()

    def close(self) -> None:
        self._until.close()


@contextmanager
def _tracker(
    config: Config, jobs: Sequence[str], signals: StopSignals, located: Mapping[str, Located], waits_s: float
) -> Iterator[Tracker]:
    from reconciler.kafka.reading_process import open_log

    if config.source is None:
        raise ConfigError(
            f"{cluster_table(config.here)} bootstrap_servers is missing: track reads the records there.",
            hint="Add it.",
        )
    client = config.source.client
    timeout_s, memory = config.search.request_timeout_s, config.search.memory
    reader = open_log(client, timeout_s=timeout_s, who="source", memory=memory)
    side = SourceSide(
        reader=reader,
        open_store=inputs.stores(config, client),
        monotonic=time.monotonic,
        now_ms=clock_ms,
        stopping=lambda: signals.stopping,
        located=located,
        waits_s=waits_s,
    )
    with closing(reader), closing(Tracker(config, config.chosen(*jobs), side)) as tracker:
        yield tracker


def _once(tracker: Trackers) -> ExitCode:
    found = tracker.round()
    print_table(HEADS, [_cells(job) for job in found.jobs], right=RIGHT)
    if details := [*_details(found), *(f"  {line}." for line in _left_out(tracker))]:
        show(wrap(*details, indent="    "))
    stops = any(job.unlisted.topics or (job.followed and (job.without or job.no_rows)) for job in found.jobs)
    code = ExitCode.NEEDS_PERSON if stops else ExitCode.OK
    if not found.troubles:
        return code
    error = together(found.troubles.values())
    if worst([error.exit_code, code]) is error.exit_code:
        raise error
    for each in (error, *error.others):
        log.error("%s", each)
    return code


# ---------------------------------------------------------------- until stopped


def _until_stopped(tracker: Trackers, every_s: float, signals: StopSignals) -> None:
    outages = Outages(every_s, time.monotonic, log)
    rounds = RoundProgress(time.monotonic)
    first = True
    while not signals.stopping:
        began = time.monotonic()
        found = tracker.round()
        if signals.stopping:
            break
        if first:
            progress.silence_waits()
            lasting = [error for error in found.troubles.values() if not error.retryable]
            if lasting and not any(job.followed for job in found.jobs):
                raise together(lasting)  # in the first round an operator is still there to read it
        first = False
        outages.tell(found.troubles)
        for line in rounds.lines(found):
            log.info("%s", line)
        signals.wait(max(0.0, began + every_s - time.monotonic()))
    log.info("stopped")


# ---------------------------------------------------------------- the output


class RoundProgress:
    """The log's lines about rounds: for a job when its state changes, and for every job each ``ALL_AGAIN_S``.

    A job that moves on with all its records exact has not changed. ``clock`` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[object, ...]] = {}
        self._told_all_at = clock()

    def lines(self, found: Round) -> list[str]:
        if self._clock() - self._told_all_at >= ALL_AGAIN_S:
            self._told_all_at = self._clock()
            self._told.clear()
        lines = []
        for job in found.jobs:
            counts = (job.exact, len(job.lagging)) if not job.driver else ()
            state = (job.known, *counts, job.driver, job.no_rows, tuple(job.without.items()), str(job.unlisted))
            if self._told.get(job.job) != state:
                self._told[job.job] = state
                lines.append(_job_progress(job))
                lines += [line.strip() for line in _at_most([*_unlisted(job), *_without(job)])]
        return lines


def _job_progress(job: JobReport) -> str:
    if not job.known:
        return f"{job.job}: not known"
    if job.no_rows:
        return f"{job.job}: {job.no_rows}"
    parts = [
        f"{job.exact:,} exact",
        f"{len(job.lagging):,} lagging",
        f"{len(job.without):,} without a record",
    ]
    if job.age_ms is not None:
        parts[1] += f" (oldest {_age(job.age_ms)})"
    parts.append(f"{job.saved:,} saved" if not job.driver else f"its driver records it ({job.driver})")
    return f"{job.job}: {', '.join(parts)}"


def _cells(job: JobReport) -> tuple[Cell, ...]:
    counts: tuple[Cell, ...] = (Cell("-"),) * 6
    if job.known:
        counts = (
            Cell(f"{job.partitions:,}"),
            Cell(f"{job.exact:,}", "good"),
            Cell(f"{len(job.lagging):,}", "warn" if job.lagging else None),
            Cell(f"{len(job.without):,}", "bad" if job.without else None),
            Cell(f"{job.saved:,}"),
            Cell("-" if job.age_ms is None else _age(job.age_ms)),
        )
    return (Cell(job.job), *counts, Cell(job.store, "dim"))


def _left_out(tracker: Trackers) -> list[str]:
    return [f'Job "{name}" is left out: {why}' for name, why in tracker.left_out.items()]


def _details(found: Round) -> list[str]:
    """A sentence for each partition whose record is not known, if the reason is."""
    lines = []
    for job in found.jobs:
        if job.no_rows:
            lines.append(f'  Job "{job.job}" has nothing to track: {job.no_rows}. {NO_ROWS}')
        lines += _unlisted(job)
        if job.driver:
            lines.append(f'  Job "{job.job}" is recorded by its driver ({job.driver}).')
        lines += _without(job)
        lines += [f"  {key} has an older record: {why}." for key, why in job.lagging.items() if why]
    return _at_most(lines)


def _unlisted(job: JobReport) -> list[str]:
    """Sentences about offsets that are not tracked, because the configuration does not list their topics."""
    found = job.unlisted
    lines = []
    if found.topics:
        what = f'Job "{job.job}" has {found.what}, which it does not list: they are not recorded.'
        lines.append(f"  {what} {found.way_out}")
    if found.ignored:
        lines.append(f'  Job "{job.job}" ignores {offsets_of(found.ignored)}.')
    if found.unknown:
        lines.append(f'  Job "{job.job}" may have offsets of topics that it does not list: {found.unknown}')
    return lines


def _without(job: JobReport) -> list[str]:
    return [f"  {key} has no record: {why}." for key, why in job.without.items()]


def _at_most(lines: list[str]) -> list[str]:
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"  … and {more:,} more."]


def _age(ms: int) -> str:
    seconds = ms / 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
