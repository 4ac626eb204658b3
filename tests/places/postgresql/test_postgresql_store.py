"""The PostgreSQL stores' own guarantees: they change only the mapped columns of a job's table, and no batch is ever
written in part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import Refused
from reconciler.places import postgresql
from reconciler.ports import Change, Row, TopicPartition
from tests.places.postgresql.fixtures import GROUPED, MAPPED, PATIENT
from tests.places.store_cases import NOW, put

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
KEY = TopicPartition("events", 0)
TXN_OFFSETS = "CREATE TABLE txn_offsets (topic varchar(255), part integer, off bigint, unique(topic, part))"

system = pytest.mark.system


@pytest.fixture
def open_at(database: str) -> Iterator[Callable[..., Any]]:
    """Open the test's database with more parameters."""
    opened = []

    def open_at(parameters: str = "") -> Any:
        own = [parameters] if parameters else []
        more = own if "timeout=" in parameters else [*own, PATIENT]
        opened.append(postgresql.open_address("&".join([database, *more])))
        return opened[-1]

    yield open_at
    for store in opened:
        store.close()


@pytest.fixture
def own(open_at) -> Any:
    store = open_at()
    store.create()
    return store


def only(store: Any, group: str = "g") -> Row:
    (row,) = store.read(group)
    return row


def change(store: Any, row: Row, new: StoredOffset | None) -> Any:
    return store.write("g", [Change(row.key, row.version, new)], reason="test", now_ms=NOW)


# ---------------------------------------------------------------- this product's own tables


@system
def test_own_tables_list_the_groups_with_rows(own):
    assert own.groups() == []
    put(own, "views", {KEY: StoredOffset(1)})
    put(own, "clicks", {KEY: StoredOffset(1), TopicPartition("events", 1): StoredOffset(1)})
    assert own.groups() == ["clicks", "views"]


# ---------------------------------------------------------------- a job's own table


@system
def test_a_jobs_table_is_read_and_corrected_to_the_value(open_at, psql):
    psql.execute(TXN_OFFSETS)
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, 110), ('events', 1, 100), ('other', 0, 456)")
    store = open_at(MAPPED)
    rows = {row.key: row for row in store.read("clicks", ["events", "a.events"])}
    assert {key.partition: row.stored for key, row in rows.items()} == {0: StoredOffset(110), 1: StoredOffset(100)}
    new = [Change(TopicPartition("a.events", n), None, StoredOffset(n + 7, ANCHOR)) for n in range(2)]
    assert len(store.write("clicks", new, reason="apply", now_ms=NOW).written) == 2
    change(store, rows[KEY], StoredOffset(220))
    found = psql.execute("SELECT topic, part, off FROM txn_offsets ORDER BY 1, 2").fetchall()
    assert found == [("a.events", 0, 7), ("a.events", 1, 8), ("events", 0, 220), ("events", 1, 100), ("other", 0, 456)]


@system
def test_groups_columns_schemas_and_odd_names_are_quoted(open_at, psql):
    psql.execute('CREATE SCHEMA IF NOT EXISTS "Spark Jobs"')
    psql.execute('DROP TABLE IF EXISTS "Spark Jobs"."off;sets"')
    psql.execute('CREATE TABLE "Spark Jobs"."off;sets" ("group" text, "to""pic" text, "from" int, "%s" bigint)')
    psql.execute("""INSERT INTO "Spark Jobs"."off;sets" VALUES ('g', 'events', 0, 5), ('g2', 'events', 0, 6)""")
    columns = "topic=to%22pic&partition=from&offset=%25s&group=group"
    for table in ("schema=Spark%20Jobs&table=off;sets", "table=Spark%20Jobs.off;sets"):
        store = open_at(f"{table}&{columns}")
        store.check_writable("g")
        row = only(store)
        assert change(store, row, StoredOffset(row.stored.offset + 1)).written
    found = psql.execute('SELECT "group", "%s" FROM "Spark Jobs"."off;sets" ORDER BY 1').fetchall()
    assert found == [("g", 7), ("g2", 6)]


