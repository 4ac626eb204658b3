"""The PostgreSQL stores among other writers, without permissions, and on a server that dies or freezes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.places import postgresql
from reconciler.ports import Change, Row, TopicPartition
from tests.places.postgresql.fixtures import MAPPED, PATIENT, TABLES, a_server
from tests.places.store_cases import NOW, put
from tests.sizes import sampled
from tests.waiting import LIMIT_S

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
KEY = TopicPartition("events", 0)
SOON = 3
"""Seconds that a store under test waits for a server that is frozen, or a lock that is held."""
PATIENCE = 60

pytestmark = pytest.mark.system


def only(store: Any) -> Row:
    (row,) = store.read("g")
    return row


def change(store: Any, new: StoredOffset | None) -> Any:
    row = only(store)
    return store.write("g", [Change(row.key, row.version, new)], reason="test", now_ms=NOW)


@pytest.fixture
def address(database: str, psql: Any) -> str:
    """Both kinds of tables exist and are empty."""
    for statement in TABLES:
        psql.execute(statement)
    store = postgresql.open_address(f"{database}&{PATIENT}")
    store.create()
    store.close()
    return database


@pytest.fixture(params=["own", "mapped"])
def open_it(request, address: str) -> Iterator[Callable[..., Any]]:
    """Open either store; ``more`` are libpq's parameters."""
    opened = []

    def open_it(*more: str, timeout_s: float = PATIENCE) -> Any:
        parameters = [*more, f"timeout={timeout_s}", *([MAPPED] if request.param == "mapped" else [])]
        opened.append(postgresql.open_address("&".join([address, *parameters])))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


# ---------------------------------------------------------------- other writers


@pytest.mark.parametrize("existing", [True, False])
def test_of_many_writers_of_the_same_rows_in_two_orders_one_wins_with_all_of_them(open_it, existing):
    if existing:
        put(open_it(), "g", {TopicPartition("events", n): StoredOffset(99) for n in range(5)})
    writers, rounds = 8, 4
    barrier = threading.Barrier(writers, timeout=60)

    def compete(number: int) -> list[int]:
        store = open_it()
        wins = []
        for turn in range(rounds):
            keys = [TopicPartition("events" if existing else f"events-{turn}", n) for n in range(5)]
            now = {row.key: row.version for row in store.read("g")}
            changes = [Change(key, now.get(key), StoredOffset(number)) for key in (keys if number % 2 else keys[::-1])]
            barrier.wait()
            result = store.write("g", changes, reason="race", now_ms=NOW)
            assert not (result.written and result.conflicts)
            wins.append(len(result.written))
            barrier.wait()
        return wins

    with ThreadPoolExecutor(writers) as pool:
        outcomes = list(pool.map(compete, range(writers)))
    assert [sorted(turn) for turn in zip(*outcomes, strict=True)] == [[0] * 7 + [5]] * rounds
    rows = open_it().read("g")
    for topic in {row.key.topic for row in rows}:
        assert len({row.stored.offset for row in rows if row.key.topic == topic}) == 1


def test_a_write_waits_for_a_job_that_holds_the_rows_and_then_reports_it(open_it, psql):
    store = open_it(timeout_s=SOON)
    put(store, "g", {KEY: StoredOffset(1)})
    with psql.transaction():
        psql.execute("SELECT * FROM reconciler_offsets FOR UPDATE")
        psql.execute("SELECT * FROM txn_offsets FOR UPDATE")
        with pytest.raises(Unreachable, match=r"could not get a lock within 3 s.*nothing was written") as caught:
            change(store, StoredOffset(2))
        assert "pg_stat_activity" in caught.value.hint
    assert change(store, StoredOffset(2)).written == (KEY,)


@pytest.fixture
def deadlocked(psql: Any, address: str) -> Callable[[str], None]:
    """``deadlocked(condition)``: updates fail like a deadlock's victim if the attempt's number meets the condition."""

    def arrange(condition: str) -> None:
        psql.execute("CREATE SEQUENCE tries")
        psql.execute(
            f"CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') {condition}"
            " THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$"
        )
        for table in ("reconciler_offsets", "txn_offsets"):
            psql.execute(f"CREATE TRIGGER t BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION deadlock()")

    return arrange


def test_the_victim_of_a_deadlock_tries_again(open_it, deadlocked):
    store = open_it()
    put(store, "g", {KEY: StoredOffset(1)})
    deadlocked("<= 2")
    assert change(store, StoredOffset(2)).written == (KEY,)
    assert only(store).stored.offset == 2


def test_endless_deadlocks_end_with_nothing_written(open_it, deadlocked):
    store = open_it(timeout_s=SOON)
    put(store, "g", {KEY: StoredOffset(1)})
    deadlocked("> 0")
    with pytest.raises(Unreachable, match=r"other transactions were in the way \(deadlock detected\); nothing was"):
        change(store, StoredOffset(2))
    assert only(store).stored.offset == 1


# ---------------------------------------------------------------- who may


def test_a_rejected_user_is_reported(postgres):
    for url, sentence in (
        (postgres.url(password="wrong"), "does not let this user in .*password authentication failed"),
        (postgres.url(user="nobody"), "does not let this user in"),
        (postgres.url("no_such_database"), 'does not exist .*database "no_such_database"'),
    ):
        with pytest.raises(Refused, match=sentence) as caught:
            postgresql.open_address(url).read("g")
        assert "wrong" not in str(caught.value)
        assert caught.value.hint


@pytest.fixture
def reader(psql: Any) -> str:
    """The address parameter of a user with read permission only."""
    (schema,) = psql.execute("SELECT current_schema()").fetchone()
    psql.execute(f"CREATE USER {schema}")
    psql.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
    psql.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    return f"options=-csearch_path%3D{schema}%20-crole%3D{schema}"


