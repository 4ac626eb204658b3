"""Offsets in an Iceberg table: in the summaries of its snapshots, or in columns of its rows.

- ``layout=summary``: a property of the snapshot's summary names offsets. Spark writes it by the option
  ``snapshot-property.NAME``, pyiceberg by ``snapshot_properties``. Read from the current snapshot of the branch along
  its parents, so a table that was rolled back has the offsets that it had then.
- ``layout=columns``: the largest offset of each topic and partition among the rows: see ``columns``.

The sink for Kafka Connect keeps ``kafka.connect.offsets.CONTROL_TOPIC.GROUP``. Those are positions in its control topic
(``Coordinator.java`` of Iceberg 1.11: ``controlTopicOffsets``), and no offsets of the records: refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.errors import ConfigError, Refused
from reconciler.places.iceberg.table import IcebergAt, summary_of
from reconciler.places.table_address import TableAddress, TableStore, no_table, parse
from reconciler.places.table_offsets import Commit, OlderGone, filled, rows_of
from reconciler.ports import OffsetStore, Row

EXAMPLE = (
    "iceberg:CATALOG/db.clicks?layout=summary&number=next&lists=all&property=kafka-offsets, or "
    "iceberg:CATALOG/db.clicks?layout=columns&number=last&topic=topic&partition=partition&offset=offset"
)
OF_CONNECT = "kafka.connect.offsets."
MAIN = "main"
REPLACE = "replace"
"""The operation of a compaction: it changes no data."""


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``iceberg:CATALOG/NAMESPACE.TABLE?layout=summary|columns&number=next|last``, with the layout's parameters."""
    at = parse(address, named="summary", others=("branch",), property_=None, example=EXAMPLE)
    if at.field.startswith(OF_CONNECT):
        raise ConfigError(
            f"{at.field} counts the control topic of Iceberg's sink for Kafka Connect, not the records' topics.",
            hint="Read the offsets off the table's rows (layout=columns), where the sink writes them, for example by "
            "its KafkaMetadataTransform.",
        )
    return IcebergStore(at)


class IcebergStore(TableStore):
    """Raises NotCreated where there is no table; Refused, Unreachable, ConfigError."""

    def __init__(self, at: TableAddress) -> None:
        super().__init__(at)
        self._iceberg = IcebergAt(at.place, at.table, "store")

    def _rows(self, group: str, topics: frozenset[str] | None) -> list[Row]:
        with self._iceberg.errors():
            table = self._iceberg.table()
            if table is None:
                raise no_table(f"There is no Iceberg table {self._at.table}.")
            newest = self._newest(table)
            if newest is None:
                return []
            if self._at.columns is not None:
                from reconciler.places.iceberg.columns import rows_in

                return rows_in(table, newest, self._at, self._at.columns, group, topics)
            name = filled(self._at.field, group=group)
            return rows_of(self._commits(table, newest, name), self._at.kept(f"snapshots' {name}"), group)

    def _newest(self, table: Any) -> Any | None:
        """The newest snapshot of the branch; None where the table has none yet."""
        branch = self._at.branch or MAIN
        newest = table.current_snapshot() if branch == MAIN else table.snapshot_by_name(branch)
        if newest is None and branch != MAIN:
            known = ", ".join(sorted(table.metadata.refs)) or "none"
            raise Refused(
                f"The table {self._at.table} has no branch {branch!a}.",
                hint=f"Correct branch= in the store's address; the table has: {known}.",
            )
        return newest

    def _commits(self, table: Any, newest: Any, name: str) -> Iterator[Commit]:
        """The snapshots, newest first. Raises OlderGone where expired ones would follow."""
        last = None
        for count, each in enumerate(self._iceberg.history(table, newest)):
            if count == self._at.walk:
                raise OlderGone(f"walk={self._at.walk} lets a read look at no more snapshots")
            operation = each.summary.operation.value if each.summary is not None else "none"
            named = summary_of(each).get(name)
            yield Commit(f"snapshot {each.snapshot_id}", named, each.timestamp_ms, operation, operation != REPLACE)
            last = each
        if last is not None and last.parent_snapshot_id is not None:
            raise OlderGone("the snapshots before those have expired")
