"""A job's table in MariaDB: what is special about SQL servers that are not PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.places.registry import open_store
from reconciler.ports import Change, Row, TopicPartition
from tests.places.sql.fixtures import GROUPED, MAPPED, PATIENT, TABLES, a_maria_server
from tests.places.store_cases import NOW, put

KEY, MIRRORED = TopicPartition("events", 0), TopicPartition("a.events", 0)
EVERY_BATCH = f"{MAPPED}&newest_by=at"
SOON = "timeout=2"

system = pytest.mark.system


@pytest.fixture
def open_at(results: str) -> Iterator[Callable[..., Any]]:
    """Open the test's database with more parameters."""
    opened = []

    def open_at(parameters: str) -> Any:
        more = "" if "timeout=" in parameters else f"&{PATIENT}"
        opened.append(open_store(f"{results}?{parameters}{more}"))
        return opened[-1]

    yield open_at
    for store in opened:
        store.close()


@pytest.fixture
def tables(sql: Any) -> Any:
    """Both tables, empty; run more statements by it."""
    for statement in TABLES:
        sql(statement)
    return sql


def only(store: Any) -> Row:
    (row,) = store.read("g")
    return row


def change(store: Any, offset: int) -> Any:
    row = only(store)
    return store.write("g", [Change(row.key, row.version, StoredOffset(offset))], reason="test", now_ms=NOW)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (f"mysql:h/db?{MAPPED}", "it does not begin with mysql://"),
        ("mysql://u:pw@h/db", "it names no table"),
        (f"mysql://u:pw@h?{MAPPED}", "it names no database"),
        (f"mysql://u:pw@h:x1/db?{MAPPED}", "it does not name one host"),
        (f"mysql://u:pw@h,i/db?{MAPPED}", "it does not name one host"),
        (f"mysql://u:p/w@h/db?{MAPPED}", "it has an @ or a # behind its login"),
        (f"mysql://u:pw@h/db?{MAPPED}&sslmode=require", "'sslmode' is not one of its parameters"),
        (f"mysql://u:pw@h/db?{MAPPED}&group=topic", "two of its columns are the same"),
        (f"mysql://u:pw@h/db?{MAPPED}&service_name=x", "'service_name' is not one of its parameters"),
        (
            f"mysql://u:pw@h/db?{MAPPED}&time=at",
            "time goes with newest_by or written_by=job, and not with number=first",
        ),
        (
            f"mysql://u:pw@h/db?{EVERY_BATCH}&id=c&number=first",
            "id goes with newest_by or written_by=job, and not with",
        ),
    ],
)
def test_a_wrong_address_says_what_is_wrong_and_shows_no_secret(address: str, why: str) -> None:
    pytest.importorskip("sqlalchemy")
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert why in caught.value.message
    assert "mysql://USER@HOST/DATABASE?table=T" in caught.value.hint
    assert not any(secret in str(caught.value) for secret in ("pw", "p/w"))


@pytest.mark.parametrize(("scheme", "package"), [("oracle", "oracledb"), ("mssql", "pymssql")])
def test_other_servers_name_the_driver_to_install(monkeypatch, scheme: str, package: str) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"needs the Python package {package}") as caught:
        open_store(f"{scheme}://u:pw@h/db?{MAPPED}")
    assert caught.value.hint == f"Run: pip install {package}"