@system
def test_unmapped_columns_are_unchanged(open_at, psql):
    psql.execute(
        "CREATE TABLE txn_offsets (id serial PRIMARY KEY, topic text, part int, off bigint,"
        " owner text DEFAULT 'nobody', seen timestamptz NOT NULL DEFAULT '2020-01-01')"
    )
    psql.execute("INSERT INTO txn_offsets (topic, part, off, owner) VALUES ('events', 0, 5, 'ada')")
    store = open_at(MAPPED)
    change(store, only(store), StoredOffset(6))
    put(store, "g", {TopicPartition("a.events", 0): StoredOffset(7)})
    found = psql.execute("SELECT id, topic, off, owner, seen::date::text FROM txn_offsets ORDER BY id").fetchall()
    assert found == [(1, "events", 6, "ada", "2020-01-01"), (2, "a.events", 7, "nobody", "2020-01-01")]


@system
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bigint", "42"),
        ("integer", "42"),
        ("numeric", "42"),
        ("text", "0042"),
        ("varchar(20)", " 42 "),
        ("text", "+42"),
    ],
)
def test_any_type_that_shows_digits_works(open_at, psql, kind, text):
    psql.execute(f"CREATE TABLE txn_offsets (topic text, part smallint, off {kind})")
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, %s)", (text,))
    store = open_at(MAPPED)
    before = only(store)
    assert before.stored == StoredOffset(int(text))
    change(store, before, StoredOffset(43))
    assert psql.execute("SELECT off::text FROM txn_offsets").fetchone() == ("43",)


@system
def test_an_offset_that_changed_and_came_back_is_another_row(open_at, psql):
    psql.execute(TXN_OFFSETS)
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, 5)")
    store = open_at(MAPPED)
    row = only(store)
    psql.execute("UPDATE txn_offsets SET off = 6")
    psql.execute("UPDATE txn_offsets SET off = 5")
    assert change(store, row, StoredOffset(7)).conflicts == (KEY,)


@system
@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ("owner text NOT NULL", 'takes no new row without a value for the column "owner"'),
        ("CHECK (off < 50)", "check constraint"),
        ("EXCLUDE (part WITH =)", "conflicting key value"),
    ],
)
def test_a_row_that_the_table_rejects_is_refused_with_nothing_written(open_at, psql, definition, sentence):
    psql.execute(f"CREATE TABLE txn_offsets (topic text, part int, off bigint, {definition})")
    owner = ", 'ada'" if "owner" in definition else ""
    psql.execute(f"INSERT INTO txn_offsets VALUES ('events', 0, 5{owner})")
    store = open_at(MAPPED)
    row = only(store)
    changes = [
        Change(KEY, row.version, StoredOffset(6)),
        Change(TopicPartition("a.events", 0), None, StoredOffset(99)),
    ]
    with pytest.raises(Refused, match=f"{sentence}.*; nothing was written") as caught:
        store.write("g", changes, reason="test", now_ms=NOW)
    assert caught.value.hint
    assert psql.execute("SELECT off FROM txn_offsets").fetchall() == [(5,)]


@system
def test_a_value_too_large_for_its_column_is_refused(open_at, psql):
    psql.execute("CREATE TABLE txn_offsets (topic varchar(10), part int, off integer)")
    store = open_at(MAPPED)
    for key, offset in ((KEY, 2**31), (TopicPartition("a" * 11, 0), 1)):
        with pytest.raises(Refused, match=r"out of range|too long.*nothing was written"):
            put(store, "g", {key: StoredOffset(offset)})


@system
def test_a_trigger_that_suppresses_a_change_is_detected(open_at, psql):
    psql.execute(TXN_OFFSETS)
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, 5), ('events', 1, 5)")
    psql.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF OLD.part = 1 THEN RETURN NULL; END IF; RETURN NEW; END'"
    )
    psql.execute("CREATE TRIGGER keep BEFORE UPDATE ON txn_offsets FOR EACH ROW EXECUTE FUNCTION keep()")
    store = open_at(MAPPED)
    changes = [Change(row.key, row.version, StoredOffset(9)) for row in store.read("g")]
    with pytest.raises(Refused, match=r"took 1 of 2 changes of .* without an error; nothing was written"):
        store.write("g", changes, reason="test", now_ms=NOW)
    assert psql.execute("SELECT DISTINCT off FROM txn_offsets").fetchall() == [(5,)]


