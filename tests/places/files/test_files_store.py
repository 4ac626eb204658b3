"""The manifest store's own guarantees: bytes, torn files, bounded reads, kills, and HDFS's faults."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, NotCreated, OutcomeUnknown, Refused, Unreachable
from reconciler.places import files, range_manifests
from reconciler.places import folder as files_folder
from reconciler.places.files import FilesStore
from reconciler.places.folder import LocalFolder, SharedFolder
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import NOW, put
from tests.waiting import wait_until

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
EVENTS = TopicPartition("events", 0)
OTHER = TopicPartition("events", 1)

system = pytest.mark.system


def whole(*lines: str, group: str = "clicks", **header: object) -> bytes:
    """A manifest as a job's own code writes it."""
    head = json.dumps({"format": "reconciler.ranges/1", "group": group, **header})
    body = "".join(f"{line}\n" for line in (head, *lines)).encode()
    return body + b'{"end": %d, "sha256": "%s"}\n' % (len(lines) + 1, hashlib.sha256(body).hexdigest().encode())


def batch(first: int, until: int, partition: int = 0) -> str:
    return f'{{"topic": "events", "partition": {partition}, "from": {first}, "until": {until}}}'


class Home:
    """A store below a local directory, and a plain program's access to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = LocalFolder(str(path))

    def open(self, more: str = "") -> FilesStore:
        return open_store(f"files:{self.path}{more}")

    def save(self, number: int, data: bytes, group: str = "clicks") -> Path:
        file = self.path / group / f"{number:020d}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def numbers(self, group: str = "clicks") -> list[int]:
        names = sorted(name for name in os.listdir(self.path / group) if name.endswith(".jsonl"))
        return [int(name[:20]) for name in names]

    def manifest(self, number: int) -> list[str]:
        return (self.path / "clicks" / f"{number:020d}.jsonl").read_text().splitlines()


@pytest.fixture
def home(tmp_path) -> Home:
    (tmp_path / "offsets").mkdir()
    return Home(tmp_path / "offsets")


@pytest.fixture
def store(home):
    return home.open()


def only(store, group="clicks"):
    (row,) = store.read(group)
    return row


def offsets(store, group="clicks"):
    return {row.key.partition: row.stored.offset for row in store.read(group)}


@pytest.fixture
def reads(monkeypatch):
    """The manifests that are read, in order."""
    seen = []
    read = LocalFolder.read
    monkeypatch.setattr(LocalFolder, "read", lambda self, name: (seen.append(name), read(self, name))[1])
    return seen


# ---------------------------------------------------------------- manifests


def test_a_plain_program_finds_the_documented_bytes(store, home):
    put(store, "clicks", {EVENTS: StoredOffset(42, ANCHOR)}, now_ms=NOW, reason="batch 17")
    head, line, end = home.manifest(1)
    assert re.fullmatch(
        r'{"format":"reconciler\.ranges/1","group":"clicks","written_at_ms":1700000000000,"snapshot":true,'
        r'"reason":"batch 17","nonce":"[0-9a-f]{16}"}',
        head,
    )
    assert line == (
        '{"topic":"events","partition":0,"until":42,"anchor":{"offset":41,"timestamp_ms":1699999999999,'
        '"id_base64":"AGlk","fingerprint":"61a95fb188692f93d8a0ee5223b2369a","cluster_id":"cluster-a",'
        '"topic_id":"topic-1"}}'
    )
    assert json.loads(end) == {"end": 2, "sha256": hashlib.sha256(f"{head}\n{line}\n".encode()).hexdigest()}


def test_a_jobs_ranges_are_read_from_the_newest_until_every_partition_is_found(store, home):
    home.save(1_700_000_000_000, whole(batch(0, 10), batch(0, 7, 1), batch(0, 3, 2), snapshot=True, written_at_ms=5))
    home.save(1_700_000_001_000, whole(batch(10, 20), batch(7, 9, 1), written_at_ms=6))
    home.save(1_700_000_002_000, whole(batch(20, 30), written_at_ms=7))
    assert [(row.key.partition, row.stored) for row in store.read("clicks")] == [
        (0, StoredOffset(30, None, 7)),
        (1, StoredOffset(9, None, 6)),
        (2, StoredOffset(3, None, 5)),
    ], "a partition that was silent has its offset in an earlier manifest"
    row = store.read("clicks")[0]
    store.write("clicks", [Change(row.key, row.version, StoredOffset(11, ANCHOR))], reason="apply", now_ms=NOW)
    assert home.numbers()[-1] == 1_700_000_002_001
    assert offsets(store) == {0: 11, 1: 9, 2: 3}


@pytest.mark.parametrize("cut", [2, 40, 300])
def test_a_torn_manifest_is_ignored_with_a_warning_and_the_one_before_it_counts(store, home, caplog, cut):
    home.save(1, whole(batch(0, 10), batch(0, 5, 1), snapshot=True))
    data = whole(batch(10, 20), *("x" * 300,))
    home.save(2, data[:-cut])
    assert offsets(store) == offsets(store) == {0: 10, 1: 5}
    (warning,) = caplog.messages
    assert f"{home.path}/clicks/00000000000000000002.jsonl is ignored: it is torn" in warning
    assert only_note(store) == {
        "the newer manifest 00000000000000000002.jsonl is torn: the work of its batch may be repeated"
    }
    put(store, "clicks", {EVENTS: StoredOffset(15)})
    assert home.numbers()[-1] == 3, "its number is taken"
    notes = {row.key.partition: bool(row.note) for row in store.read("clicks")}
    assert notes == {0: False, 1: True}, "the other partition may have been in the torn one"


def only_note(store):
    return {row.note for row in store.read("clicks")}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (whole('{"topic": "events"}'), "line 2: partition is missing"),
        (whole(batch(0, 1)).replace(b"ranges/1", b"ranges/2"), None),
        (whole(batch(0, 1), batch(1, 2)), "repeats events-0"),
        (whole(batch(0, 1), group="others"), "is of group 'others', in the folder of 'clicks'"),
    ],
)
def test_a_whole_manifest_that_is_not_understood_is_never_skipped(store, home, data, problem):
    home.save(1, whole(batch(0, 10)))
    if problem is None:
        body = data[: data.rindex(b'{"end"')]
        data = body + json.dumps({"end": 2, "sha256": hashlib.sha256(body).hexdigest()}).encode()
        problem = "format is not 'reconciler.ranges/1'"
    home.save(2, data)
    for attempt in (lambda: store.read("clicks"), lambda: put(home.open(), "clicks", {EVENTS: StoredOffset(1)})):
        with pytest.raises(Refused) as caught:
            attempt()
        assert problem in caught.value.message
        assert "clicks/00000000000000000002.jsonl" in caught.value.message
    assert home.numbers() == [1, 2]


def test_a_misnamed_manifest_is_reported_and_other_files_are_ignored(store, home, caplog):
    home.save(1, whole(batch(0, 10)))
    for name in (
        f"{'0' * 19}\N{ARABIC-INDIC DIGIT TWO}.jsonl",
        "2.jsonl",
        "_SUCCESS",
        ".00000000000000000002.jsonl.crc",
        ".unfinished-x",
    ):
        (home.path / "clicks" / name).write_bytes(whole(batch(10, 20)))
    assert offsets(store) == {0: 10}
    digits, plain = sorted(caplog.messages)
    assert "clicks/2.jsonl is ignored: its name is not twenty digits and .jsonl" in plain
    assert "is ignored: its name is not twenty digits and .jsonl" in digits


def test_no_manifest_follows_the_largest_number(store, home):
    home.save(10**20 - 1, whole(batch(0, 10)))
    with pytest.raises(Refused, match=r"has the largest number that there is, 9{20}; nothing was written"):
        put(store, "clicks", {EVENTS: StoredOffset(20)})
    assert offsets(store) == {0: 10}


# ---------------------------------------------------------------- history


def test_few_manifests_stay_and_few_are_read_however_long_a_job_runs(home, reads):
    store = home.open("?keep=5")
    for turn in range(60):
        put(store, "clicks", {TopicPartition("events", turn % 7): StoredOffset(turn)}, now_ms=turn)
        assert len(home.numbers()) <= 5 + files.SNAPSHOT_EVERY
    reads.clear()
    assert offsets(store) == {turn % 7: turn for turn in range(60)}
    assert len(reads) <= files.SNAPSHOT_EVERY
    assert [row.stored.written_at_ms for row in store.read("clicks")] == [56, 57, 58, 59, 53, 54, 55]
    assert home.numbers()[-5:] == [56, 57, 58, 59, 60]


def test_a_carried_row_keeps_its_version_its_date_and_its_bytes(home):
    store = home.open()
    home.save(1, whole(batch(0, 3, 1), written_at_ms=4))
    before = only(store)
    for turn in range(2 * files.SNAPSHOT_EVERY + 2):
        put(store, "clicks", {EVENTS: StoredOffset(turn)})
    carried = store.read("clicks")[1]
    assert (carried.version, carried.stored) == (before.version, before.stored)
    assert any(batch(0, 3, 1) in home.manifest(number) for number in home.numbers()[1:]), "a snapshot has its line"
    assert json.loads(home.manifest(home.numbers()[-1])[0])["group"] == "clicks"


def test_too_many_manifests_without_a_snapshot_are_refused_with_a_hint(home, reads):
    home.save(1, whole(batch(0, 5, 1)))
    for number in range(2, 23):
        home.save(number, whole(batch(0, number)))
    with pytest.raises(Refused, match="more than 20 manifests since its last snapshot") as caught:
        home.open("?walk=20").read("clicks")
    assert len(reads) == 20
    assert "?walk=200" in caught.value.hint
    wider = home.open("?walk=200")
    assert offsets(wider) == {0: 22, 1: 5}
    put(wider, "clicks", {EVENTS: StoredOffset(23)})
    assert offsets(home.open("?walk=20")) == {0: 23, 1: 5}, "the write made a snapshot"


# ---------------------------------------------------------------- interruptions


STEPS = ("fsync", "link", "unlink", "fdopen", "chmod", "makedirs")


def killed_at(step: int, act) -> bool:
    """Run ``act`` in a process that is killed at its n-th system call. False if it finished first."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counting(call):
            def counted(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return counted

        for name in STEPS:
            setattr(os, name, counting(getattr(os, name)))
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("before", [0, 1, 9, 10, 25])
def test_a_writer_killed_at_any_step_leaves_the_old_state_or_the_new_one(home, before):
    store = home.open("?keep=2")
    for turn in range(before):
        put(store, "clicks", {TopicPartition("events", turn % 3): StoredOffset(turn)})
    store.create()
    kept = home.path.with_name("kept")
    shutil.copytree(home.path, kept)
    old = offsets(store)
    new = {**old, 0: 99}
    seen = []
    for step in range(100):
        shutil.rmtree(home.path)
        shutil.copytree(kept, home.path)
        died = killed_at(step, lambda: put(home.open("?keep=2"), "clicks", {EVENTS: StoredOffset(99)}))
        found = offsets(home.open())
        assert found in (old, new)
        seen.append(found == new)
        put(home.open("?keep=2"), "clicks", {OTHER: StoredOffset(7)})
        assert offsets(home.open()) == {**found, 1: 7}, "the next one is not held up"
        if not died:
            break
    assert seen[-1]
    assert seen == sorted(seen), "before one step nothing was written, after it everything"
    assert not all(seen)


def test_a_writer_delayed_until_its_number_was_used_and_removed_does_not_win(home, monkeypatch):
    slow, quick = home.open("?keep=2"), home.open("?keep=2")
    put(quick, "clicks", {EVENTS: StoredOffset(0)})
    row = only(slow)
    publish = LocalFolder.publish
    held = []

    def publish_late(self, name, data):
        if not held:
            held.append(name)
            for turn in range(1, 30):
                put(quick, "clicks", {EVENTS: StoredOffset(turn)})
            assert not os.path.exists(self._at(name)), "used, and removed again"
        publish(self, name, data)

    monkeypatch.setattr(LocalFolder, "publish", publish_late)
    with pytest.raises(OutcomeUnknown, match="at the same moment"):
        slow.write("clicks", [Change(EVENTS, row.version, StoredOffset(99))], reason="t", now_ms=NOW)
    assert offsets(home.open()) == {0: 29}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_writer_recognizes_its_manifest_if_the_client_repeated_the_request(store, home, monkeypatch, is_new):
    """An answer got lost: of the conditional request to an object store, or of NFS's link."""
    if not is_new:
        put(store, "clicks", {EVENTS: StoredOffset(1)})
    expected, publish = None if is_new else only(store).version, LocalFolder.publish

    def publish_twice(self, name, data):
        publish(self, name, data)
        publish(self, name, data)

    monkeypatch.setattr(LocalFolder, "publish", publish_twice)
    change = Change(EVENTS, expected, StoredOffset(2))
    assert store.write("clicks", [change], reason="t", now_ms=NOW).written == (EVENTS,)
    assert offsets(store) == {0: 2}


@pytest.mark.parametrize("call", ["names", "read"])
def test_a_manifest_that_was_written_and_cannot_be_looked_at_again_is_unknown(store, home, monkeypatch, call):
    publish = LocalFolder.publish

    def away(*_):
        raise Unreachable("No answer.")

    def publish_and_lose(self, name, data):
        publish(self, name, data)
        monkeypatch.setattr(LocalFolder, call, away)
        if call == "read":
            raise FileExistsError(name)

    with monkeypatch.context():
        monkeypatch.setattr(LocalFolder, "publish", publish_and_lose)
        with pytest.raises(OutcomeUnknown, match=r"Whether the offsets of group 'clicks' .* is not known.*No answer"):
            put(store, "clicks", {EVENTS: StoredOffset(2)})
    monkeypatch.undo()
    assert offsets(home.open()) == {0: 2}


def test_a_reader_starts_again_if_a_listed_manifest_was_removed(home, monkeypatch):
    store = home.open()
    for turn in range(5):
        put(store, "clicks", {TopicPartition("events", turn): StoredOffset(turn)})
    read = LocalFolder.read
    compacted = []

    def read_late(self, name):
        if not compacted:
            compacted.append(name)
            home.save(6, whole(*(batch(0, 9, partition) for partition in range(5)), snapshot=True))
            for number in range(1, 6):
                os.unlink(home.path / "clicks" / range_manifests.name_of(number))
        return read(self, name)

    monkeypatch.setattr(LocalFolder, "read", read_late)
    assert offsets(store) == dict.fromkeys(range(5), 9)


def test_a_file_system_without_hard_links_is_exclusive_too(store, home, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    assert offsets(home.open()) == {0: 1}
    with pytest.raises(FileExistsError):
        home.folder.publish(f"clicks/{range_manifests.name_of(1)}", b"x")
    assert not [name for name in os.listdir(home.path / "clicks") if name.startswith(".")]


@pytest.mark.parametrize("removable", [True, False])
def test_without_hard_links_a_manifest_that_was_not_flushed_is_gone_or_unknown(store, home, monkeypatch, removable):
    """It was reported as not written, and was read from then on."""
    fsync, unlink, flushed = os.fsync, os.unlink, []

    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    def second_fails(descriptor):
        flushed.append(descriptor)
        if len(flushed) == 2:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    def no_manifest(path):
        if path.endswith(".jsonl") and not removable:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path)

    with monkeypatch.context() as during:
        during.setattr(os, "link", no_links)
        during.setattr(os, "fsync", second_fails)
        during.setattr(os, "unlink", no_manifest)
        with pytest.raises(Refused if removable else OutcomeUnknown, match="Input/output error"):
            put(store, "clicks", {EVENTS: StoredOffset(1)})
    assert offsets(home.open()) == ({} if removable else {0: 1})


# ---------------------------------------------------------------- the folder


def test_only_create_creates_the_folder(tmp_path):
    store = open_store(f"files:{tmp_path}/a/b")
    for attempt in (
        lambda: store.read("clicks"),
        lambda: store.check_writable("clicks"),
        lambda: store.write("clicks", [Change(EVENTS, None, StoredOffset(1))], reason="t", now_ms=NOW),
    ):
        with pytest.raises(Refused, match=f"There is no folder {tmp_path}/a/b with manifests") as caught:
            attempt()
        assert "anchors import" in caught.value.hint
    assert os.listdir(tmp_path) == []
    store.create()
    assert store.read("clicks") == []


@pytest.mark.parametrize(
    ("group", "folder"),
    [
        ("clicks", "clicks"),
        ("a/b c", "a%2Fb%20c"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("a~b", "a%7Eb"),
        ("gé", "g%C3%A9"),
        ("主" * 60, None),
    ],
)
def test_a_groups_folder_has_a_name_that_is_valid_on_any_file_system(home, group, folder):
    made = files.folder_of(group)
    assert folder in (made, None)
    assert len(made) <= 120
    store = home.open()
    put(store, group, {EVENTS: StoredOffset(3)})
    assert os.listdir(home.path) == [made]
    assert only(store, group).stored.offset == 3


def test_long_names_with_a_common_prefix_do_not_collide(home):
    store = home.open()
    for number, group in enumerate(("x" * 200, "x" * 201)):
        put(store, group, {EVENTS: StoredOffset(number)})
    assert [only(store, "x" * 200).stored.offset, only(store, "x" * 201).stored.offset] == [0, 1]


def test_a_full_disk_is_reported_and_leaves_nothing(store, home, monkeypatch):
    put(store, "clicks", {EVENTS: StoredOffset(1)})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refused, match="No space left on device"):
        put(store, "clicks", {EVENTS: StoredOffset(2)})
    assert offsets(home.open()) == {0: 1}
    assert os.listdir(home.path / "clicks") == [range_manifests.name_of(1)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_refused_before_any_write(store, home):
    home.path.chmod(0o555)
    with pytest.raises(Refused, match="may not be written by this user"):
        store.check_writable("clicks")
    home.path.chmod(0o755)


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_file_in_the_place_of_the_folder_is_said_to_be_one(tmp_path, make):
    make(tmp_path / "offsets.db")
    store = open_store(f"files:{tmp_path / 'offsets.db'}")
    for use in (lambda: store.read("clicks"), lambda: store.check_writable("clicks"), store.create):
        with pytest.raises(Refused, match=r"offsets\.db is not a folder, and") as caught:
            use()
        assert not isinstance(caught.value, NotCreated), "creating it is no way out"
        assert caught.value.hint == "Correct the store's address."


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("files:", "names no folder"),
        ("files:?keep=3", "names no folder"),
        ("files:/x?kep=3", "'kep' is not one of its parameters (keep, walk)"),
        ("files:/x?keep=3&keep=4", "keep= is given twice"),
        ("files:/x?keep=none", "keep='none' is not a number from 1 to 1,000,000"),
        ("files:/x?walk=0", "walk='0' is not a number from 1 to 1,000,000"),
        ("files:/x?keep=٣", "is not a number"),
        ("files:nosuchfs://x/y", "fsspec knows no file system 'nosuchfs'"),
    ],
)
def test_the_error_for_a_wrong_address_shows_a_right_one(address, problem):
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert problem in caught.value.message


