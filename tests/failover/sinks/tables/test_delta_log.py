"""A Delta table's log whose commits do not all say what they did: ``commitInfo`` is each writer's choice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.core.errors import NeedsPerson, Refused
from reconciler.failover.sinks.guard import Taken
from reconciler.failover.sinks.judging import open_sink
from reconciler.plan.rows import SinkOutcome
from tests.failover.checkpoint.checkpoint_files import QUERY
from tests.failover.sinks.tables.delta_table import Delta
from tests.failover.sinks.world import Query, query

__all__ = ["query"]

OF = ["", "?app_id=clicks"]
SILENT: dict[str, Any] = {"txn": {"appId": "other", "version": 1, "lastUpdated": 1}}
RESTORE: dict[str, Any] = {"timestamp": 1, "operation": "RESTORE", "operationParameters": {"version": "1"}}
REMOVES: dict[str, Any] = {"remove": {"path": "2.parquet", "deletionTimestamp": 1, "dataChange": True}}


@pytest.fixture
def table(query: Query) -> Delta:
    pytest.importorskip("deltalake")
    return Delta(query.folder / "delta")


def taken(query: Query, of: str) -> Taken:
    return open_sink(f"delta:{query.folder}/delta{of}").last_taken("clicks" if of else QUERY)


def without_information(table: Delta) -> None:
    for file in (table.folder / "_delta_log").glob("*.json"):
        lines = [line for line in file.read_text().splitlines() if "commitInfo" not in line]
        file.write_text("\n".join(lines))


@pytest.mark.parametrize("of", OF)
def test_a_batch_that_a_copy_repeated_empty_is_known_behind_commits_that_say_nothing(
    query: Query, table: Delta, of: str
) -> None:
    """Else the original would be started, and the table would drop its batch without an error."""
    name = "clicks" if of else None
    table.batch(2, 5, name)
    table.batch(3, 0, name)
    table.commit(SILENT)
    query.sinks = [f"delta:{query.folder}/delta{of}"]
    query.begin(3)
    assert taken(query, of) == Taken(3, is_empty=True)
    with pytest.raises(NeedsPerson, match="its batch 3 is empty, and this checkpoint's has records"):
        query.start_at_source()


@pytest.mark.parametrize("of", OF)
def test_a_restore_is_found_among_commits_that_say_nothing(query: Query, table: Delta, of: str) -> None:
    for number in range(3):
        table.batch(number, 5, "clicks" if of else None)
        table.commit(SILENT)
    table.commit({"commitInfo": {**RESTORE, "operationParameters": {"version": "4"}}})
    table.commit(SILENT)
    assert taken(query, of).undone == "version 7 of the table is a RESTORE to version 4, which lacks batch 2"


@pytest.mark.parametrize("of", OF)
def test_what_a_commit_took_back_that_does_not_say_so_is_not_called_known(query: Query, table: Delta, of: str) -> None:
    for number in range(3):
        table.batch(number, 5, "clicks" if of else None)
    table.commit({"commitInfo": RESTORE}, REMOVES)
    without_information(table)
    query.sinks = [f"delta:{query.folder}/delta{of}"]
    assert taken(query, of) == Taken(2, whole=False)
    row = query.sink()
    assert (row.outcome, row.last_taken) == (SinkOutcome.UNKNOWN, 2)
    assert "its log does not show whether that was undone since" in row.detail


def test_a_commit_that_is_damaged_is_named(query: Query, table: Delta) -> None:
    for number in range(3):
        table.batch(number)
    import deltalake

    deltalake.DeltaTable(table.folder).create_checkpoint()
    (table.folder / "_delta_log" / f"{3:020}.json").write_text(json.dumps(SILENT)[:-9])
    with pytest.raises(Refused, match="version 3 of its log is not JSON"):
        taken(query, "")