@system
@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("('events', '0', '5'), ('events', '0', '6')", "'events-0' .*: the table has two rows of it"),
        ("('events', '0', NULL)", "'events-0' .*: its offset is None, which is empty"),
        ("(NULL, '0', '5')", "'' .*: its partition is '0'"),
        ("('events', '00', '5')", "'events' .*: its partition is '00'"),
        ("('events', '0', '5.5')", "'events-0' .*: its offset is '5.5', which is not a whole number"),
    ],
)
def test_rows_that_are_no_offsets_are_named_and_hide_no_other(open_at, psql, rows, sentence):
    psql.execute("CREATE TABLE txn_offsets (topic text, part text, off text)")
    psql.execute(f"INSERT INTO txn_offsets VALUES ('sound', '0', '7'), {rows}")
    found = open_at(MAPPED).read("g")
    assert [row.stored.offset for row in found if row.malformed is None] == [7]
    (bad,) = (row.malformed for row in found if row.malformed is not None)
    assert re.match(f"The row of group 'g' for {sentence}", bad.message)


@system
def test_a_missing_table_or_column_is_refused_with_a_hint_and_never_created(open_at, psql):
    store = open_at(GROUPED)
    for attempt in (
        lambda: store.read("g"),
        lambda: store.check_writable("g"),
        lambda: store.create(),
        lambda: store.write("g", [Change(KEY, None, StoredOffset(1))], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Refused, match=r'There is no table "job_offsets" in PostgreSQL at 127\.0\.0\.1') as caught:
            attempt()
    assert psql.execute("SELECT to_regclass('job_offsets')").fetchone() == (None,)
    statement = caught.value.hint.partition("for example: ")[2].rstrip(".")
    psql.execute(statement)  # what the hint says works
    assert put(store, "g", {KEY: StoredOffset(1)}).written == (KEY,)
    with pytest.raises(Refused, match='has no column "position"') as caught:
        open_at(GROUPED.replace("offset=off", "offset=position")).read("g")
    assert "the table has: grp, topic, part, off" in caught.value.hint


@system
def test_a_misspelt_table_is_told_with_those_of_a_like_name_in_any_schema(open_at, psql):
    psql.execute("CREATE SCHEMA jobs")
    psql.execute("CREATE TABLE jobs.read_by_clicks (topic text, part integer, off bigint)")
    with pytest.raises(Refused, match='There is no table "read_by_click"') as caught:
        open_at(MAPPED.replace("txn_offsets", "read_by_click")).read("g")
    assert caught.value.hint.startswith('Did you mean "jobs"."read_by_clicks"? Correct the store')


@system
@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
def test_a_view_is_read_and_never_written(open_at, psql, kind):
    psql.execute("CREATE TABLE rows (topic text, part int, off bigint)")
    psql.execute("INSERT INTO rows VALUES ('events', 0, 4), ('events', 0, 5)")
    psql.execute(f"CREATE {kind} txn_offsets AS SELECT topic, part, max(off) AS off FROM rows GROUP BY 1, 2")
    store = open_at(MAPPED)
    assert (only(store).key, only(store).stored) == (KEY, StoredOffset(5))
    for call in (lambda: store.check_writable("g"), lambda: change(store, only(store), StoredOffset(6))):
        with pytest.raises(Refused, match=r'"txn_offsets" .* is a view, .* nothing was written') as caught:
            call()
        assert "add &written_by=job" in caught.value.hint
    assert psql.execute("SELECT off FROM rows ORDER BY 1").fetchall() == [(4,), (5,)]


# ---------------------------------------------------------------- a row for every batch


EVERY_BATCH = f"{MAPPED}&newest_by=at"


@pytest.fixture
def batches(psql) -> Any:
    """Insert rows: topic, partition, offset, time."""
    psql.execute("CREATE TABLE txn_offsets (topic text, part integer, off bigint, at timestamptz)")

    def insert(*rows: tuple[str, int, int | None, str | None]) -> None:
        for row in rows:
            psql.execute("INSERT INTO txn_offsets VALUES (%s, %s, %s, %s)", row)

    return insert


@system
def test_of_a_row_for_every_batch_the_newest_counts(open_at, batches):
    batches(("events", 0, 150, "2026-11-02Z"), ("events", 0, 200, "2026-11-01Z"), ("events", 0, 100, "2026-10-31Z"))
    batches(("events", 1, 7, "2026-10-01Z"), ("other", 0, 1, "2026-10-01Z"))
    found = {row.key: row.stored.offset for row in open_at(EVERY_BATCH).read("g", ["events"])}
    assert found == {KEY: 150, TopicPartition("events", 1): 7}
    last = {row.key: row.stored.offset for row in open_at(f"{EVERY_BATCH}&number=last").read("g", ["events"])}
    assert last == {KEY: 151, TopicPartition("events", 1): 8}
    (largest,) = open_at(f"{MAPPED}&newest_by=off").read("g", ["other"])
    assert largest.stored == StoredOffset(1)


@system
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("events", 0, 201, "2026-11-02Z"), "two rows of it with other offsets have the greatest at"),
        (("events", 0, None, "2026-11-02Z"), "its offset is '', which is empty"),
        (("events", 0, 201, None), "a row of it has no value in at"),
        (("events", 0, None, "2026-11-03Z"), "its offset is '', which is empty"),
    ],
)
def test_without_one_newest_row_a_partition_is_malformed_and_hides_no_other(open_at, batches, row, problem):
    batches(("events", 0, 200, "2026-11-02Z"), ("events", 1, 7, "2026-11-02Z"), row)
    bad, good = open_at(EVERY_BATCH).read("g")
    assert bad.malformed is not None
    assert problem in bad.malformed.message
    assert good.stored == StoredOffset(7)