# ---------------------------------------------------------------- shared file systems


class Elsewhere(SharedFolder):
    """A file system whose rename replaces files: the local one, accessed through fsspec."""

    def __init__(self, path: Path) -> None:
        from fsspec.implementations.local import LocalFileSystem

        super().__init__(f"sftp://somewhere{path}", "sftp")
        self._opened = (LocalFileSystem(), str(path))


def test_a_file_system_that_renames_over_files_is_used_with_a_warning(home, caplog):
    store = FilesStore(Elsewhere(home.path), address="files:elsewhere")
    for turn in range(3):
        put(store, "clicks", {EVENTS: StoredOffset(turn)})
    (warning,) = caplog.messages
    assert "two writers at the same moment are not kept apart on this file system" in warning
    assert offsets(home.open()) == {0: 2}
    with pytest.raises(FileExistsError):
        store._folder.publish(f"clicks/{range_manifests.name_of(1)}", b"x")
    assert [name for name in os.listdir(home.path / "clicks") if name.startswith(".")] == []


def test_a_file_system_that_does_not_answer_is_an_error_in_time(home, monkeypatch):
    monkeypatch.setattr(files_folder, "TIMEOUT_S", 0.2)
    folder = Elsewhere(home.path)
    store = FilesStore(folder, address="files:elsewhere")
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    row = only(store)
    hanging, never = folder._opened[0], threading.Event()
    hangs = {"info": lambda *_: never.wait()}
    monkeypatch.setattr(folder, "_opened", (Patched(hanging, hangs), folder._opened[1]))
    with pytest.raises(Unreachable, match=r"could not be reached: no answer in 0.2 s") as caught:
        store.read("clicks")
    assert not isinstance(caught.value, Refused)
    monkeypatch.setattr(folder, "_opened", (Patched(hanging, {"mv": hangs["info"]}), folder._opened[1]))
    with pytest.raises(OutcomeUnknown, match=r"no answer in 0.2 s to the request to write clicks/0+2\.jsonl"):
        store.write("clicks", [Change(EVENTS, row.version, StoredOffset(2))], reason="t", now_ms=NOW)
    never.set()