def test_sqlalchemy_loads_with_such_an_address_alone() -> None:
    program = (
        "import sys; from reconciler.places.registry import open_store, traits; from reconciler.config import places;"
        f"address = 'mysql://h/db?{MAPPED}'; open_store('memory:'); traits(address); places.place_of(address);"
        "print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---------------------------------------------------------------- rows


@system
def test_names_that_the_server_takes_for_equal_are_told_apart(open_at, tables) -> None:
    tables("INSERT INTO txn_offsets VALUES ('events', 0, 5), ('Events', 0, 7), ('EVENTS', 1, 5)")
    store = open_at(MAPPED)
    (row,) = store.read("g", ["events"])
    assert (row.key, row.stored) == (KEY, StoredOffset(5))
    assert store.write("g", [Change(KEY, row.version, StoredOffset(6))], reason="test", now_ms=NOW).written == (KEY,)
    assert tables("SELECT off FROM txn_offsets ORDER BY off") == [(5,), (6,), (7,)]
    tables("UPDATE txn_offsets SET off = 6 WHERE off = 7")
    (row,) = store.read("g", ["events"])
    with pytest.raises(Refused, match=r"takes other names for 'events'.*2 rows would change; nothing was written"):
        store.write("g", [Change(KEY, row.version, StoredOffset(9))], reason="test", now_ms=NOW)
    assert tables("SELECT count(*) FROM txn_offsets WHERE off = 9") == [(0,)]


@system
def test_columns_of_text_are_read_and_keep_last_processed_offsets(open_at, sql) -> None:
    sql("CREATE TABLE txn_offsets (topic varbinary(99), part varchar(9), off varchar(20))")
    sql("INSERT INTO txn_offsets VALUES ('events', '0', '0200')")
    store = open_at(f"{MAPPED}&number=last")
    assert only(store).stored == StoredOffset(201)
    change(store, 150)
    put(store, "g", {MIRRORED: StoredOffset(0)})
    assert sql("SELECT topic, part, off FROM txn_offsets") == [(b"events", "0", "149"), (b"a.events", "0", "-1")]


@pytest.fixture
def batches(sql) -> Callable[..., None]:
    """Insert rows: topic, partition, offset, time."""
    sql("CREATE TABLE txn_offsets (topic varchar(99), part integer, off bigint, at datetime)")

    def insert(*rows: tuple[str, int, int | None, str | None]) -> None:
        for row in rows:
            sql("INSERT INTO txn_offsets VALUES (%s, %s, %s, %s)", *row)

    return insert


@system
def test_of_a_row_for_every_batch_the_newest_counts(open_at, batches) -> None:
    batches(("events", 0, 150, "2026-11-02"), ("events", 0, 200, "2026-11-01"), ("Events", 0, 9, "2026-12-31"))
    batches(*[("events", 1, 7, "2026-10-01")] * 2, ("other", 0, 1, "2026-10-01"))
    store = open_at(EVERY_BATCH)
    found = {row.key.partition: row.stored for row in store.read("g", ["events"])}
    assert found == {0: StoredOffset(150), 1: StoredOffset(7)}
    with pytest.raises(Refused, match="is the job's own, and read-only here"):
        store.check_writable("g")


@system
def test_the_time_and_id_of_the_last_record_are_the_rows_anchor(open_at, sql) -> None:
    sql(
        "CREATE TABLE txn_offsets (topic text, part integer, off bigint, at bigint, seen datetime(3), ms text, id"
        " varchar(9), number bigint)"
    )
    sql("INSERT INTO txn_offsets VALUES ('events', 0, 9, 1, '1999-01-01', '5', 'old', 0)")
    sql("INSERT INTO txn_offsets VALUES ('events', 0, 10, 2, '2023-11-14 22:13:20.250', '1700000000250', 'e-9', 7)")
    for columns, anchor in {
        "time=seen&id=id": Anchor(timestamp_ms=1_700_000_000_250, id=b"e-9"),
        "time=ms": Anchor(timestamp_ms=1_700_000_000_250),
        "id=number": Anchor(id=b"7"),
    }.items():
        assert only(open_at(f"{EVERY_BATCH}&{columns}")).stored == StoredOffset(10, anchor)
    sql("INSERT INTO txn_offsets VALUES ('events', 0, 11, 3, NULL, 'soon', NULL, 0)")
    assert only(open_at(f"{EVERY_BATCH}&time=seen&id=id")).stored == StoredOffset(11)
    assert "its time is 'soon', neither milliseconds nor" in only(open_at(f"{EVERY_BATCH}&time=ms")).malformed.message


@system
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("events", 0, 201, "2026-11-02"), "two rows of it with other offsets have the greatest at"),
        (("events", 0, 201, None), "a row of it has no value in at"),
        (("events", 0, None, "2026-11-03"), "its offset is None, which is empty"),
    ],
)
def test_without_one_newest_row_a_partition_is_malformed_and_hides_no_other(open_at, batches, row, problem) -> None:
    batches(("events", 0, 200, "2026-11-02"), ("events", 1, 7, "2026-11-02"), row)
    bad, good = open_at(EVERY_BATCH).read("g")
    assert problem in bad.malformed.message
    assert good.stored == StoredOffset(7)


