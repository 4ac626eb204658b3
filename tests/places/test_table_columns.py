"""Offsets in the columns of real tables, which Delta and Iceberg read alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import UNKNOWN_PARTITION
from reconciler.core.errors import ConfigError, Refused
from reconciler.places.registry import open_store

pytest.importorskip("deltalake")
pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

from tests.places.sink_job import ID, append_delta, append_iceberg, iceberg_table

ROWS = [("events", 0, 4, "a"), ("events", 0, 5, "b"), ("events", 1, 9, "c"), ("it's", 0, 2, "d")]
COLUMNS = "layout=columns&number=last&topic=topic&partition=partition&offset=offset"


@dataclass(frozen=True)
class Table:
    """A table of a folder: its store's address, and how rows come to it and go."""

    address: str
    folder: Path
    append: Callable[[Path, Any], None]
    delete: Callable[[Path, str], object]

    def read(self, query: str, topics: Any = ("events",), group: str = "g") -> dict[tuple[str, int], int]:
        rows = open_store(f"{self.address}?{query}").read(group, topics)
        assert [row.key for row in rows] == sorted(row.key for row in rows)
        return {tuple(row.key): row.stored.offset for row in rows}


def delete_from_delta(folder: Path, where: str) -> None:
    from deltalake import DeltaTable

    DeltaTable(folder).delete(where)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    if request.param == "delta":
        return Table(f"delta:{tmp_path}", tmp_path, append_delta, delete_from_delta)
    return Table(
        f"iceberg:{tmp_path}/{ID}", tmp_path, append_iceberg, lambda folder, where: iceberg_table(folder).delete(where)
    )


def test_the_largest_offset_of_each_partition_is_read_off_the_rows(table: Table) -> None:
    table.append(table.folder, ROWS)
    table.append(table.folder, [("events", 0, 3, "late"), ("events", 1, 10, "e"), ("orders", 0, 77, "f")])
    assert table.read(COLUMNS) == {("events", 0): 6, ("events", 1): 11}
    assert table.read(COLUMNS, ["it's", "events"])["it's", 0] == 3
    assert table.read(COLUMNS, []) == {}
    assert len(table.read(COLUMNS, None)) == 4
    one_topic = "layout=columns&number=next&topic_name=clicks&partition=partition&offset=offset&group=id"
    assert table.read(one_topic, ["clicks"], group="c") == {("clicks", 1): 9}
    assert table.read(one_topic, ["events"], group="c") == {}
    table.delete(table.folder, "offset = 10")
    assert table.read(COLUMNS) == {("events", 0): 6, ("events", 1): 10}, "rows that are deleted do not count"


def test_rows_without_partition_or_offset_are_malformed_and_those_without_topic_are_no_jobs(table: Table) -> None:
    rows = [("events", None, 4, "a"), ("events", 1, None, "b"), (None, 2, 5, "c"), ("events", 3, 1, "d")]
    table.append(table.folder, rows)
    found = open_store(f"{table.address}?{COLUMNS}").read("g")
    assert [row.key.partition for row in found] == [UNKNOWN_PARTITION, 1, 3]
    assert [row.malformed is None for row in found] == [False, False, True]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (COLUMNS.replace("=offset", "=kafka_offset"), "has no column 'kafka_offset'"),
        (COLUMNS.replace("=offset", "=id"), "The column 'id' of .* has the type string, and whole numbers are"),
        (COLUMNS.replace("topic=topic", "topic=offset").replace("offset=offset", "offset=partition"), "two of its col"),
        (COLUMNS.replace("topic=topic", "topic=partition").replace("partition=partition", "partition=id"), "text"),
    ],
)
def test_columns_that_are_not_there_or_hold_something_else_are_refused(table: Table, query: str, why: str) -> None:
    table.append(table.folder, ROWS)
    with pytest.raises((Refused, ConfigError), match=why):
        table.read(query)
