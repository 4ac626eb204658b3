"""Delta tables: a query's batches as the table's own transactions have them.

Source: Delta's protocol (``txn``: ``appId`` and ``version``), compared with tables that Delta 4.4 wrote. Spark's Delta
sink writes under the query's id, as the checkpoint's ``metadata`` has it; ``foreachBatch`` with ``txnAppId`` under a
name of the job's. A write whose version is not above the name's last is dropped. ``RESTORE`` takes back the rows, and
leaves the versions as they are. A commit need not say what it did (``commitInfo``): then one that removes files may be
a RESTORE.

``deltalake`` reads tables without a JVM; the login to a bucket comes from the environment, as it documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import Refused
from reconciler.failover.sinks.taken import Taken
from reconciler.places.delta.table import DeltaAt, DeltaCommit, is_restore, restored_version

FAR = 1000
"""Commits, counted from the newest, that are searched for the one that brought the last batch."""
RECENT = 100
"""As ``FAR``, for one of any query."""


class DeltaSink:
    """The table at a path or URL. ``app_id``: the job's own ``txnAppId``; None where Delta's own sink writes."""

    knows_queries = True

    def __init__(self, path: str, app_id: str | None) -> None:
        self.app_id = app_id
        self.shown = without_secrets(f"delta:{path}{f'?app_id={app_id}' if app_id else ''}")
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
            since: list[DeltaCommit] = []
            brought: DeltaCommit | None = None
            for commit in islice(self._at.commits(table), FAR):
                if commit.transactions.get(app_id) == last:
                    brought = commit
                    break
                since.append(commit)
            whole = brought is not None and not any(each.info is None and each.removes for each in since)
            undone = self._undone(since, app_id, last)
        rows = None if brought is None else _rows(brought.info or {})
        return Taken(last, is_empty=rows == 0, has_records=bool(rows), whole=whole, undone=undone)

    def has_queries(self) -> bool:
        """Whether Delta's own sink has written one of the recent commits."""
        with self._at.errors():
            table = self._at.table()
            recent = [] if table is None else table.history(RECENT)
        return any("queryId" in (each.get("operationParameters") or {}) for each in recent)

    def _undone(self, since: Iterable[DeltaCommit], app_id: str, last: int) -> str:
        """How a RESTORE took this version's rows back; empty if none did. ``since``: the commits after it, at least."""
        below: int | None = None
        for commit in since:
            version, info = commit.version, commit.info or {}
            if not is_restore(info) or (below is not None and version > below):
                continue
            then = self._at.at_version(version)  # with the versions of right before it
            if then is not None and then.transaction_version(app_id) != last:
                return ""
            below = restored_version(info)  # the commits between do not count
            led_to = None if below is None else self._at.at_version(below)
            if led_to is None:
                return f"version {version} of the table is a RESTORE, and whether it kept batch {last} is not known"
            if led_to.transaction_version(app_id) != last:
                return f"version {version} of the table is a RESTORE to version {below}, which lacks batch {last}"
        return ""


def _rows(commit: Mapping[str, object]) -> int | None:
    metrics = commit.get("operationMetrics")
    rows = metrics.get("numOutputRows") if isinstance(metrics, dict) else None
    return int(rows) if rows is not None and str(rows).isdecimal() else None