# ---------------------------------------------------------------- tables


@system
def test_a_missing_table_or_column_is_refused_with_a_statement_that_works(open_at, sql) -> None:
    store = open_at(GROUPED.replace("part&", "partition&"))
    with pytest.raises(Refused, match="There is no table `job_offsets` in MySQL at 127") as caught:
        store.read("g")
    sql(caught.value.hint.partition("for example: ")[2].rstrip("."))
    assert put(store, "g", {KEY: StoredOffset(1)}).written == (KEY,)
    with pytest.raises(Refused, match='has no column "part"') as caught:
        open_at(GROUPED).read("g")
    assert "the table has: grp, topic, partition, off" in caught.value.hint
    with pytest.raises(Refused) as caught:
        open_at(GROUPED.replace("job_offsets", "job_offset")).read("g")
    assert caught.value.hint.startswith("Did you mean job_offsets?")


@system
def test_tables_that_cannot_be_written_whole_are_only_read(open_at, tables) -> None:
    tables("INSERT INTO txn_offsets VALUES ('events', 0, 5)")
    tables("CREATE VIEW seen AS SELECT topic, part, max(off) AS off FROM txn_offsets GROUP BY 1, 2")
    tables("CREATE TABLE old ENGINE=MyISAM AS SELECT * FROM txn_offsets")
    for table, why in (("seen", "is a view"), ("old", "has the engine MyISAM, without transactions")):
        store = open_at(MAPPED.replace("txn_offsets", table))
        assert only(store).stored == StoredOffset(5)
        for call in (lambda of=store: of.check_writable("g"), lambda of=store: change(of, 6)):
            with pytest.raises(Refused, match=f"{why}.*; nothing was written|{why}.*nothing was written"):
                call()


@system
@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ("off int", "Out of range value for column 'off'"),
        ("off bigint, owner varchar(9) NOT NULL", "Field 'owner' doesn't have a default value"),
        ("off bigint CHECK (off < 99)", "CONSTRAINT .* failed"),
    ],
)
def test_what_the_table_rejects_is_refused_with_nothing_written(open_at, sql, definition, sentence) -> None:
    """Without strict mode, the server would write the largest number that fits."""
    sql(f"CREATE TABLE txn_offsets (topic varchar(99), part integer, {definition})")
    sql("SET SESSION sql_mode = ''")
    sql("INSERT INTO txn_offsets (topic, part, off) VALUES ('events', 0, 5)")
    sql("SET GLOBAL sql_mode = ''")
    store = open_at(MAPPED)
    row = only(store)
    changes = [Change(KEY, row.version, StoredOffset(6)), Change(MIRRORED, None, StoredOffset(2**31))]
    with pytest.raises(Refused, match=f"{sentence}.*; nothing was written"):
        store.write("g", changes, reason="test", now_ms=NOW)
    assert sql("SELECT off FROM txn_offsets") == [(5,)]


@system
def test_who_may_not_write_is_refused_before(maria, results, tables) -> None:
    tables("INSERT INTO txn_offsets VALUES ('events', 0, 5)")
    database = results.rpartition("/")[2]
    tables(f"CREATE USER reader_{database}@'%' IDENTIFIED BY 'x'")
    tables(f"GRANT SELECT ON {database}.* TO reader_{database}@'%'")
    store = open_store(f"mysql://reader_{database}:x@{maria.address}/{database}?{MAPPED}&{PATIENT}")
    assert only(store).stored == StoredOffset(5)
    with pytest.raises(Refused, match=r"UPDATE command denied.*; nothing was written"):
        store.check_writable("g")
    with pytest.raises(Refused, match=r"does not let this user in .*Access denied") as caught:
        open_store(f"mysql://reader:wrong@{maria.address}/{database}?{MAPPED}&{PATIENT}").read("g")
    assert "wrong" not in str(caught.value)