class Patched:
    def __init__(self, fs, calls):
        self._fs, self._calls = fs, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._fs, name)


# ---------------------------------------------------------------- HDFS


@pytest.fixture
def in_hdfs(hdfs, topic_name):
    store = open_store(f"files:{hdfs.url(f'/{topic_name}')}")
    store.create()
    return store


def plain(hdfs, topic_name):
    import fsspec

    return fsspec.core.url_to_fs(hdfs.url(f"/{topic_name}"))


@system
def test_manifests_that_a_job_wrote_to_hdfs_are_read_corrected_and_read_back_by_a_plain_client(
    hdfs, in_hdfs, topic_name
):
    fs, root = plain(hdfs, topic_name)
    fs.makedirs(f"{root}/clicks")
    fs.pipe_file(f"{root}/clicks/{range_manifests.name_of(5)}", whole(batch(0, 10), batch(0, 7, 1), snapshot=True))
    fs.pipe_file(f"{root}/clicks/{range_manifests.name_of(6)}", whole(batch(10, 20)))
    fs.pipe_file(f"{root}/clicks/{range_manifests.name_of(7)}", whole(batch(20, 30))[:50])
    assert offsets(in_hdfs) == {0: 20, 1: 7}
    put(in_hdfs, "clicks", {EVENTS: StoredOffset(13, ANCHOR)})
    found = range_manifests.load(fs.cat_file(f"{root}/clicks/{range_manifests.name_of(8)}"))
    assert [(each.partition, each.stored) for each in found.ranges] == [(0, StoredOffset(13, ANCHOR, NOW))]
    assert sorted(name.rsplit("/", 1)[1] for name in fs.ls(f"{root}/clicks", detail=False)) == [
        range_manifests.name_of(number) for number in range(5, 9)
    ]