@system
def test_the_time_and_id_of_the_last_record_are_the_rows_anchor(open_at, psql, batches):
    (name,) = psql.execute("SELECT current_database()").fetchone()
    psql.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
    psql.execute("ALTER TABLE txn_offsets ADD COLUMN id integer")
    batches(("events", 0, 9, "1999-01-01Z"))
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, 10, '2023-11-14 22:13:20.25Z', 7)")
    anchor = Anchor(timestamp_ms=1_700_000_000_250, id=b"7")
    assert only(open_at(f"{EVERY_BATCH}&time=at&id=id")).stored == StoredOffset(10, anchor)
    psql.execute("DELETE FROM txn_offsets WHERE off = 9")
    assert only(open_at(f"{MAPPED}&written_by=job&time=at")).stored == StoredOffset(10, replace(anchor, id=None))


@system
def test_newest_rows_that_agree_are_one(open_at, batches):
    batches(*[("events", 0, 200, "2026-11-02Z")] * 2)
    assert only(open_at(EVERY_BATCH)).stored == StoredOffset(200)


@system
@pytest.mark.parametrize("parameters", [EVERY_BATCH, f"{MAPPED}&written_by=job"])
def test_where_only_the_job_writes_a_write_is_refused_with_the_way_to_a_correction(open_at, psql, batches, parameters):
    batches(("events", 0, 200, "2026-11-02Z"))
    store = open_at(parameters)
    assert not store.capabilities.writable
    for call in (lambda: store.check_writable("g"), lambda: change(store, only(store), StoredOffset(6))):
        with pytest.raises(Refused, match="is the job's own, and read-only here; nothing was written") as caught:
            call()
        assert "Start the job by reconciler hook" in caught.value.hint
    assert psql.execute("SELECT off FROM txn_offsets").fetchall() == [(200,)]


@system
def test_two_rows_of_a_partition_are_told_with_the_parameter_that_chooses_one(open_at, batches):
    batches(("events", 0, 100, "2026-11-01Z"), ("events", 0, 200, "2026-11-02Z"))
    row = only(open_at(MAPPED))
    assert row.malformed is not None
    assert "&newest_by=COLUMN" in row.malformed.hint


# ---------------------------------------------------------------- the last processed offset