def test_a_user_without_write_permission_is_refused_before_and_at_the_write(open_it, reader):
    put(open_it(), "g", {KEY: StoredOffset(1)})
    store = open_it(reader)
    assert only(store).stored.offset == 1
    with pytest.raises(Refused, match=r"does not allow this user to (INSERT|UPDATE).*; nothing was written") as caught:
        store.check_writable("g")
    assert "GRANT" in caught.value.hint
    with pytest.raises(Refused, match=r"does not allow it \(permission denied .*\); nothing was written"):
        change(store, StoredOffset(2))
    with pytest.raises(Refused, match=r"does not allow it \(permission denied .*\); nothing was written"):
        put(store, "g", {TopicPartition("new", 0): StoredOffset(2)})


def test_a_read_only_database_is_reported(open_it, psql):
    put(open_it(), "g", {KEY: StoredOffset(1)})
    (schema,) = psql.execute("SELECT current_schema()").fetchone()
    store = open_it(f"options={quote(f'-csearch_path={schema} -cdefault_transaction_read_only=on')}")
    with pytest.raises(Refused, match="cannot be written: its transactions are read-only"):
        store.check_writable("g")
    with pytest.raises(Refused, match=r"is read-only .*; nothing was written"):
        change(store, StoredOffset(2))


# ---------------------------------------------------------------- connections and servers that fail


def test_a_connection_cut_while_idle_is_reopened_silently(open_it, psql):
    store = open_it()
    put(store, "g", {KEY: StoredOffset(1)})
    row = only(store)
    for attempt in (
        lambda: store.read("g"),
        lambda: store.check_writable("g"),
        lambda: store.write("g", [Change(KEY, row.version, StoredOffset(2))], reason="test", now_ms=NOW),
    ):
        psql.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        attempt()
    assert only(store).stored.offset == 2


@pytest.fixture(scope="module")
def disposable(request) -> Iterator[Any]:
    """A server that only these tests use: they kill and freeze it."""
    yield from a_server(request)


@pytest.fixture
def mortal(disposable) -> Any:
    """That server, running, with empty tables of both kinds."""
    if disposable.process.running:
        disposable.resume()
    else:
        disposable.start()
    with psycopg.connect(disposable.url(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        for statement in TABLES:
            connection.execute(statement)
    store = postgresql.open_address(f"{disposable.url()}?timeout={PATIENCE}")
    store.create()
    store.close()
    return disposable


@pytest.fixture(params=sampled(["own", "mapped"], keep=1))
def fragile(request, mortal) -> Iterator[Any]:
    store = postgresql.open_address(
        f"{mortal.url()}?timeout={PATIENCE}" + (f"&{MAPPED}" if request.param == "mapped" else "")
    )
    put(store, "g", {KEY: StoredOffset(1)})
    yield store
    store.close()


def hastily(store: Any) -> Any:
    """The same store, with little time for a server that will not answer."""
    store._database._timeout_s = SOON
    return store


def patiently(store: Any) -> Any:
    """The same store after a restart of the server; allows for a slow machine."""
    store._database._timeout_s = PATIENCE
    return store


def test_a_store_survives_a_restart_of_its_server(mortal, fragile):
    before = fragile.read("g")
    mortal.kill()
    hastily(fragile)
    for attempt in (
        lambda: fragile.read("g"),
        lambda: fragile.check_writable("g"),
        lambda: fragile.write("g", [Change(KEY, before[0].version, StoredOffset(2))], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Unreachable, match=r"could not be reached .*; nothing was written"):
            attempt()
    mortal.start()
    assert patiently(fragile).read("g") == before
    change(fragile, StoredOffset(2))
    assert only(fragile).stored.offset == 2


def at_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act right before the next COMMIT is sent."""
    real = psycopg.Connection.commit

    def commit(connection: Any) -> None:
        monkeypatch.undo()
        act()
        real(connection)

    monkeypatch.setattr(psycopg.Connection, "commit", commit)


def test_a_server_that_freezes_leaves_the_outcome_unknown_and_a_second_write_finishes(mortal, fragile, monkeypatch):
    changes = [Change(KEY, only(fragile).version, StoredOffset(2))]
    at_the_commit(monkeypatch, mortal.pause)
    with pytest.raises(OutcomeUnknown, match=r"did not say whether it took .*no answer within 3.5 s") as caught:
        hastily(fragile).write("g", changes, reason="test", now_ms=NOW)
    assert caught.value.exit_code == 7
    with pytest.raises(Unreachable, match="could not be reached"):
        fragile.read("g")
    mortal.resume()
    patiently(fragile)
    # The server may still be busy with the first one: a lock it holds is waited for.
    result = fragile.write("g", changes, reason="test", now_ms=NOW)
    assert result.written == (KEY,) or result.conflicts == (KEY,)
    assert only(fragile).stored.offset == 2


def test_nothing_of_the_client_library_reaches_the_terminal(mortal):
    program = (
        "import logging, sys\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "from reconciler.core.errors import Unreachable\n"
        "from reconciler.places import postgresql\n"
        f"store = postgresql.open_address('{mortal.url()}?timeout={PATIENCE}')\n"
        "store.read('g'); print('read', flush=True); sys.stdin.readline()\n"
        f"store._database._timeout_s = {SOON}\n"
        "try: store.read('g')\n"
        "except Unreachable as error: print(error.message)\n"
        "store.close()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"read\n"
        mortal.kill()
        out, err = process.communicate(b"\n", timeout=LIMIT_S)
    assert b"could not be reached" in out
    assert err == b""
