"""The SQLite store: its files, the messages of its errors, and many processes at once."""

import multiprocessing
import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, NotCreated, Refused, Unreachable
from reconciler.places.registry import open_store
from reconciler.places.sqlite import database
from reconciler.places.sqlite.store import SqliteStore
from reconciler.ports import Change, TopicPartition
from tests.limits import files_up_to
from tests.places.store_cases import NOW, put

KEY = TopicPartition("events", 0)
ONE = [Change(KEY, None, StoredOffset(1))]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "offsets.db"


def made(path) -> SqliteStore:
    store = SqliteStore(str(path), busy_timeout_s=0.2)
    store.write("g", ONE, reason="test", now_ms=NOW)
    return store


@contextmanager
def as_nobody():
    """Become a user for whom permissions count; they do not for root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_directory():
    """A directory that any user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)
        os.chmod(name, 0o777)


# ---------------------------------------------------------------- where files come from


def test_three_slashes_are_relative_and_four_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = open_store("sqlite:///offsets.db")
    relative.write("g", ONE, reason="test", now_ms=NOW)
    monkeypatch.chdir("/")
    assert relative.address == "sqlite:///offsets.db"
    assert len(relative.read("g")) == 1
    assert len(open_store(f"sqlite:///{tmp_path}/offsets.db").read("g")) == 1


@pytest.mark.parametrize("name", ["a b.db", "a&mode=memory", "a%23b%41.db", "ü.db"])
def test_odd_file_names_are_used_unchanged(tmp_path, name):
    store = open_store(f"sqlite:///{tmp_path}/{name}")
    store.write("g", ONE, reason="test", now_ms=NOW)
    assert (tmp_path / name).is_file()
    assert len(store.read("g")) == 1


@pytest.mark.parametrize(
    ("more", "mark"), [("?mode=ro", "?"), ("?saves=until", "?"), ("#x", "#"), ("#x?y", "#"), ("?", "?")]
)
def test_parameters_and_fragments_are_no_part_of_the_files_name(tmp_path, more, mark):
    with pytest.raises(ConfigError) as caught:
        open_store(f"sqlite:///{tmp_path}/o.db{more}")
    assert f"it takes no parameters, and no {mark} may be in its path." in str(caught.value)
    assert "sqlite:///offsets.db" in str(caught.value.hint)


def test_reading_a_missing_file_says_so_and_creates_nothing(path):
    store = SqliteStore(str(path))
    with pytest.raises(Refused, match=r"There is no offset store at .*offsets\.db"):
        store.read("g")
    store.check_writable("g")
    assert os.listdir(path.parent) == []


def test_an_empty_file_becomes_a_store_at_the_first_write(path):
    path.touch()
    store = SqliteStore(str(path))
    with pytest.raises(Refused, match="There is no offset store"):
        store.read("g")
    store.check_writable("g")
    assert store.write("g", ONE, reason="test", now_ms=NOW).written == (KEY,)


def test_a_missing_directory_is_not_created(tmp_path):
    store = SqliteStore(str(tmp_path / "none" / "offsets.db"))
    for attempt in (lambda: store.check_writable("g"), lambda: made(tmp_path / "none" / "offsets.db")):
        with pytest.raises(Refused, match="There is no directory"):
            attempt()
    assert os.listdir(tmp_path) == []


def test_an_absolute_path_with_three_slashes_is_recognised(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "srv").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    meant = tmp_path / "srv" / "offsets.db"
    store = open_store(f"sqlite:///{str(meant).removeprefix('/')}")
    for attempt in (lambda: store.read("g"), lambda: store.check_writable("g")):
        with pytest.raises(Refused, match="There is no") as caught:
            attempt()
        assert caught.value.hint == f"Three slashes begin a relative path. For {meant} write four: sqlite:///{meant}."
    with pytest.raises(Refused) as caught:
        open_store("sqlite:///none/offsets.db").read("g")
    assert "slashes" not in caught.value.hint


# ---------------------------------------------------------------- faults


