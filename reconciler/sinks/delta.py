"""Delta tables: a query's batches as the table's own transactions have them.

Source: Delta's protocol (``txn``: ``appId`` and ``version``), compared with tables that Delta 4.4 wrote. Spark's Delta
sink writes under the query's id, as the checkpoint's ``metadata`` has it; ``foreachBatch`` with ``txnAppId`` under a
name of the job's. A write whose version is not above the name's last is dropped.

``deltalake`` reads tables without a JVM; the login to a bucket comes from the environment, as it documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import Refused
from reconciler.sinks.taken import Taken
from reconciler.stores.delta.table import DeltaAt

RECENT = 100
"""Commits, counted from the newest, that are searched for one that wrote rows."""
FEW = 10
"""As ``RECENT``, where each commit must be compared with the table before it."""


class DeltaSink:
    """The table at a path or URL. ``app_id``: the job's own ``txnAppId``; None where Delta's own sink writes."""

    knows_queries = True

    def __init__(self, path: str, app_id: str | None) -> None:
        self.app_id = app_id
        self.shown = without_secrets(f"delta:{path}{f'?app_id={app_id}' if app_id else ''}")
        self._path = path
        self._at = DeltaAt(path, self.shown, "sink")

    @property
    def takes_every_batch(self) -> bool:
        return self.app_id is None

    def data_files(self) -> tuple[str, ...]:
        """The Parquet files that hold the table's rows; none if it does not exist.

        Raises Refused where the files alone do not show the rows: deleted ones, and columns under other names.
        """
        with self._at.errors():
            table = self._at.table()
            if table is None:
                return ()
            renames = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
            deletes = "deletionVectors" in (table.protocol().reader_features or ())
            files = tuple(table.file_uris())
        if renames or deletes:
            why = "has renamed columns" if renames else "may have deleted rows in its files"
            raise Refused(
                f"The table {self.shown} {why}, which only Delta's own reader knows.",
                hint="Add its jars: --conf spark.jars.packages=io.delta:delta-spark_…",
            )
        return files

    def last_taken(self, app_id: str | None) -> Taken:
        """The last version that the table has of this name. A table that does not exist yet has none."""
        assert app_id is not None, "knows_queries"
        with self._at.errors():
            table = self._at.table()
            last = None if table is None else table.transaction_version(app_id)
            if table is None or last is None:
                return Taken(None)
            recent = table.history(RECENT)
            if self.app_id is not None:
                rows = self._rows_brought(recent, app_id, last)
            else:
                rows = next((_rows(each) for each in recent if _is_batch(each, app_id, last)), None)
        return Taken(last, is_empty=rows == 0, has_records=bool(rows))

    def has_queries(self) -> bool:
        """Whether Delta's own sink has written one of the recent commits."""
        with self._at.errors():
            table = self._at.table()
            recent = [] if table is None else table.history(RECENT)
        return any("queryId" in (each.get("operationParameters") or {}) for each in recent)

    def _rows_brought(self, recent: Iterable[Mapping[str, object]], app_id: str, last: int) -> int | None:
        """How many rows came with this version of the name: its commit does not tell, but the table before it does."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        for commit in islice(recent, FEW):
            at = commit.get("version")
            try:
                before = DeltaTable(self._path, version=at - 1) if isinstance(at, int) and at else None
            except DeltaError:  # removed in time
                return None
            if before is None or before.transaction_version(app_id) != last:
                return _rows(commit)
        return None


def _is_batch(commit: Mapping[str, object], app_id: str, version: int) -> bool:
    """Whether Delta's own sink made this commit, for this query's batch."""
    of = commit.get("operationParameters")
    return isinstance(of, dict) and of.get("queryId") == app_id and str(of.get("epochId")) == str(version)


def _rows(commit: Mapping[str, object]) -> int | None:
    metrics = commit.get("operationMetrics")
    rows = metrics.get("numOutputRows") if isinstance(metrics, dict) else None
    return int(rows) if rows is not None and str(rows).isdecimal() else None
