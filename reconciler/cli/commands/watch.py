"""Checks every job repeatedly, read-only, and serves the results as metrics for Prometheus: what a move to the other
cluster would find, and on a watched cluster where a job lives, mismatches. SIGHUP reloads the configuration; SIGTERM
and SIGINT stop it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.cli import arguments, context
from reconciler.cli.terminal import progress
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import show_text
from reconciler.cli.terminal.signals import StopSignals
from reconciler.clock import clock_ms
from reconciler.config.file import Config, Job
from reconciler.config.streams import Stream
from reconciler.core.errors import ExitCode, ReconcilerError, worst
from reconciler.failover import inputs
from reconciler.failover.check import check
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.outside import Outside, groups_of, log_of
from reconciler.jobs.watch.checker import Checkers, JobChecker
from reconciler.jobs.watch.figures import Watched
from reconciler.jobs.watch.metrics import Figures, ListenAddress, MetricsListener
from reconciler.jobs.watch.schedule import Requested, Setup, Watch
from reconciler.kafka.rate_limit import LimitedReader, RateLimit
from reconciler.state.locations import Location

EXAMPLE = "reconciler watch -c reconciler.toml --listen 127.0.0.1:9464 --every 60"
HELP = Help(
    __doc__,
    [
        ("every minute, on this machine's port 9464", EXAMPLE),
        ("all jobs once, metrics on stdout", "reconciler watch -c reconciler.toml --once"),
    ],
    {
        ExitCode.OK: "stopped by a signal; with --once: every job was checked, whatever the result",
        ExitCode.USAGE: "usage or configuration, or it cannot listen on the address",
        ExitCode.CHANGED: "with --once: a topic was recreated during the check of a job",
        ExitCode.UNREACHABLE: "with --once: a cluster or store could not be reached, or refused",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/watch.md", "docs/reference/metrics.md", "docs/how-to/alerts.md"),
)
LEAST_TIMEOUT_S = 2.0

FOLLOW_S = 60.0
"""Seconds between two lookups of where the jobs live."""

log = logging.getLogger("reconciler.jobs.watch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_jobs(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the address of /metrics (default: [watch] listen, or 127.0.0.1:9464); port 0: any free port",
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        help="the time between checks of a job (default: [watch] every, or 60)",
    )
    parser.add_argument("--once", action="store_true", help="check all jobs once and print their metrics; no listener")


def run(options: argparse.Namespace) -> ExitCode:
    if options.every is not None:
        arguments.check_every(options.every)
    # An error's traceback may hold a client of a cluster, with its threads and connections, in a reference cycle. A
    # process that runs for a year must collect these after every batch; the objects that exist now are exempt.
    gc.freeze()
    config = context.read_config(options)
    if options.once:
        return _once(options, config)
    with StopSignals(reload=True) as signals:
        requested = Requested(stop=lambda: signals.stopping, reload=signals.reload_once)
        process = Process(options, _limit(config, signals.wait), requested, signals.wait)
        with closing(process.watch()) as watch:
            progress.silence_waits()
            with closing(process.listen(config)):
                watch.run()
    log.info("stopped")
    return ExitCode.OK


def _once(options: argparse.Namespace, config: Config) -> ExitCode:
    """A signal ends it as it ends any command: metrics of some of the jobs would be read as those of all."""
    from prometheus_client import generate_latest

    process = Process(options, _limit(config, time.sleep), Requested(), time.sleep)
    with closing(process.watch()) as watch:
        watch.run(rounds=1)
        show_text(generate_latest(process.figures.registry(of_process=False)).decode())
        return worst(error.exit_code for error in watch.troubles.values())


def _limit(config: Config, wait: Callable[[float], object]) -> RateLimit:
    return RateLimit(config.watch.requests_per_second, time.monotonic, wait)


# ---------------------------------------------------------------- from the configuration


@dataclass(slots=True)
class Process:
    """The parts of this process that outlive every reload of the configuration. ``--once`` has no listener."""

    options: argparse.Namespace
    limit: RateLimit
    requested: Requested
    wait: Callable[[float], object]
    figures: Figures = field(default_factory=lambda: Figures(clock_ms))
    listener: MetricsListener | None = None
    locations: Mapping[str, Location | None] = field(default_factory=dict)
    streams: Mapping[str, Sequence[Stream]] = field(default_factory=dict)
    """The streams that jobs with patterns read."""
    followed_s: float = 0.0

    def listen(self, config: Config) -> MetricsListener:
        """Serve the metrics. Raises ConfigError if that is not possible."""
        address = self._address(config)
        self.listener = listener = MetricsListener(address, self.figures.registry())
        log.info("metrics: %s", listener.url)
        if not address.is_loopback:
            log.warning(
                "Listening on %s: any client of this port can read the names of jobs and topics. "
                "Listen on 127.0.0.1 behind a proxy that asks for a login.",
                address,
            )
        return listener

    def _address(self, config: Config) -> ListenAddress:
        return ListenAddress.parse(config.watch.listen if self.options.listen is None else self.options.listen)

    def watch(self) -> Watch:
        return Watch(
            self.prepare,
            self.figures,
            self.limit,
            replace(self.requested, reload=lambda: self.requested.reload() or self.moved()),
            clock=time.monotonic,
            wait=self.wait,
            tidy=gc.collect,
        )

    def prepare(self) -> Setup:
        """Load the configuration file and set up from it. Raises ConfigError if it is not usable."""
        options, config = self.options, context.read_config(self.options)
        every_s = options.every if options.every is not None else config.watch.every_ms / 1000
        self._address(config)
        chosen_jobs = config.chosen(*options.job)
        self.locations = inputs.locations_of(config, chosen_jobs)
        self.streams = inputs.streams_of(config, chosen_jobs, self.locations)
        self.followed_s = time.monotonic()
        ways = context.by_direction(config, config.chosen(*options.job), options.toward)
        jobs: list[Job] = []
        watched: dict[str, Watched] = {}
        checkers: dict[str, JobChecker] = {}
        until = ExitStack()
        for each, names_of_jobs in ways:
            chosen = each.chosen(*names_of_jobs)
            refuse_wrong(each, chosen, sinks=True)
            checker = self._checker(each, every_s, until)
            jobs += chosen
            for job in chosen:
                topics = frozenset(map(each.topics.destination_of, job.topics))
                leaves = each.there if job.moved else each.here
                watched[job.name] = Watched(topics, leaves, each.there, job.owner)
            checkers |= dict.fromkeys(names_of_jobs, checker)
        return Setup(
            jobs=tuple(jobs),
            watched=watched,
            checker=Checkers(checkers),
            every_s=every_s,
            close=until.close,
            use=partial(self._use, config),
            once=options.once,
        )

    def moved(self) -> bool:
        """True if a job lives elsewhere now, or reads other topics: then all is set up again. Looks once a minute."""
        if time.monotonic() - self.followed_s < FOLLOW_S:
            return False
        self.followed_s = time.monotonic()
        try:
            config = context.read_config(self.options)
            jobs = config.chosen(*self.options.job)
            locations = inputs.locations_of(config, jobs)
            return locations != self.locations or inputs.streams_of(config, jobs, locations) != self.streams
        except ReconcilerError as error:
            log.warning("where the jobs live could not be looked up: %s", error.message)
            return False

    def _checker(self, config: Config, every_s: float, until: ExitStack) -> JobChecker:
        from reconciler.kafka.reading_process import open_log
        from reconciler.places.registry import open_store

        # An outage must show in the next round, so a request may not take longer than the time between rounds.
        timeout_s = min(config.search.request_timeout_s, max(LEAST_TIMEOUT_S, every_s / 2))
        client = config.destination.client
        reader = LimitedReader(open_log(client, timeout_s=timeout_s, memory=config.search.memory), self.limit)
        until.callback(reader.close)
        outside = Outside(
            reader=reader,
            open_store=partial(open_store, kafka_client=client, timeout_s=timeout_s),
            monotonic=time.monotonic,
            now_ms=clock_ms,
            open_left=log_of(config),
            commits_left=groups_of(config),
            state_of=inputs.state_of(config),
        )
        checker = JobChecker(
            config,
            outside,
            check,
            every_s=every_s,
            once=self.options.once,
            take=self.limit.take,
            stopping=self.requested.stop,
        )
        until.callback(checker.close)
        return checker

    def _use(self, config: Config) -> None:
        """Take over the configuration's rate. Its address would need a restart."""
        self.limit.set_rate(config.watch.requests_per_second)
        if self.listener is not None:
            self.listener.keep(self._address(config))