@system
def test_the_last_processed_offset_is_read_as_the_next_one_and_written_one_below(open_at, psql):
    psql.execute("CREATE TABLE txn_offsets (topic text, part integer, off text)")
    psql.execute("INSERT INTO txn_offsets VALUES ('events', 0, '0200'), ('events', 1, '-1')")
    store = open_at(f"{MAPPED}&number=last")
    before, nothing_yet = store.read("g")
    assert (before.stored, nothing_yet.stored) == (StoredOffset(201), StoredOffset(0))
    corrected = [Change(before.key, before.version, StoredOffset(150))]
    corrected.append(Change(nothing_yet.key, nothing_yet.version, StoredOffset(0)))
    store.write("g", corrected, reason="apply", now_ms=NOW)
    assert psql.execute("SELECT off FROM txn_offsets ORDER BY part").fetchall() == [("149",), ("-1",)]
    now = store.read("g")[0]
    assert now.stored == StoredOffset(150)


@system
def test_a_partitioned_table_is_a_table(open_at, psql):
    psql.execute("CREATE TABLE txn_offsets (topic text, part int, off bigint) PARTITION BY HASH (topic)")
    psql.execute("CREATE TABLE txn_offsets_1 PARTITION OF txn_offsets FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    store = open_at(MAPPED)
    put(store, "g", {KEY: StoredOffset(5)})
    assert change(store, only(store), StoredOffset(6)).written == (KEY,)
    assert only(store).stored == StoredOffset(6)


# ---------------------------------------------------------------- this product's own tables


@system
def test_a_missing_store_is_refused_and_only_create_creates_it(open_at, psql):
    store = open_at()
    for attempt in (
        lambda: store.read("g"),
        lambda: store.check_writable("g"),
        lambda: store.write("g", [Change(KEY, None, StoredOffset(1))], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Refused, match="There are no tables of an offset store in PostgreSQL at") as caught:
            attempt()
        assert "reconciler anchors import" in caught.value.hint
    assert psql.execute("SELECT to_regclass('reconciler_offsets')").fetchone() == (None,)
    store.create()
    assert store.read("g") == []


@system
def test_separate_schemas_hold_separate_stores(open_at, psql, database):
    (name,) = psql.execute("SELECT current_schema() || '_other'").fetchone()
    psql.execute(f"CREATE SCHEMA {name}")
    other, usual = open_at(f"schema={name}"), open_at()
    for number, store in enumerate((other, usual)):
        store.create()
        put(store, "g", {KEY: StoredOffset(number)})
    assert [only(store).stored.offset for store in (other, usual)] == [0, 1]
    with pytest.raises(Refused, match=r'schema "?nowhere'):
        open_at("schema=nowhere").create()


@system
def test_concurrent_creators_create_the_tables_once(database):
    from concurrent.futures import ThreadPoolExecutor

    def make(_: int) -> None:
        store = postgresql.open_address(f"{database}&timeout=60")
        store.create()
        store.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, range(6)))


@system
def test_versions_do_not_return_with_recreated_tables(own, psql):
    put(own, "g", {KEY: StoredOffset(1)})
    before = only(own)
    psql.execute("DROP TABLE reconciler_store, reconciler_offsets")
    psql.execute("DROP SEQUENCE reconciler_changes")
    own.create()
    put(own, "g", {KEY: StoredOffset(1)})
    assert only(own).stored == before.stored
    assert only(own).version != before.version


@system
def test_other_programs_tables_and_newer_ones_are_not_touched(open_at, own, psql):
    psql.execute("UPDATE reconciler_store SET version = 99")
    for attempt in (own.create, lambda: own.read("g")):
        with pytest.raises(Refused, match="made by a newer version"):
            attempt()
    psql.execute("DROP TABLE reconciler_store")
    psql.execute("CREATE TABLE reconciler_store (colour text)")
    for attempt in (own.create, lambda: own.read("g")):
        with pytest.raises(Refused, match="are another program's"):
            attempt()


@system
def test_a_row_damaged_by_another_program_is_named_and_hides_no_other(own, psql):
    put(own, "g", {KEY: StoredOffset(1, ANCHOR), TopicPartition("events", 1): StoredOffset(2, ANCHOR)})
    psql.execute("UPDATE reconciler_offsets SET names = 'nonsense' WHERE partition = 0")
    bad, sound = own.read("g")
    assert "The row of group 'g' for 'events-0' in PostgreSQL at" in bad.malformed.message
    assert "'nonsense'" in bad.malformed.message
    assert sound.stored.offset == 2
