"""Opens a job's sinks, and compares its plan with what they have taken: whether the next batch arrives, once.

==================================  ===============================================================================
``files:PATH``                      Spark's file sink: Parquet, JSON, text, …
``delta:PATH``                      a Delta table; ``?app_id=`` where the job writes under a ``txnAppId`` of its own
``iceberg:CATALOG/TABLE``           an Iceberg table of one of pyiceberg's catalogs
``iceberg:PATH``                    an Iceberg table by its folder, or its metadata file
``python:MODULE:FUNCTION``          what a function says
==================================  ===============================================================================

A sink's library is imported when the sink is opened.

Where the offsets are in a checkpoint, its batch numbers are compared with those of each sink. Where they are elsewhere,
a correction makes the job begin a new checkpoint, at batch 0. Without a correction the job continues on a checkpoint
that is not known here, and ``Job.checkpoint_at`` compares it.

Sinks are read before the checkpoint: a running query begins a batch before its sink takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from reconciler.config.addresses import SINK_SCHEMES, scheme_of
from reconciler.config.file import Config, Job
from reconciler.config.identity import load_function
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.sinks.guard import (
    NOTHING_AGAIN,
    QueryState,
    Repeated,
    Sink,
    Taken,
    ask,
    judge,
    judge_new_checkpoint,
    lacks,
    query_state,
)
from reconciler.places.checkpoint.restart import Checkpoint
from reconciler.places.folder import open_folder
from reconciler.places.parameters import Parameters
from reconciler.places.registry import checkpoint_path, require_installed, traits
from reconciler.plan.document import JobPlan, PartitionPlan
from reconciler.plan.rows import SinkOutcome, SinkRow


def with_sinks(config: Config, plans: Mapping[str, JobPlan], corrected: Iterable[str]) -> dict[str, JobPlan]:
    """The jobs' plans, with a row for each sink; ``corrected`` names the jobs of which anything is to be written.

    Raises Unreachable, Refused and ConfigError as sinks do.
    """
    changed = set(corrected)
    return {
        name: _with_sinks(config.chosen(name)[0], plan, is_corrected=name in changed) for name, plan in plans.items()
    }


def _with_sinks(job: Job, plan: JobPlan, *, is_corrected: bool) -> JobPlan:
    if not job.sinks:
        return plan
    if traits(job.store).corrected_in_copy:
        rows = rows_of_checkpoint(
            job.sinks, checkpoint_path(job.store), repeated(plan) if is_corrected else NOTHING_AGAIN
        )
    elif is_corrected:
        rows = rows_of_new_checkpoint(job.sinks, repeated(plan))
    else:
        rows = tuple(
            SinkRow(open_sink(each).shown, None, None, None, SinkOutcome.UNKNOWN, "the job continues on its checkpoint")
            for each in job.sinks
        )
    return replace(plan, sinks=rows)


def rows_of_checkpoint(sinks: Iterable[str], path: str, again: Repeated = NOTHING_AGAIN) -> tuple[SinkRow, ...]:
    """A row for each sink of the query whose checkpoint is at ``path``; ``again`` as in ``QueryState``."""
    from reconciler.places.checkpoint.reading import read_checkpoint

    opened = [open_sink(each) for each in sinks]
    name = read_checkpoint(path).query_id
    taken = [ask(sink, QueryState(name, -1, committed=True)) for sink in opened]
    at = query_state(read_checkpoint(path), again, stateful=is_stateful(path))
    return tuple(judged_row(sink, at, each) for sink, each in zip(opened, taken, strict=True))


def is_stateful(path: str) -> bool:
    """True if the query of the checkpoint at ``path`` keeps state: it may write records without reading any."""
    return bool(open_folder(path).names("state"))


def judged_row(sink: Sink, at: QueryState, taken: Taken | None) -> SinkRow:
    """The sink's row. ``taken``: its answer before the checkpoint was read; a sink that seems behind is asked again."""
    lacking = lacks(sink, at, taken) and lacks(sink, at, ask(sink, at))
    return judge(sink, at, taken, lacking=lacking)


def rows_of_new_checkpoint(
    sinks: Iterable[str], again: Repeated = NOTHING_AGAIN, *, placed: bool = True
) -> tuple[SinkRow, ...]:
    """A row for each sink of a query that begins with a new checkpoint; ``placed``: at offsets that were stored."""
    return tuple(judge_new_checkpoint(sink, again, placed=placed) for sink in map(open_sink, sinks))


