"""Real Delta tables, written by ``deltalake``, as stores of offsets; and commits as Spark's Delta writes them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import ConfigError, NotCreated, Refused, Unreachable
from reconciler.failover.sinks.guard import Taken
from reconciler.failover.sinks.judging import open_sink
from reconciler.places.registry import open_store
from reconciler.ports import Change

pytest.importorskip("deltalake")
pytest.importorskip("pyarrow")

from tests.places.sink_job import append_delta

ROWS = [("events", 0, 4, "a"), ("events", 0, 5, "b"), ("events", 1, 9, "c"), ("it's", 0, 2, "d")]
COMMIT, ALL = "layout=commit&number=next", "layout=commit&number=next&lists=all"
TXN = "layout=txn&number=last&app_id=clicks-{partition}&topic_name=events&partitions=4"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


def read(table: Path, query: str, topics: Any = ("events",), group: str = "g") -> dict[tuple[str, int], int]:
    rows = open_store(f"delta:{table}?{query}").read(group, topics)
    assert [row.key for row in rows] == sorted(row.key for row in rows)
    return {tuple(row.key): row.stored.offset for row in rows}


def spark(offsets: Any) -> dict[str, str]:
    return {"userMetadata": json.dumps(offsets)}


def commit(table: Path, version: int, operation: str, of: dict[str, Any], **info: Any) -> None:
    """A commit without files, as Delta 4.4 of Spark writes its ``commitInfo``."""
    line = {"timestamp": 1_795_000_000_000 + version, "operation": operation, "operationParameters": of, **info}
    (table / "_delta_log" / f"{version:020}.json").write_text(json.dumps({"commitInfo": line}) + "\n")


# ---------------------------------------------------------------- commit information


def test_the_newest_commit_of_the_job_has_its_offsets_and_their_time(table: Path) -> None:
    append_delta(table, ROWS, spark({"events": {"0": 3, "1": 4}}))
    append_delta(table, ROWS, spark({"events": {"0": 6, "1": 10}}))
    append_delta(table, ROWS)  # of another program
    assert read(table, COMMIT) == read(table, ALL) == {("events", 0): 6, ("events", 1): 10}
    commit(table, 3, "STREAMING UPDATE", {"queryId": "q"}, **spark({"events": {"0": 7, "1": 11}}))
    (first, _) = open_store(f"delta:{table}?{COMMIT}").read("g")
    assert first.stored == StoredOffset(7, None, 1_795_000_000_003)


def test_a_field_of_another_name_may_hold_the_last_offsets_within_others(table: Path) -> None:
    append_delta(
        table, ROWS, {"kafka": json.dumps({"ended": {"events": {"0": 5}}}), "of g": json.dumps({"events": {"0": 1}})}
    )
    assert read(table, "layout=commit&number=last&property=kafka&field=ended") == {("events", 0): 6}
    assert read(table, "layout=commit&number=next&property=of%20{group}") == {("events", 0): 1}
    assert read(table, "layout=commit&number=next&property=of%20{group}", group="h") == {}


def test_a_restore_leaves_transactions_as_they_are_and_their_rows_say_so(table: Path) -> None:
    from deltalake import DeltaTable

    append_delta(table, ROWS, txns={"clicks-0": 5})
    append_delta(table, ROWS, txns={"clicks-0": 9})
    store = open_store(f"delta:{table}?{TXN}")
    assert [(row.stored.offset, row.note) for row in store.read("g")] == [(10, "")]
    DeltaTable(table).restore(0)
    (row,) = store.read("g")
    assert row.stored.offset == 10
    assert row.note.startswith("version 2 of the table is a RESTORE, which leaves transactions as they are")


def test_a_table_that_cannot_be_looked_at_is_not_called_missing(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as a store nor as a sink, which would have taken no batch."""

    def denied(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    store, sink = open_store(f"delta:{table}?{TXN}"), open_sink(f"delta:{table}?app_id=clicks-0")
    assert sink.last_taken("clicks-0") == Taken(None)
    with monkeypatch.context() as during:
        during.setattr(os, "listdir", denied)
        for look in (lambda: store.read("g"), lambda: sink.last_taken("clicks-0")):
            with pytest.raises(Refused, match="cannot be used: Permission denied") as caught:
                look()
            assert not isinstance(caught.value, NotCreated)
    with pytest.raises(NotCreated):
        store.read("g")


def test_a_plus_in_an_address_is_a_plus(table: Path) -> None:
    append_delta(table, ROWS, txns={"clicks+v2-0": 5})
    for plus in ("+", "%2B"):
        assert read(table, TXN.replace("clicks", f"clicks{plus}v2")) == {("events", 0): 6}


def test_compaction_and_vacuum_do_not_count_and_restore_goes_back(table: Path) -> None:
    from deltalake import CommitProperties, DeltaTable

    append_delta(table, ROWS, spark({"events": {"0": 3}}))
    append_delta(table, ROWS, spark({"events": {"0": 6}}))
    found = DeltaTable(table)
    found.optimize.compact(commit_properties=CommitProperties(custom_metadata=spark({"events": {"0": 99}})))
    assert read(table, COMMIT) == {("events", 0): 6}
    DeltaTable(table).restore(0)
    assert read(table, COMMIT) == {("events", 0): 3}
    append_delta(table, ROWS, spark({"events": {"0": 4}}))
    assert read(table, COMMIT) == read(table, ALL) == {("events", 0): 4}
    commit(table, 5, "RESTORE", {"version": None, "timestamp": "2026-11-01 00:00:00"})
    with pytest.raises(Refused, match="version 5 is a RESTORE to a time"):
        read(table, COMMIT)


def test_commits_that_are_made_while_the_table_is_read_do_not_move_a_restore(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undone number of partition 1 counted: it was taken for one below the version that the table went back to."""
    from deltalake import DeltaTable

    from reconciler.places.delta.table import DeltaAt

    append_delta(table, ROWS, spark({"events": {"0": 10, "1": 10}}))
    append_delta(table, ROWS, spark({"events": {"0": 20}}))
    append_delta(table, ROWS, spark({"events": {"1": 999}}))
    DeltaTable(table).restore(1)
    append_delta(table, ROWS, spark({"events": {"0": 30}}))
    opened = DeltaAt.table

    def raced(at: DeltaAt) -> Any:
        found = opened(at)
        for _ in range(2):
            append_delta(table, ROWS)
        return found

    monkeypatch.setattr(DeltaAt, "table", raced)
    assert read(table, COMMIT) == {("events", 0): 30, ("events", 1): 10}
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(Refused, match="the table's older log has been removed"):
        read(table, COMMIT)


def test_a_log_that_was_cleaned_up_may_have_named_more(table: Path) -> None:
    from deltalake import DeltaTable

    for number in range(4):
        append_delta(table, ROWS, spark({"events": {"0": number}}))
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert read(table, ALL) == {("events", 0): 3}
    with pytest.raises(
        Refused, match=r"may name partitions that the newer ones do not, .* the table's older log has been removed"
    ):
        read(table, COMMIT)
    with pytest.raises(Refused, match="No commit that is left names offsets in the commits' other of delta:"):
        read(table, f"{ALL}&property=other")
    (table / "_delta_log" / f"{3:020}.json").unlink()
    with pytest.raises(Refused, match="No commit that is left names offsets"):
        read(table, COMMIT)


def test_a_read_looks_at_so_many_commits_and_no_more(table: Path) -> None:
    append_delta(table, ROWS, spark({"events": {"0": 3}}))
    for _ in range(4):
        append_delta(table, ROWS)
    with pytest.raises(Refused, match="walk=4 lets a read look at no more commits"):
        read(table, f"{ALL}&walk=4")
    assert read(table, f"{ALL}&walk=5") == read(table, f"{COMMIT}&walk=5") == {("events", 0): 3}


# ---------------------------------------------------------------- transactions


def test_each_partitions_transaction_is_the_last_processed_offset(table: Path) -> None:
    append_delta(table, ROWS, txns={"clicks-0": 5, "clicks-1": 9, "clicks-x": 7, "other-2": 8})
    append_delta(table, ROWS, txns={"clicks-0": 6})
    assert read(table, TXN) == {("events", 0): 7, ("events", 1): 10}
    assert read(table, TXN, ["orders"]) == {}
    by_topic = "layout=txn&number=next&app_id={group}-{topic}-{partition}&partitions=2"
    append_delta(table, ROWS, txns={"g-a.events-1": 5})
    assert read(table, by_topic, ["events", "a.events"]) == {("a.events", 1): 5}


def test_a_partition_beyond_the_counted_ones_is_refused(table: Path) -> None:
    append_delta(table, ROWS, txns={"clicks-4": 5})
    with pytest.raises(Refused, match="has transactions of 'clicks-4', and partitions=4 counts partitions up to 3"):
        read(table, TXN)


# ---------------------------------------------------------------- columns


# ---------------------------------------------------------------- the store


def test_a_missing_and_a_damaged_table_are_told_apart(table: Path) -> None:
    with pytest.raises(NotCreated, match=f"There is no Delta table at delta:{table}"):
        read(table, COMMIT)
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / f"{0:020}.json").write_text("not JSON")
    with pytest.raises(Unreachable, match=f"The table delta:{table}"):
        read(table, COMMIT)


def test_only_the_job_writes(table: Path) -> None:
    append_delta(table, ROWS, spark({"events": {"0": 3}}))
    store = open_store(f"delta:{table}?{COMMIT}&of_group=g")
    change = Change(TopicPartition("events", 0), None, StoredOffset(5))
    for act in (lambda: store.write("g", [change], reason="test", now_ms=1), lambda: store.check_writable("g")):
        with pytest.raises(Refused, match="is the job's own, and read-only here; nothing was written") as caught:
            act()
        assert "reconciler hook" in str(caught.value.hint)
    store.create()
    assert store.write("g", [], reason="test", now_ms=1).written == ()
    with pytest.raises(ConfigError, match="are those of group 'g', and group 'h' is asked for"):
        store.read("h")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "it has no layout="),
        ("layout=commit", "it has no number=, which is one of next, last, first"),
        ("layout=summary&number=next", "layout='summary' is not one of commit, txn, columns"),
        (f"{COMMIT}&walk=0", "walk='0' is not a number from 1 to"),
        (f"{COMMIT}&topic=t", "'topic' is not one of its parameters"),
        (f"{COMMIT}&property={{group}}&of_group=g", "of_group= says whose offsets they are"),
        ("layout=columns&number=last&partition=p&offset=o", "it needs topic=, the column"),
        ("layout=columns&number=last&topic=t&partition=p", "offset= is missing"),
        ("layout=txn&number=last&app_id=a&topic_name=t&partitions=2", r"has no \{partition\} in it"),
        (
            "layout=txn&number=last&app_id=a-{partition}&partitions=2",
            r"it needs \{topic\} in its app_id=, or topic_name=",
        ),
        ("layout=txn&number=last&app_id=a-{partition}&topic_name=t", "partitions= is missing"),
    ],
)
def test_an_address_that_leaves_a_question_open_is_refused(query: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_store(f"delta:/srv/t?{query}")
    with pytest.raises(ConfigError, match="it names no table"):
        open_store(f"delta:?{COMMIT}")
