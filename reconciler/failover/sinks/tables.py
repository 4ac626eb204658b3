"""Delta and Iceberg tables: a query's batches, as the tables themselves have them.

Delta: its protocol (``txn``: ``appId`` and ``version``), compared with tables that Delta 4.4 wrote. Spark's Delta sink
writes under the query's id, as the checkpoint's ``metadata`` has it; ``foreachBatch`` with ``txnAppId`` under a name of
the job's. A write whose version is not above the name's last is dropped. ``RESTORE`` takes back the rows, and leaves
the versions. A commit need not say what it did (``commitInfo``): then one that removes files may be a RESTORE.
``deltalake`` reads tables without a JVM; the login to a bucket comes from the environment, as it documents.

Iceberg 1.11 (``SparkWrite.findLastCommittedEpochId``): its sink puts ``spark.sql.streaming.queryId`` and ``.epochId``
into the summary of each snapshot, and drops a batch whose number is not above the last one that it finds by following
the parents of the current snapshot. Neither the sink nor this module sees expired snapshots. A table is given by its
catalog (of pyiceberg's own configuration), its metadata file, or the folder of a Hadoop table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import Refused
from reconciler.failover.sinks.guard import Taken
from reconciler.places.delta.table import DeltaAt, DeltaCommit, is_restore, restored_version
from reconciler.places.iceberg.table import IcebergAt, summary_of

FAR = 1000
"""The most commits that are searched, from the newest back, for the one that wrote the last batch."""
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
                hint="Give its jars with --conf, and name it as --output 'table:delta.`PATH`'",
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
        """True if Delta's own sink has written one of the recent commits."""
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


QUERY, EPOCH, ADDED = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId", "added-records"


class IcebergSink:
    """A table by ``CATALOG/NAMESPACE.TABLE``, by the folder of a Hadoop table, or by a file ``….metadata.json``."""

    knows_queries = True
    takes_every_batch = True
    app_id = None

    def __init__(self, place: str) -> None:
        self.shown = without_secrets(f"iceberg:{place}")
        self._at = IcebergAt(place, self.shown, "sink")

    def data_files(self) -> tuple[str, ...]:
        """The Parquet files that hold the table's rows; none if it does not exist.

        Raises Refused where the files alone do not determine the rows: rows were deleted or columns renamed.
        """
        with self._at.errors():
            table = self._at.table()
            if table is None or table.current_snapshot() is None:
                return ()
            names = {(field.field_id, field.name) for schema in table.schemas().values() for field in schema.fields}
            tasks = list(table.scan().plan_files())
            formats = {str(getattr(task.file.file_format, "value", task.file.file_format)).lower() for task in tasks}
            whys = {
                "has renamed columns": len({number for number, _ in names}) < len(names),
                "has deleted rows": any(task.delete_files for task in tasks),
                "has files that are not Parquet": bool(formats - {"parquet"}),
            }
            for why in (why for why, holds in whys.items() if holds):
                raise Refused(
                    f"The table {self.shown} {why}, which only Iceberg's own reader knows.",
                    hint="Give its jars and catalog with --conf, and name it as --output table:CATALOG.NAMESPACE.TABLE",
                )
            return tuple(task.file.file_path for task in tasks)

    def last_taken(self, app_id: str | None) -> Taken:
        """This query's last epoch in the snapshots that still exist. A table that does not exist yet has none.

        Epochs that were rolled back do not count: their snapshots are not ancestors of the current one.
        """
        with self._at.errors():
            table, oldest = self._at.table(), None
            if table is None:
                return Taken(None)
            for snapshot in self._at.history(table, table.current_snapshot()):
                summary, oldest = summary_of(snapshot), snapshot
                if summary.get(QUERY) == app_id and str(summary.get(EPOCH)).isdecimal():
                    is_empty = str(summary.get(ADDED, "0")) == "0"
                    return Taken(int(summary[EPOCH]), is_empty=is_empty, has_records=not is_empty)
            of_query = (each for each in table.snapshots() if summary_of(each).get(QUERY) == app_id)
            # Older ones may be ancestors, of which a parent has expired.
            others = [each.snapshot_id for each in of_query if oldest and each.timestamp_ms > oldest.timestamp_ms]
        undone = f"this query's snapshot {others[-1]} is not an ancestor of the table's current one" if others else ""
        return Taken(None, whole=oldest is None or oldest.parent_snapshot_id is None, undone=undone)

    def has_queries(self) -> bool:
        """True if a query wrote any snapshot that still exists."""
        with self._at.errors():
            table = self._at.table()
            snapshots = table.snapshots() if table is not None else []
        return any(QUERY in summary_of(each) for each in snapshots)