def refuse_start(name: str, sinks: Sequence[str], path: str | None, *, placed: bool) -> None:
    """Raise NeedsPerson where a sink would drop the batches of job ``name``, whose query starts on this checkpoint.

    ``path`` None, or one where no query has run yet: it begins a new one. ``placed`` as in ``rows_of_new_checkpoint``.
    What its offsets repeat was judged, or accepted, when they were corrected.
    """
    if path is not None:
        with suppress(NotCreated):
            refuse(name, rows_of_checkpoint(sinks, path))
            return
    refuse(name, rows_of_new_checkpoint(sinks, placed=placed))


def repeated(job: JobPlan) -> Repeated:
    """How many processed records come again, at most.

    - Of a repeated batch: the records after its proven end; all of its records if the end is not proven, since a mirror
      may deliver the rest later. A partition does not count if the operator lets it start beyond its proven offset, or
      if it has no proven offset.
    - Of the batches before it: the records from the offset at which the query starts. They do not count if the operator
      set that offset or accepted the finding. Such a decision does not cover the batch.
    """
    rows = [row for row in job.partitions if row.finding is not Verdict.NEW]
    starts = {row.key: row for row in rows if row.position == Position.START}
    ends = sum(_of_end(row, starts.get(row.key)) for row in rows if row.position == Position.END)
    before = [row for row in rows if row.position != Position.END and row.replay_at_most and not row.set_by_hand]
    accepting = " ".join(f"--accept {verdict.value}" for verdict in sorted({row.finding for row in before}))
    return Repeated(ends, sum(row.replay_at_most or 0 for row in before), accepting)


def _of_end(row: PartitionPlan, start: PartitionPlan | None) -> int:
    if start is not None and (start.skips is not None or (start.is_placed and start.finding is Verdict.UNRESOLVED)):
        return 0
    began = (start.stored_offset or 0) if start is not None else 0
    of_batch = 0 if row.finding is Verdict.EXACT else (row.stored_offset or 0) - began
    return max(row.replay_at_most or 0, of_batch)


def rows_or_refusal(
    sinks: Iterable[str], found: Checkpoint, name: str, again: Repeated, *, stateful: bool
) -> tuple[SinkRow, ...]:
    """The rows for the copy of a checkpoint. Raises NeedsPerson where the job ``name`` must not start on it."""
    at = query_state(found, again, stateful=stateful)
    rows = tuple(judged_row(sink, at, ask(sink, at)) for sink in map(open_sink, sinks))
    refuse(name, rows)
    return rows


def refuse(name: str, rows: Iterable[SinkRow]) -> None:
    """Raise NeedsPerson for the first row that stops the job."""
    for row in rows:
        if row.stops:
            what, _, way_out = row.detail.partition(". ")
            raise NeedsPerson(f'Job "{name}" must not start. Its sink {row.sink}: {what}.', hint=f"{way_out}.")


EXAMPLES = (
    *("files:PATH", "delta:PATH", "delta:PATH?app_id=NAME", "iceberg:CATALOG/NAMESPACE.TABLE", "iceberg:PATH"),
    "python:MODULE:FUNCTION",
)
_CLIENTS = {"delta": "deltalake", "iceberg": "pyiceberg"}
"""The package that reads each scheme's tables; the extra that installs it has the scheme's name."""


def open_sink(address: str) -> Sink:
    """The sink at ``address``. Contacts nothing. Raises ConfigError for an address or a library that is not usable."""
    scheme = scheme_of(address) or ""
    place, _, query = address.partition(":")[2].partition("?")
    if scheme not in SINK_SCHEMES or not place:
        raise _wrong("it names no sink")
    parameters = Parameters(query, _wrong)
    app_id = parameters.text("app_id") if scheme in ("delta", "python") else None
    parameters.check_all_known()
    if scheme in _CLIENTS:
        require_installed(f"The sink {scheme}:", _CLIENTS[scheme], scheme)
        from reconciler.failover.sinks.tables import DeltaSink, IcebergSink

        return DeltaSink(place, app_id) if scheme == "delta" else IcebergSink(place)
    from reconciler.failover.sinks.files import FileSink, FunctionSink

    if scheme == "files":
        return FileSink(place)
    return FunctionSink(address, load_function("sink", f"python:{place}"), app_id)


def _wrong(why: str) -> ConfigError:
    # The message leaves the address out: it may hold a password.
    return ConfigError(f"A sink's address is wrong: {why}.", hint=f"Supported sinks: {' · '.join(EXAMPLES)}.")