# ---------------------------------------------------------------- other writers, and servers that fail


@system
def test_of_many_writers_of_the_same_new_rows_in_two_orders_one_wins_with_all_of_them(open_at, tables) -> None:
    """The table has no unique constraint."""
    writers = 4
    barrier = threading.Barrier(writers, timeout=60)
    keys = [TopicPartition("events", number) for number in range(5)]

    def compete(number: int) -> int:
        changes = [Change(key, None, StoredOffset(number)) for key in (keys if number % 2 else keys[::-1])]
        store = open_at(MAPPED)
        barrier.wait()
        return len(store.write("g", changes, reason="race", now_ms=NOW).written)

    with ThreadPoolExecutor(writers) as pool:
        assert sorted(pool.map(compete, range(writers))) == [0, 0, 0, 5]
    assert len(tables("SELECT * FROM txn_offsets")) == 5


@system
def test_a_write_waits_for_a_job_that_holds_the_rows_and_then_reports_it(open_at, tables) -> None:
    tables("INSERT INTO txn_offsets VALUES ('events', 0, 5)")
    store = open_at(f"{MAPPED}&{SOON}")
    tables("BEGIN")
    tables("SELECT * FROM txn_offsets FOR UPDATE")
    assert only(store).stored == StoredOffset(5)
    with pytest.raises(Unreachable, match=r"could not get a lock within 2 s.*nothing was written"):
        change(store, 6)
    tables("ROLLBACK")
    assert change(store, 6).written == (KEY,)


@pytest.fixture
def mortal(request) -> Iterator[Any]:
    """A server to kill and to freeze, with empty tables."""
    for server in a_maria_server(request):
        with server.connect() as connection:
            for statement in TABLES:
                connection.cursor().execute(statement)
        yield server


def at_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, after: bool = False) -> None:
    """Act right before the next COMMIT is sent, or right after it was answered, which the caller does not see."""
    import pymysql

    real = pymysql.Connection.commit

    def commit(connection: Any) -> None:
        monkeypatch.undo()
        if after:
            real(connection)
        act()
        real(connection)

    monkeypatch.setattr(pymysql.Connection, "commit", commit)


@system
def test_a_server_that_fails_at_the_commit_leaves_the_outcome_unknown_and_a_second_write_finishes(
    mortal, monkeypatch
) -> None:
    store = open_store(f"{mortal.url()}?{MAPPED}&{SOON}")
    patient = open_store(f"{mortal.url()}?{MAPPED}&{PATIENT}")
    put(patient, "g", {KEY: StoredOffset(1)})
    for offset, after in ((2, False), (3, True)):
        changes = [Change(KEY, only(patient).version, StoredOffset(offset))]
        at_the_commit(monkeypatch, mortal.kill, after=after)
        with pytest.raises(OutcomeUnknown, match="did not say whether it took what was written") as caught:
            store.write("g", changes, reason="test", now_ms=NOW)
        assert caught.value.exit_code == 7
        with pytest.raises(Unreachable, match=r"could not be reached .*; nothing was written"):
            store.write("g", changes, reason="test", now_ms=NOW)
        mortal.start()
        result = patient.write("g", changes, reason="test", now_ms=NOW)
        assert (result.written, result.conflicts) == (((), (KEY,)) if after else ((KEY,), ()))
        assert only(patient).stored == StoredOffset(offset)


@system
def test_a_frozen_server_is_not_waited_for_longer_than_the_timeout(mortal) -> None:
    put(open_store(f"{mortal.url()}?{MAPPED}&{PATIENT}"), "g", {KEY: StoredOffset(1)})
    mortal.pause()
    with pytest.raises(Unreachable, match="could not be reached"):
        open_store(f"{mortal.url()}?{MAPPED}&timeout=0.5").read("g")
    mortal.resume()
