"""Offsets in an Iceberg table: in the summaries of its snapshots, or in columns of its rows.

- ``layout=summary``: a property of the snapshot's summary names offsets. Spark writes it by the option
  ``snapshot-property.NAME``, pyiceberg by ``snapshot_properties``. Read from the current snapshot of the branch along
  its parents, so a table that was rolled back has the offsets that it had then.
- ``layout=columns``: the largest offset of each topic and partition among the rows. Memory holds three columns of one
  file at a time, and a number for each partition. The table's own statistics choose the files: pyiceberg leaves out
  files that hold none of the topics, and the files with the newest offsets come first. A file that holds one partition
  only is left out if no offset in it can be larger than one that was read. Statistics are bounds, not values (the
  format lets an upper bound be too large), so a number is only ever taken from rows.

The sink for Kafka Connect keeps ``kafka.connect.offsets.CONTROL_TOPIC.GROUP``. Those are positions in its control topic
(``Coordinator.java`` of Iceberg 1.11: ``controlTopicOffsets``), not offsets of the records, so they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.errors import ConfigError, Refused
from reconciler.places.iceberg.table import IcebergAt, summary_of
from reconciler.places.table_address import TableAddress, TableColumns, TableStore, no_table, parse
from reconciler.places.table_offsets import Commit, OlderGone, fill_pattern, row_of_column, rows_of
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
                return rows_in(table, newest, self._at, self._at.columns, group, topics)
            name = fill_pattern(self._at.field, group=group)
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


_INTEGERS = frozenset({"int", "long"})


def rows_in(
    table: Any, snapshot: Any, at: TableAddress, columns: TableColumns, group: str, topics: frozenset[str] | None
) -> list[Row]:
    """The rows of the table as of the snapshot. Raises Refused for columns that are not there, or of other types."""
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.scan(snapshot_id=snapshot.snapshot_id).projection()
    columns.check({field.name: str(field.field_type) for field in schema.fields}, _INTEGERS, at.table)
    if topics is not None and (not topics or columns.topic_name not in (None, *topics)):
        return []
    wanted = _filter(columns, group, topics)
    scan = table.scan(row_filter=wanted, selected_fields=columns.names, snapshot_id=snapshot.snapshot_id)
    bounds = _Bounds(schema, columns)
    found: dict[tuple[object, object], int | None] = {}
    for task in sorted(scan.plan_files(), key=bounds.latest_first):
        if bounds.is_behind(task.file, found):
            continue
        arrow = ArrowScan(table.metadata, table.io, scan.projection(), wanted)
        for batch in arrow.to_record_batches([task]):
            _take(batch, columns, found)
    version = f"snapshot {snapshot.snapshot_id}"
    rows: list[Row] = []
    for (topic, partition), offset in found.items():
        rows += row_of_column(topic, partition, offset, at.kept(), group, version=version)
    return rows


def _filter(columns: TableColumns, group: str, topics: frozenset[str] | None) -> Any:
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo, In

    wanted: Any = AlwaysTrue()
    if topics is not None and columns.topic is not None:
        wanted = And(wanted, In(columns.topic, sorted(topics)))
    if columns.group is not None:
        wanted = And(wanted, EqualTo(columns.group, group))
    return wanted


def _take(batch: Any, columns: TableColumns, found: dict[tuple[object, object], int | None]) -> None:
    """Keep the batch's largest offset of each topic and partition; None where all are null."""
    import pyarrow

    keys = [name for name in (columns.topic, columns.partition) if name is not None]
    table = pyarrow.Table.from_batches([batch]).group_by(keys).aggregate([(columns.offset, "max")])
    partitions, offsets = (table[name].to_pylist() for name in (columns.partition, f"{columns.offset}_max"))
    topics = [columns.topic_name] * len(offsets) if columns.topic is None else table[columns.topic].to_pylist()
    for topic, partition, offset in zip(topics, partitions, offsets, strict=True):
        before = found.get((topic, partition))
        found[topic, partition] = offset if before is None or (offset is not None and offset > before) else before


class _Bounds:
    """The statistics of a data file, as far as they bound the offsets in it."""

    def __init__(self, schema: Any, columns: TableColumns) -> None:
        self._columns = columns
        self._fields = {field.name: field for field in schema.fields}

    def latest_first(self, task: Any) -> tuple[bool, int]:
        """A sort key: files without statistics first, then by their largest possible offset, downwards."""
        upper = self._of(task.file.upper_bounds, self._columns.offset)
        return (True, -upper) if isinstance(upper, int) else (False, 0)

    def is_behind(self, file: Any, found: dict[tuple[object, object], int | None]) -> bool:
        """True if the file is known to hold one partition, of which an offset at least as large was read."""
        topic, partition = self._columns.topic_name, self._only(file, self._columns.partition)
        if self._columns.topic is not None:
            topic = self._only(file, self._columns.topic)
        known, upper = found.get((topic, partition)), self._of(file.upper_bounds, self._columns.offset)
        return None not in (topic, partition) and isinstance(upper, int) and known is not None and upper <= known

    def _only(self, file: Any, name: str) -> Any:
        """The one value that all rows of the file have there; None if it is not known that they do."""
        if (file.null_value_counts or {}).get(self._fields[name].field_id) != 0:
            return None
        lower, upper = (self._of(each, name) for each in (file.lower_bounds, file.upper_bounds))
        return lower if lower == upper else None

    def _of(self, bounds: Any, name: str) -> Any:
        from pyiceberg.conversions import from_bytes

        field = self._fields[name]
        data = (bounds or {}).get(field.field_id)
        return None if data is None else from_bytes(field.field_type, data)
