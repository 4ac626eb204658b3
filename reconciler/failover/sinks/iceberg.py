"""Iceberg tables: a query's batches, read from the summaries of the table's snapshots.

Source: Iceberg 1.11 (``SparkWrite.findLastCommittedEpochId``). Its sink puts ``spark.sql.streaming.queryId`` and
``.epochId`` into the summary of each snapshot, and drops a batch whose number is not above the last one that it finds
by following the parents of the current snapshot. Neither the sink nor this module sees expired snapshots.

A table is given by its catalog (of pyiceberg's own configuration), its metadata file, or the folder of a Hadoop table.
"""

from __future__ import annotations

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import Refused
from reconciler.failover.sinks.taken import Taken
from reconciler.places.iceberg.table import IcebergAt, summary_of

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
        undone = f"this query's snapshot {others[-1]} is no ancestor of the table's current one" if others else ""
        return Taken(None, whole=oldest is None or oldest.parent_snapshot_id is None, undone=undone)

    def has_queries(self) -> bool:
        """Whether a query wrote any snapshot that still exists."""
        with self._at.errors():
            table = self._at.table()
            snapshots = table.snapshots() if table is not None else []
        return any(QUERY in summary_of(each) for each in snapshots)