@system
def test_hdfs_never_renames_over_a_manifest(hdfs, in_hdfs, topic_name):
    folder = in_hdfs._folder
    folder.publish("clicks/x", b"first")
    with pytest.raises(FileExistsError):
        folder.publish("clicks/x", b"second")
    assert folder.read("clicks/x") == b"first"
    assert folder.names("clicks") == ["x"], "and nothing unfinished stays"
    assert folder.exclusive


@system
def test_hdfs_that_freezes_at_the_rename_leaves_the_outcome_unknown_and_a_second_write_finishes(
    hdfs, in_hdfs, monkeypatch
):
    put(in_hdfs, "clicks", {EVENTS: StoredOffset(1)})
    row = only(in_hdfs)
    rename = SharedFolder._rename
    change = Change(EVENTS, row.version, StoredOffset(2, ANCHOR))

    def freeze_and_rename(*arguments):
        hdfs.pause()
        rename(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(files_folder, "TIMEOUT_S", 3.0)
        patch.setattr(SharedFolder, "_rename", freeze_and_rename)
        try:
            with pytest.raises(OutcomeUnknown, match="is not known: there was no answer in 3 s") as caught:
                in_hdfs.write("clicks", [change], reason="t", now_ms=NOW)
        finally:
            hdfs.resume()
    assert caught.value.retryable
    again = in_hdfs.write("clicks", [change], reason="t", now_ms=NOW)
    assert (again.written, again.conflicts) in (((EVENTS,), ()), ((), (EVENTS,))), "it came through late, or not at all"
    assert only(in_hdfs).stored.offset == 2


def test_a_name_node_that_never_answers_keeps_no_request_that_was_given_up(monkeypatch):
    monkeypatch.setattr(files_folder, "TIMEOUT_S", 0.5)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for _ in range(3):
            store = open_store(f"files:webhdfs://127.0.0.1:{silent.getsockname()[1]}/offsets")
            with pytest.raises(Unreachable, match=r"could not be reached: no answer in 0\.5 s"):
                store.read("clicks")
        wait_until(lambda: set(threading.enumerate()) <= before, "the requests that were given up have ended")


@system
def test_a_user_without_permission_to_write_to_hdfs_is_refused(hdfs, in_hdfs, topic_name, caplog):
    caplog.set_level(logging.INFO)
    stranger = open_store(f"files:{hdfs.url(f'/{topic_name}', user='stranger')}")
    assert stranger.read("clicks") == []
    with pytest.raises(Refused, match="may not be used by this user"):
        stranger.write("clicks", [Change(EVENTS, None, StoredOffset(1))], reason="t", now_ms=NOW)
    assert in_hdfs.read("clicks") == []
    assert [record for record in caplog.records if record.name.startswith("reconciler")] == []


def test_a_malformed_range_of_another_partition_is_kept_and_keeps_no_write_away(home, store):
    """The first manifest of this product's own is a snapshot, which copies every line."""
    line = '{"topic": "events", "partition": 1, "from": 9, "until": 3}'
    home.save(1, whole(batch(0, 7), line))
    assert put(store, "clicks", {EVENTS: StoredOffset(42)}, now_ms=NOW).written
    assert line in home.manifest(2)
    changed, malformed = store.read("clicks")
    assert (changed.stored.offset, malformed.key) == (42, OTHER)
    assert malformed.malformed is not None


def test_a_manifest_that_has_not_changed_is_read_again_and_parsed_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``apply`` reads four times what it replaces; of 10,000 rows parsing is most of the cost."""
    parsed: list[bytes] = []
    load = range_manifests.load
    monkeypatch.setattr(range_manifests, "load", lambda data: parsed.append(data) or load(data))  # type: ignore[func-returns-value]
    first, second, third = (whole(batch(0, until)) for until in (5, 9, 7))
    home.save(1, first)
    store = home.open()
    assert [store.read("clicks")[0].stored.offset for _ in range(3)] == [5, 5, 5]
    file = home.save(2, second)
    assert [store.read("clicks")[0].stored.offset for _ in range(2)] == [9, 9]
    assert parsed == [first, second]
    file.write_bytes(third)  # as many bytes, under the same name
    assert store.read("clicks")[0].stored.offset == 7
    file.write_bytes(third[:-9])
    assert store.read("clicks")[0].stored.offset == 5
    assert parsed == [first, second, third, third[:-9]]
