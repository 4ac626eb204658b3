"""Offsets in a Delta table: in the commits' own fields, in transaction versions, or in columns of its rows.

- ``layout=commit``: a field of ``commitInfo`` names offsets. Spark writes ``userMetadata``, a text, from the option or
  the setting ``spark.databricks.delta.commitInfo.userMetadata``; ``deltalake`` any field (``custom_metadata``).
- ``layout=txn``: a ``txn`` for each partition, its version an offset. kafka-delta-ingest writes the app id
  ``APP_ID-PARTITION`` and the last processed offset (``build_actions`` in its ``delta_helpers.rs``).
- ``layout=columns``: the largest offset of each topic and partition among the rows. DataFusion within ``deltalake``
  reads the columns that are needed, of the files that may hold the topics, and keeps one number a partition.

``RESTORE`` makes the table what it was, and with the layouts ``commit`` and ``columns`` its offsets, too: the commits
after that version do not count. Transaction versions stay as they are: their rows have a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from reconciler.core.errors import Refused
from reconciler.places.delta.table import DeltaAt, DeltaCommit, is_restore, restored_version
from reconciler.places.table_address import TableAddress, TableColumns, TableStore, no_table, parse
from reconciler.places.table_offsets import Commit, OlderGone, fill_pattern, row_of, row_of_column, rows_of
from reconciler.ports import OffsetStore, Row, TopicPartition

EXAMPLE = (
    "delta:/data/clicks?layout=commit&number=next&lists=all, "
    "delta:/data/clicks?layout=txn&number=last&app_id=clicks-{partition}&topic_name=events&partitions=12, or "
    "delta:/data/clicks?layout=columns&number=last&topic=topic&partition=partition&offset=offset"
)
USER_METADATA = "userMetadata"
RECENT = 50
"""Commits, counted from the newest, that are searched for a RESTORE."""
DATA_OPERATIONS = frozenset(
    (
        *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "COPY INTO", "MANUAL UPDATE"),
        *("CREATE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"),
    )
)
"""The operations in ``commitInfo`` that write a job's data. ``OPTIMIZE``, ``VACUUM`` and others do not."""
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``delta:PATH?layout=commit|txn|columns&number=next|last``, with the parameters of the layout."""
    at = parse(address, named="commit", others=("txn",), property_=USER_METADATA, example=EXAMPLE)
    return DeltaStore(at)


class DeltaStore(TableStore):
    """Raises NotCreated where there is no table; Refused, Unreachable, ConfigError."""

    def __init__(self, at: TableAddress) -> None:
        super().__init__(at)
        self._delta = DeltaAt(at.place, at.table, "store")

    def _rows(self, group: str, topics: frozenset[str] | None) -> list[Row]:
        with self._delta.errors():
            table = self._delta.table()
            if table is None:
                raise no_table(f"There is no Delta table at {self._at.table}.")
            if self._at.columns is not None:
                return self._of_columns(table, self._at.columns, group, topics)
            if self._at.layout == "txn":
                return self._of_transactions(table, group, topics)
            name = fill_pattern(self._at.field, group=group)
            found = commits(self._delta.commits(table), name, self._at.walk)
            return rows_of(found, self._at.kept(f"commits' {name}"), group)

    # ------------------------------------------------------------ transaction versions

    def _of_transactions(self, table: Any, group: str, topics: frozenset[str] | None) -> list[Row]:
        """One more than the partitions that the address counts is asked for: that must not exist."""
        at = self._at
        names = topics or frozenset() if at.topic_name is None else {at.topic_name}
        note = _note_of_restore(self._delta.commits(table))
        rows = []
        for topic in sorted(names):
            for number in range(at.partitions + 1):
                app_id = fill_pattern(at.app_id, group=group, topic=topic, partition=number)
                version = table.transaction_version(app_id)
                if version is None:
                    continue
                if number == at.partitions:
                    raise Refused(
                        f"The table {at.table} has transactions of {app_id!a}, and partitions={at.partitions} counts "
                        f"partitions up to {at.partitions - 1}.",
                        hint="Correct partitions= in the store's address.",
                    )
                key = TopicPartition(topic, number)
                row = row_of(key, version, at.kept(f"transactions {app_id!a}"), group, version=f"txn {version}")
                rows.append(replace(row, note=note))
        return rows

    # ------------------------------------------------------------ columns

    def _of_columns(self, table: Any, columns: TableColumns, group: str, topics: frozenset[str] | None) -> list[Row]:
        from deltalake import QueryBuilder

        types = {each.name: getattr(each.type, "type", "of a nested value") for each in table.schema().fields}
        columns.check(types, _INTEGERS, self._at.table)
        if topics is not None and not topics:
            return []
        reader = QueryBuilder().register("offsets", table).execute(_query(columns, group, topics))
        kept, version = self._at.kept(), f"version {table.version()}"
        rows: list[Row] = []
        for batch in reader:
            for topic, partition, offset in zip(*(batch.column(n).to_pylist() for n in range(3)), strict=True):
                rows += row_of_column(topic, partition, offset, kept, group, version=version)
        return rows


def _query(columns: TableColumns, group: str, topics: Sequence[str] | frozenset[str] | None) -> str:
    topic = _text(columns.topic_name or "") if columns.topic is None else _name(columns.topic)
    partition, offset = _name(columns.partition), _name(columns.offset)
    wanted = ["TRUE"]
    if topics is not None:
        wanted.append(f"{topic} IN ({', '.join(map(_text, sorted(topics)))})")
    if columns.group is not None:
        wanted.append(f"{_name(columns.group)} = {_text(group)}")
    keys = ", ".join((*([topic] if columns.topic is not None else []), partition))
    return f"SELECT {topic}, {partition}, MAX({offset}) FROM offsets WHERE {' AND '.join(wanted)} GROUP BY {keys}"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _note_of_restore(found: Iterable[DeltaCommit]) -> str:
    """A remark on transaction versions, if one of the last commits is a RESTORE."""
    for each in islice(found, RECENT):
        if is_restore(each.info or {}):
            return (
                f"version {each.version} of the table is a RESTORE, which leaves transactions as they are: the "
                "table may lack records before this offset"
            )
    return ""


# ---------------------------------------------------------------- commits


def commits(found: Iterable[DeltaCommit], name: str, walk: int) -> Iterator[Commit]:
    """The field ``name`` of a table's commits, newest first. Raises OlderGone at the end of the log.

    ``found``: the commits that the log has, newest first. One without ``commitInfo`` may be any.
    """
    below, read, left, whole = None, 0, 1, True  # the table has at least one version
    for each in islice(found, walk):
        info, left, read = each.info, each.version, read + 1
        if below is not None and left > below:
            continue
        if info is None:
            whole = False
        elif is_restore(info):
            below = _restored(info, left)
        else:
            yield _commit(info, left, name)
    if left > 0 or not whole:
        raise OlderGone(
            f"walk={walk} lets a read look at no more commits"
            if left > 0 and read == walk
            else "the table's older log has been removed, or lacks the information on a commit"
        )


def _commit(info: Mapping[str, Any], version: int, name: str) -> Commit:
    operation, at_ms = str(info.get("operation")), info.get("timestamp")
    is_time = isinstance(at_ms, int) and not isinstance(at_ms, bool) and abs(at_ms) < 2**63
    is_data = operation.upper() in DATA_OPERATIONS
    return Commit(f"version {version}", info.get(name), at_ms if is_time else None, operation, is_data)


def _restored(info: Mapping[str, Any], version: int) -> int:
    """The version that a RESTORE leads to."""
    to = restored_version(info)
    if to is None:
        raise OlderGone(f"version {version} is a RESTORE to a time, which does not tell the version that it led to")
    return to
