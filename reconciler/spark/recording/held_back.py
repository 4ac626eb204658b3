"""Which queries hold records back, so that a stored offset would be ahead of the work.

An operator's state holds records that Spark has read and the sink has not seen. A job that starts a new checkpoint at a
stored offset has no such state, and skips these records. So no offset is stored for such a query. Only the anchors of a
checkpoint are: its state goes along in the copy.

- H1  A deduplication or a limit holds nothing back: a record passes at once or never.
- H2  In update and complete mode an aggregation puts each record's effect out in the batch that read it. In append mode
      it waits for the watermark. A mode that cannot be seen counts as append.
- H3  Any other operator with state may hold records back: a join of two streams, arbitrary state, one that is not known
      here. Rows in the state are not counted, since RocksDB may leave that out, and then reports 0
      (``spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows``).

The operators' names are those of a query's progress (``stateOperators``) and of the physical plan
(``StateStoreWriter.shortName``), the same in 3.5.7, 4.0.4, 4.1.4, 4.2.1 and 4.3.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError
from reconciler.spark.recording.batch_range import each_of, looking_inside, running_query, unseen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

HOLD_NOTHING = frozenset({"dedupe", "dedupeWithinWatermark", "globalLimit"})
AGGREGATIONS = {"stateStoreSave": "an aggregation", "sessionWindowStateStoreSaveExec": "an aggregation by session"}
OTHERS = {"symmetricHashJoin": "a join of two streams"}
STATE_METRIC = "numTotalStateRows"
"""A metric of every physical operator that writes state, and of no other (``StateStoreWriter.metrics``)."""


def holder(operators: Iterable[str], mode: str) -> str | None:
    """The first of these stateful operators that may hold records back, in words; None if none of them does.

    ``mode`` is the query's output mode, as Spark writes it: "Append", "Update", "Complete".
    """
    for name in operators:
        if name in AGGREGATIONS:
            if mode not in ("Update", "Complete"):
                return f"{AGGREGATIONS[name]} in append mode"
        elif name not in HOLD_NOTHING:
            return OTHERS.get(name, f'the operator "{name}"')
    return None


def refusal(held_by: str, group: str) -> ConfigError:
    """What to do about a query that holds records back, and is recorded in a store of rows."""
    return ConfigError(
        f"No offset is stored for group {group}: the query has {held_by}, which may hold records back in its state. "
        "A job that starts at a stored offset would skip those.",
        hint='Record this query with store="checkpoint:PATH", its checkpointLocation, and continue from a corrected '
        "copy of that after a failover (docs/how-to/stateful-failover.md). Do not start a job from rows that the group "
        "has already: they may be ahead of such records.",
    )


def state_operators(plan: Any) -> Iterator[str]:
    """The names of the operators with state in a query's physical plan."""
    if plan.metrics().contains(STATE_METRIC):
        yield str(plan.shortName())
    for child in each_of(plan.children()):
        yield from state_operators(child)


class Holders:
    """Finds what holds records back in the query whose batch runs, once a run. Runs no Spark job."""

    def __init__(self) -> None:
        self._last: tuple[str, str | None] | None = None

    def of(self, batch: DataFrame) -> str | None:
        """In words; None if nothing does. Raises ConfigError if that cannot be seen."""
        if not hasattr(batch, "_jdf"):
            raise unseen("Spark Connect does not show them")
        with looking_inside("a query's operators"):
            running = running_query(batch)
            run, known = running.runId().toString(), self._last  # another query's batch, in a thread, may replace it
            if known is None or known[0] != run:
                known = self._last = run, _holder_in(running)
            return known[1]


def _holder_in(running: Any) -> str | None:
    execution = running.lastExecution()
    return holder(state_operators(execution.executedPlan()), str(execution.outputMode().toString()))