def another_programs(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")


def of_a_newer_version(path):
    made(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_bytes(b"offsets: 17\n" * 200), "is not a SQLite file"),
        (Path.mkdir, "cannot be opened"),
        (another_programs, "is a SQLite file of another program"),
        (of_a_newer_version, "made by a newer version"),
    ],
)
def test_what_is_no_store_of_this_version_is_refused_by_every_call_and_stays_as_it_is(path, make, sentence):
    make(path)
    before = path.read_bytes() if path.is_file() else None
    store = SqliteStore(str(path), busy_timeout_s=0.2)
    for call in (
        lambda: store.read("g"),
        lambda: store.check_writable("g"),
        store.create,
        lambda: store.write("g", ONE, reason="test", now_ms=NOW),
    ):
        with pytest.raises(Refused, match=sentence) as caught:
            call()
        assert caught.value.hint
        assert not caught.value.retryable
    assert before is None or path.read_bytes() == before


def test_a_damaged_file_is_refused(path):
    made(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(Refused, match="damaged"):
        SqliteStore(str(path)).read("g")


def test_a_row_damaged_by_another_program_is_malformed_and_hides_no_other(path):
    store = made(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE reconciler_offsets SET names = 'last', fingerprint = 'short'")
    put(store, "g", {TopicPartition("payments", 0): StoredOffset(1)})
    bad, sound = store.read("g")
    assert bad.malformed.message.startswith(f"The row of group 'g' for 'events-0' in the offset store {path} cannot be")
    with pytest.raises(Refused, match="cannot be read"):
        _ = bad.stored.anchor
    assert sound.stored.offset == 1, "it hides no other row"


def test_a_locked_file_is_waited_for(path):
    store = made(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match=r"locked by another program for 0.2 s; nothing was written") as caught:
            put(store, "g", {KEY: StoredOffset(2)})
        assert caught.value.retryable
        assert len(store.read("g")) == 1, "a writer does not hold up readers"
    assert put(store, "g", {KEY: StoredOffset(2)}).written == (KEY,)


def test_a_read_only_directory(open_directory):
    path = open_directory / "offsets.db"
    made(path)
    os.chmod(path, 0o666)
    os.chmod(open_directory, 0o555)
    store = SqliteStore(str(path), busy_timeout_s=0.2)
    with as_nobody():
        assert len(store.read("g")) == 1, "a backup on a read-only mount can be read"
        with pytest.raises(Refused, match=r"directory .* may not be written"):
            store.check_writable("g")
        with pytest.raises(Refused):
            put(store, "g", {KEY: StoredOffset(2)})
        with pytest.raises(Refused, match=r"directory .* may not be written"):
            SqliteStore(str(open_directory / "new.db")).write("g", ONE, reason="test", now_ms=NOW)
    assert len(store.read("g")) == 1


def test_a_full_disk_stops_no_reading(path):
    store = made(path)
    with files_up_to(4096):
        first, second = store.read("g"), store.read("g")
        with pytest.raises(Unreachable, match="nothing was written"):
            put(store, "g", {KEY: StoredOffset(2)})
    assert first == second == store.read("g")
    assert len(first) == 1


def test_a_reader_sees_one_state_of_the_file(path, monkeypatch):
    store, other = made(path), SqliteStore(str(path), busy_timeout_s=0.1)

    def write_meanwhile(db):
        with pytest.raises(Unreachable, match="locked by another program"):
            put(other, "g", {KEY: StoredOffset(2)})
        return "name"

    monkeypatch.setattr(store, "_store_name", write_meanwhile)
    assert len(store.read("g")) == 1
    assert put(other, "g", {KEY: StoredOffset(2)}).written == (KEY,)


def test_a_link_to_a_file_that_is_not_there_yet_is_a_store_to_be_created(tmp_path):
    (tmp_path / "etc").mkdir()
    link = tmp_path / "etc" / "offsets.db"
    link.symlink_to("../var/offsets.db")
    store = SqliteStore(str(link))
    with pytest.raises(Refused, match=f"There is no offset store at {link}"):
        store.read("g")
    with pytest.raises(Refused, match=f"There is no directory {tmp_path}/var "):
        made(link)
    (tmp_path / "var").mkdir()
    with pytest.raises(NotCreated, match=f"There is no offset store at {link}"):
        store.read("g")
    store.check_writable("g")
    made(link)
    assert link.is_symlink()
    assert (tmp_path / "var" / "offsets.db").is_file()
    assert len(store.read("g")) == 1


def test_a_reader_who_may_not_write_the_file_leaves_no_lock_file_that_stops_the_job(open_directory):
    path = open_directory / "offsets.db"
    store = made(path)
    os.chmod(path, 0o644)
    with as_nobody():
        assert len(store.read("g")) == 1
    assert os.listdir(open_directory) == ["offsets.db"]


def test_a_failing_batch_leaves_nothing_behind(path):
    store = made(path)
    # A value the driver cannot bind fails in the middle of the batch.
    unbindable = Anchor(offset=1)
    object.__setattr__(unbindable, "offset", 2**70)
    changes = [
        Change(TopicPartition("events", 1), None, StoredOffset(1)),
        Change(TopicPartition("events", 2), None, StoredOffset(1, unbindable)),
    ]
    with pytest.raises(OverflowError):
        store.write("g", changes, reason="test", now_ms=NOW)
    assert [row.key for row in store.read("g")] == [KEY]


def test_a_path_with_a_nul_is_refused():
    with pytest.raises(ConfigError, match="NUL"):
        open_store("sqlite:///a\0b")


# ---------------------------------------------------------------- versions, many processes


def test_versions_do_not_return_with_a_new_file(path):
    version = made(path).read("g")[0].version
    path.unlink()
    assert made(path).read("g")[0].version != version


def _count_up(path: str, number: int, rounds: int) -> None:
    store = SqliteStore(path, busy_timeout_s=60)
    mine = TopicPartition("own", number)
    for turn in range(rounds):
        rows = {row.key: row for row in store.read("g")} if os.path.getsize(path) else {}
        old = rows.get(mine)
        change = Change(mine, old.version if old else None, StoredOffset(turn))
        assert store.write("g", [change], reason="mine", now_ms=turn).written
        while True:
            row = next(row for row in store.read("g", ["events"]))
            more = Change(KEY, row.version, StoredOffset(row.stored.offset + 1))
            if store.write("g", [more], reason="shared", now_ms=turn).written:
                break


def test_eight_processes_lose_no_update(path):
    made(path)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_count_up, args=(str(path), n, 5)) for n in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 8
    rows = {row.key: row.stored.offset for row in SqliteStore(str(path)).read("g")}
    assert rows.pop(KEY) == 1 + 8 * 5
    assert rows == {TopicPartition("own", n): 4 for n in range(8)}


def _create(path: str, number: int, start) -> None:
    start.wait()
    key = TopicPartition("events", number)
    change = Change(key, None, StoredOffset(number))
    assert SqliteStore(path, busy_timeout_s=60).write("g", [change], reason="first", now_ms=1).written


def test_eight_processes_may_create_the_file_together(path):
    context = multiprocessing.get_context("fork")
    for turn in range(5):
        start = context.Event()
        target = path.with_name(f"{turn}.db")
        processes = [context.Process(target=_create, args=(str(target), n, start)) for n in range(8)]
        for process in processes:
            process.start()
        start.set()
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0] * 8
        assert len(SqliteStore(str(target)).read("g")) == 8


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the command as a bug."""
    store = open_store(f"sqlite:///{tmp_path}/offsets.db")
    store.create()

    def refused(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("locking protocol")
        error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
        raise error

    monkeypatch.setattr(sqlite3, "connect", refused)
    with pytest.raises(Unreachable, match=r"could not be taken \(locking protocol\); nothing was written") as caught:
        store.read("g")
    assert "to a local disk" in str(caught.value.hint)
