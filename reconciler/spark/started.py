"""A job in its own process: where it starts, and the journal of what it has processed.

from reconciler.spark import job

clicks = job()                                       # what the hook handed over; without a hook:
                                                     # job("reconciler.toml", "clicks")
events = clicks.read(spark)                          # the Kafka source: cluster, topics, offsets of this stay
query = (events.writeStream.format("json").option("path", "/srv/clicks/out")
         .option("checkpointLocation", clicks.checkpoint).start())
clicks.track(query)                                  # the journal gets the last record of every partition
query.awaitTermination()
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from reconciler.config.identity import identity_from_settings, may_read_headers
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, NotCreated
from reconciler.jobs.tracking.recorder import StayRecorder, moved_words, positions_of, refuse_many
from reconciler.jobs.tracking.source import FROM_OUTSIDE, TIMEOUT_S, SourceLog
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.spark.logins import with_login
from reconciler.spark.starting import AGAIN, complete, handed_over, logins, start_here
from reconciler.spark.stay_checkpoint import as_opened, checkpoint_at, for_spark, transaction_id
from reconciler.spark.tracking import SparkQuery, Tracking, already_tracked, cannot_record
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase
from reconciler.state.start import Start
from reconciler.state.store import open_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger(__name__)

FEW_PARTITIONS = 16
"""Up to so many partitions, each is read by itself: the broker sends one batch of it, not a megabyte of batches."""
DECIDED = frozenset(
    {"subscribe", "subscribepattern", "assign", "failondataloss", "kafka.bootstrap.servers", "startingoffsets"}
    | {"startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"}
)
"""Options that the start decides. Lower case: Spark ignores case."""
_tracked: dict[tuple[str, str], Tracking] = {}
"""By state store and job."""


def job(
    config: str | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    wait: float = 0.0,
    plans: str | os.PathLike[str] | None = None,
    start: Start | None = None,
    environ: Mapping[str, str] | None = None,
) -> Job:
    """The job that the hook started in this process, or that ``start`` describes.

    Where nothing can run a command before the job, ``job("reconciler.toml", "clicks")`` does the hook's work itself. It
    then waits at most ``wait`` seconds for a mirror that is behind; ``plans`` is the folder for plans.

    Raises ConfigError without a start; Changed if the job was moved since; NeedsPerson for another state store;
    Unreachable and Refused if the store cannot be read. With a configuration, raises also the hook's errors:
    NeedsPerson for a job that must not start.
    """

    env = os.environ if environ is None else environ
    if config is not None:
        if name is None:
            raise ConfigError("job() got a configuration, and no job.", hint=f'Name the job: job("{config}", "NAME")')
        env = {**env, **start_here(config, name, env, wait_s=wait, plans=plans)}
    given = start if start is not None else handed_over(env)
    store, client, registry = logins(given, env)
    given = replace(given, identity=replace(given.identity, registry=registry))
    found = Job(given, JobState(open_state(store), given.job, given.config), client)
    found.require_here()
    return found


@dataclass(frozen=True, eq=False)
class Job:
    """One stay of a job. ``client``: librdkafka properties for its cluster, which may hold passwords."""

    start: Start
    state: JobState = field(repr=False)
    client: Mapping[str, str] = field(repr=False)

    @property
    def checkpoint(self) -> str:
        """The checkpointLocation of this stay. Raises ConfigError for a job whose offsets are not in a checkpoint."""
        if self.start.checkpoint is None:
            raise ConfigError(
                f'The offsets of job "{self.start.job}" are not in a checkpoint, so the start names none.',
                hint='Begin a new one for each stay: job.checkpoint_at("/checkpoints/clicks"). Or configure '
                'offsets = "checkpoint:PATH".',
            )
        return for_spark(self.start.checkpoint)

    def checkpoint_at(self, base: str | os.PathLike[str]) -> str:
        """The checkpointLocation of this stay for a job whose offsets are elsewhere: ``base``, ``base-2`` in stay 2, ….

        Restarts get the same one. Raises as ``stay_checkpoint.checkpoint_at``, and ConfigError for a job whose offsets
        are in its checkpoint.
        """

        if self.start.checkpoint is not None:
            raise ConfigError(
                f'The offsets of job "{self.start.job}" are in its checkpoint, {self.start.checkpoint}.',
                hint="Leave the base out: job.checkpoint",
            )
        return for_spark(checkpoint_at(base, self.start))

    def transaction_id(self, base: str | os.PathLike[str] | None = None) -> str:
        """A name for the batches of the query in this stay, for Delta's ``txnAppId``.

        ``base`` as for ``checkpoint_at``. A restart and a copy have the same name; a new checkpoint, whose batches
        begin at 0 again, has another one. Raises as ``checkpoint`` and ``checkpoint_at``.
        """

        path = self.checkpoint if base is None else self.checkpoint_at(base)
        return transaction_id(as_opened(path), self.start)

    def read(self, spark: SparkSession, options: Mapping[str, str] | None = None) -> DataFrame:
        """The Kafka source of this stay, with the login of the cluster's ``client`` table; ``options`` adds more.

        Raises as ``require_here``, ``complete`` and ``with_login``. ConfigError for an option that the start decides.
        """

        self.require_here()
        if decided := sorted(name for name in options or {} if name.lower() in DECIDED):
            raise ConfigError(
                f'The start of job "{self.start.job}" decides the option {", ".join(decided)}.',
                hint="Leave it out. Where the job reads is changed by: reconciler move",
            )
        given = with_login(self.client, options)
        whole = complete(self.start, self._properties)
        chosen = {
            "kafka.bootstrap.servers": whole.bootstrap_servers,
            "subscribe": ",".join(sorted(whole.topics)),
            "startingOffsets": whole.starting_offsets(),
            "failOnDataLoss": "true",  # with "false" Spark silently jumps over what is gone
        }
        if may_read_headers(self.start.identity):
            chosen["includeHeaders"] = "true"
        return spark.readStream.format("kafka").options(**chosen, **given).load()

    def track(self, query: Any) -> Tracking:
        """Keep the journal of this stay in a thread of its own while the query runs.

        A query that cannot be recorded here continues, and the log says why. Raises ConfigError for a second query of
        job and above 10,000 partitions. Stops a query with another checkpoint and raises NeedsPerson.
        """

        here = (self.start.store_id, self.start.job)
        if here in _tracked and _tracked[here].is_running:
            raise already_tracked(_tracked[here])
        refuse_many(len(self.start.offsets))
        try:
            running = SparkQuery(query)
            recorder = self._recorder(running)
        except ConfigError as error:
            return Tracking(self.start.job).unable(error)
        self._require_own_checkpoint(running)
        tracking = _tracked[here] = Tracking(self.start.job, running)
        return tracking.begin(recorder, lambda: _positions(running.checkpoint))

    def require_here(self) -> None:
        """Raise Changed if the job was moved since its start, NeedsPerson if this is another state store."""

        start, name = self.start, self.start.job
        here = self.state.location() if self.state.store.id == start.store_id else None
        if here is None or here.stay < start.stay:
            raise NeedsPerson(
                f'The start of job "{name}" is of stay {start.stay}, which {self.state.store.shown} does not '
                "know: it is another state store, or an old copy of it.",
                hint="Correct [state] store, or restore the newest backup; then start the job by its hook.",
            )
        if here.phase is Phase.WRITING or (here.stay, here.cluster) != (start.stay, start.cluster):
            raise Changed(f'The start of job "{name}" is an earlier one: {moved_words(here)}.', hint=AGAIN)

    def _recorder(self, running: Any) -> Any:

        start = self.start
        streams = {topic: start.topics[topic] for topic in running.topics_at(start.bootstrap_servers, start.topics)}
        if not streams:
            raise cannot_record(
                f"it reads none of {', '.join(sorted(start.topics))} from {start.bootstrap_servers} alone"
            )
        client = self._properties
        few = len(start.offsets) <= FEW_PARTITIONS
        source = SourceLog(
            lambda committed: KafkaLogReader(
                client, timeout_s=TIMEOUT_S, who="job's", committed_only=committed, sparing=few
            ),
            running.is_committed_only,
            identity_from_settings(start.identity),
            advice=FROM_OUTSIDE,
        )
        run = f"driver on {socket.gethostname()}, process {os.getpid()}, {token_hex(4)}"
        return StayRecorder(self.state, start.stay, streams, source, run)

    @property
    def _properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.start.bootstrap_servers, **self.client}

    def _require_own_checkpoint(self, running: Any) -> None:
        own = self.start.checkpoint
        if own is None or _place(own) == _place(running.checkpoint):
            return
        running.stop()
        raise NeedsPerson(
            f'The query of job "{self.start.job}" continues from {running.checkpoint}, and this stay has {own}: it was '
            "stopped.",
            hint='Give it .option("checkpointLocation", job.checkpoint).',
        )


def _positions(path: str) -> Any:
    """The query's positions by partition; None before it has written its checkpoint."""

    try:
        return positions_of(read_checkpoint(path))
    except NotCreated:
        return None


def _place(path: str) -> str:
    opened = as_opened(path)
    return opened.rstrip("/") if "://" in opened else os.path.realpath(opened)
