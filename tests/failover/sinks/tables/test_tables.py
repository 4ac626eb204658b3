"""Delta, Iceberg, a function and a table of batches: which batch each took last, as the real libraries read it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import ConfigError, NeedsPerson, Refused, Unreachable
from reconciler.failover.sinks.guard import Taken
from reconciler.failover.sinks.judging import open_sink
from reconciler.plan.rows import SinkOutcome
from tests.failover.checkpoint.checkpoint_files import QUERY
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.failover.sinks.world import Query, query

__all__ = ["query"]


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow")


# ---------------------------------------------------------------- Delta


@pytest.fixture
def delta(arrow: Any, tmp_path: Path) -> Any:
    """Write one batch of a name into the table."""
    deltalake = pytest.importorskip("deltalake")

    def write(batch: int, app_id: str = QUERY) -> None:
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app_id, batch)])
        rows = arrow.table({"id": [batch]})
        deltalake.write_deltalake(tmp_path / "delta", rows, mode="append", commit_properties=properties)

    return write


def native(table: Path, version: int, batch: int, rows: int) -> None:
    """A commit of Delta's own sink, as Delta 4.4 writes it."""
    of = {"queryId": QUERY, "epochId": str(batch), "outputMode": "Append"}
    metrics = {"numAddedFiles": "0", "numOutputRows": str(rows)}
    commit = {"timestamp": 1, "operation": "STREAMING UPDATE", "operationParameters": of, "operationMetrics": metrics}
    lines = [{"commitInfo": commit}, {"txn": {"appId": QUERY, "version": batch, "lastUpdated": 1}}]
    (table / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


def test_a_delta_table_tells_the_last_batch_of_each_name(delta: Any, tmp_path: Path) -> None:
    for batch in range(3):
        delta(batch)
    delta(7, "clicks")
    sink = open_sink(f"delta:{tmp_path}/delta")
    assert [sink.last_taken(name) for name in (QUERY, "clicks", "other")] == [Taken(2), Taken(7), Taken(None)]
    assert open_sink(f"delta:{tmp_path}/none").last_taken(QUERY) == Taken(None), "the query creates it"
    native(tmp_path / "delta", 4, 3, rows=5)
    assert sink.last_taken(QUERY) == Taken(3, has_records=True)
    native(tmp_path / "delta", 5, 4, rows=0)
    assert sink.last_taken(QUERY) == Taken(4, is_empty=True)


def test_a_delta_table_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / f"{0:020}.json").write_text("not JSON")
    with pytest.raises((Refused, Unreachable), match=f"delta:{tmp_path}/delta"):
        open_sink(f"delta:{tmp_path}/delta").last_taken(QUERY)


def test_a_new_checkpoint_has_a_name_of_its_own_unless_the_job_keeps_one(delta: Any, query: Query) -> None:
    delta(5)
    delta(5, "clicks")
    for file in sorted(query.files.path.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    query.files.path.rmdir()
    query.sinks = [f"delta:{query.folder}/delta"]
    assert query.start_at_source()
    query.sinks = [f"delta:{query.folder}/delta?app_id=clicks"]
    with pytest.raises(NeedsPerson, match='it knows batches as "clicks": let the job write under another name'):
        query.start_at_source()


# ---------------------------------------------------------------- Delta's RESTORE, which leaves the batches' numbers


def restore(table: Path, version: int | datetime) -> None:
    import deltalake

    deltalake.DeltaTable(table).restore(version)


@pytest.mark.parametrize("of", ["", "?app_id=clicks"])
@pytest.mark.parametrize("committed", [True, False])
def test_batches_that_a_restore_took_back_would_never_come(delta: Any, query: Query, of: str, committed: bool) -> None:
    name = "clicks" if of else QUERY
    query.sinks = [f"delta:{query.folder}/delta{of}"]
    query.begin(3)
    if committed:
        query.run(range(3, 4))
    query.keep_anchor(3, of_end=not committed)
    for batch in range(4):
        delta(batch, name)
    whole = SinkOutcome.FITS if committed else SinkOutcome.TAKEN
    assert query.sink().outcome is whole
    restore(query.folder / "delta", 1)
    row = query.sink()
    assert (row.outcome, row.last_taken) == (SinkOutcome.UNSEEN, 3)
    assert "version 4 of the table is a RESTORE to version 1, which lacks batch 3" in row.detail
    with pytest.raises(NeedsPerson, match="would never come") as stopped:
        query.start_at_source()
    assert "Set it to a version that has them" in str(stopped.value.hint)
    with pytest.raises(NeedsPerson, match="would never come"):
        query.clone()
    restore(query.folder / "delta", 3)
    assert query.sink().outcome is whole, "the way out"


@pytest.mark.parametrize("of", ["", "?app_id=clicks"])
def test_a_restore_that_keeps_the_last_batch_or_is_older_takes_nothing_back(
    delta: Any, tmp_path: Path, of: str
) -> None:
    name = "clicks" if of else QUERY
    sink = open_sink(f"delta:{tmp_path}/delta{of}")
    for batch in range(3):
        delta(batch, name)
    delta(0, "another")
    restore(tmp_path / "delta", 2)
    assert sink.last_taken(name).undone == ""
    restore(tmp_path / "delta", 1)
    delta(3, name)
    for batch in range(1, 15):
        delta(batch, "another")
    assert sink.last_taken(name).undone == "", "the query has gone on since"
    assert sink.last_taken("another").undone == ""
    native(tmp_path / "delta", 21, 4, rows=5)
    assert sink.last_taken(QUERY).undone == ""


def test_a_log_that_does_not_reach_back_to_the_last_batch_may_lack_a_restore(delta: Any, query: Query) -> None:
    import deltalake

    query.sinks = [f"delta:{query.folder}/delta?app_id=clicks"]
    for batch in range(3):
        delta(batch, "clicks")
    for batch in range(12):
        delta(batch, "another")
    assert query.sink().outcome is SinkOutcome.FITS
    deltalake.DeltaTable(query.folder / "delta").create_checkpoint()
    for batch in range(12, 15):
        delta(batch, "another")
    for version in range(14):
        (query.folder / "delta" / "_delta_log" / f"{version:020}.json").unlink()
    assert open_sink(query.sinks[0]).last_taken("clicks") == Taken(2, whole=False)
    row = query.sink()
    assert (row.outcome, row.last_taken) == (SinkOutcome.UNKNOWN, 2)
    assert "its log does not show whether that was undone since" in row.detail
    assert query.start_at_source()
    delta(3, "clicks")
    assert open_sink(query.sinks[0]).last_taken("clicks") == Taken(3)


# ---------------------------------------------------------------- Iceberg


@pytest.fixture
def iceberg(arrow: Any, tmp_path: Path) -> Iceberg:
    pytest.importorskip("pyiceberg")
    return Iceberg(tmp_path / "iceberg")


def test_an_iceberg_table_tells_the_last_epoch_of_a_query_behind_other_snapshots(iceberg: Iceberg) -> None:
    for epoch in range(11):
        iceberg.batch(epoch)
    iceberg.batch(40, "another")
    iceberg.add({"operation": "replace"})
    newest = iceberg.folder / "metadata" / "v13.metadata.json"
    for address in (f"iceberg:{iceberg.folder}", f"iceberg:{newest}", f"iceberg:{newest.as_uri()}"):
        sink = open_sink(address)
        assert [sink.last_taken(name) for name in (QUERY, "another", "no")] == [
            Taken(10, has_records=True),
            Taken(40, has_records=True),
            Taken(None),
        ]
    iceberg.batch(11, rows=0)
    assert open_sink(f"iceberg:{iceberg.folder}").last_taken(QUERY) == Taken(11, is_empty=True)


def test_expired_snapshots_are_not_taken_for_batches_that_never_were(iceberg: Iceberg, query: Query) -> None:
    iceberg.batch(2)
    for _ in range(3):
        iceberg.add({"operation": "replace"}, expired=1)
    assert open_sink(f"iceberg:{iceberg.folder}").last_taken(QUERY) == Taken(None, whole=False)
    query.sinks = [f"iceberg:{iceberg.folder}"]
    row = query.sink()
    assert row.outcome is SinkOutcome.UNKNOWN
    assert "not known further back" in row.detail


def test_a_table_of_no_catalog_is_a_fault_of_the_configuration(arrow: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    with pytest.raises(ConfigError, match="names no table"):
        open_sink("iceberg:clicks")
    with pytest.raises(ConfigError, match=r"iceberg:nowhere/db\.clicks could not be read"):
        open_sink("iceberg:nowhere/db.clicks").last_taken(QUERY)
    assert open_sink(f"iceberg:{tmp_path}/none").last_taken(QUERY) == Taken(None)


# ---------------------------------------------------------------- the job's own account


def test_a_function_of_an_allowed_module_tells_the_last_batch(query: Query) -> None:
    query.sinks = ["python:sink_accounts:last_batch"]
    with pytest.raises(ConfigError, match=r"\[policy\] python does not allow"):
        query.check()
    query.extra = '[policy]\npython = ["sink_accounts"]'
    assert (query.sink().outcome, query.sink().last_taken) == (SinkOutcome.FITS, 2)
    query.sinks = ["python:sink_accounts:broken"]
    with pytest.raises(Refused, match="python:sink_accounts:broken raised KeyError"):
        query.check()
    query.sinks = ["python:sink_accounts:wordy"]
    with pytest.raises(Refused, match="returned 'two', which is no number of a batch"):
        query.check()


@pytest.mark.parametrize("address", ["delta:/x?appid=1", "files:/x?app_id=1", "postgresql://h/d", "python:math"])
def test_an_address_with_a_slip_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        open_sink(address)
