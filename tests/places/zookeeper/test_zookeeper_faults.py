"""The ZooKeeper store without permission, and on a server that is killed, frozen, or ends the session."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.places.zookeeper.store import ZookeeperStore
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import NOW, put
from tests.places.zookeeper.fixtures import PATIENT_S, a_server, change, only, zookeeper_case
from tests.waiting import LIMIT_S

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
KEY = TopicPartition("events", 0)
SOON = 1.5
"""Seconds that a store under test waits for a frozen server."""

pytestmark = pytest.mark.system


@pytest.fixture
def store(open_zookeeper) -> ZookeeperStore:
    return open_zookeeper()


@pytest.fixture
def offset_path(chroot) -> str:
    return f"{chroot}/consumers/g/offsets/events/0"


# ---------------------------------------------------------------- permissions


@pytest.fixture
def guarded(kazoo, chroot, open_zookeeper) -> str:
    """A group's znode that only the user ``job`` may write; anyone may read it."""
    from kazoo.security import make_acl, make_digest_acl

    acl = [make_digest_acl("job", "s3cret:x", all=True), make_acl("world", "anyone", read=True)]
    path = f"{chroot}/consumers/g"
    kazoo.create(f"{path}/offsets/events/0", b"5", makepath=True)
    for each in (f"{path}/offsets/events/0", f"{path}/offsets/events", f"{path}/offsets", path):
        kazoo.set_acls(each, acl)
    return path


@pytest.mark.parametrize("credentials", [None, "job:wrong"])
def test_a_user_who_may_only_read_is_refused_before_and_at_the_write(open_zookeeper, kazoo, guarded, credentials):
    store = open_zookeeper(credentials=credentials)
    who = "this user" if credentials else "a client without credentials"
    assert only(store).stored.offset == 5
    with pytest.raises(Refused, match=f"does not allow {who} to write {guarded}/offsets/events/0; nothing was written"):
        store.check_writable("g")
    with pytest.raises(Refused, match=f"does not allow {who} to .*; nothing was written|does not show who may use"):
        change(store, StoredOffset(6, ANCHOR))
    assert kazoo.get(f"{guarded}/offsets/events/0")[0] == b"5"


def test_created_znodes_have_the_jobs_access_list(open_zookeeper, kazoo, guarded):
    store = open_zookeeper(credentials="job:s3cret:x")
    store.check_writable("g")
    change(store, StoredOffset(6, ANCHOR))
    put(store, "g", {TopicPartition("a.events", 0): StoredOffset(7, ANCHOR)})
    assert len(store.read("g")) == 2
    kazoo.add_auth("digest", "job:s3cret:x")
    made = kazoo.get_acls(f"{guarded}/offsets/a.events/0")[0]
    assert made == kazoo.get_acls(guarded)[0]


def test_a_user_who_may_not_read_is_refused(open_zookeeper, kazoo, chroot):
    from kazoo.security import make_digest_acl

    kazoo.create(f"{chroot}/consumers/g/offsets/events", makepath=True)
    kazoo.create(f"{chroot}/consumers/g/offsets/events/0", b"5", acl=[make_digest_acl("job", "pw", all=True)])
    store = open_zookeeper()
    for attempt, what in ((lambda: store.read("g"), "read"), (lambda: store.check_writable("g"), "write")):
        with pytest.raises(Refused, match=rf"does not allow a client without credentials to {what} .*/events/0"):
            attempt()


def test_the_permission_test_changes_nothing(store, kazoo, chroot, offset_path):
    put(store, "g", {KEY: StoredOffset(5, ANCHOR)})
    rows, tree = store.read("g"), kazoo.get_children(f"{chroot}/consumers/g/offsets")
    before = kazoo.get(offset_path)
    store.check_writable("g")
    store.check_writable("new-group")
    assert (store.read("g"), kazoo.get(offset_path)) == (rows, before)
    assert kazoo.get_children(f"{chroot}/consumers/g/offsets") == tree
    assert kazoo.exists(f"{chroot}/consumers/new-group") is None


def test_live_consumers_of_kafkas_old_client_are_refused_by_name(store, kazoo, chroot):
    kazoo.create(f"{chroot}/consumers/g/ids/g_host-1", b"{}", ephemeral=True, makepath=True)
    with pytest.raises(Refused, match=r"Group 'g' has 1 live consumer in ZooKeeper \(g_host-1\).*nothing was written"):
        store.check_writable("g")
    kazoo.delete(f"{chroot}/consumers/g/ids/g_host-1")
    store.check_writable("g")


# ---------------------------------------------------------------- servers that fail


@pytest.fixture(scope="module")
def disposable(request, tmp_path_factory) -> Iterator[Any]:
    """A server for these tests alone, which kill and freeze it."""
    yield from a_server(request, tmp_path_factory)


@pytest.fixture
def mortal(disposable, chroot) -> Any:
    """That server, running, with this test's chroot."""
    disposable.kill()
    disposable.start()
    zookeeper_case(disposable, chroot, "consumers")
    return disposable


@pytest.fixture
def fragile(mortal, chroot) -> Iterator[ZookeeperStore]:
    """A store in it with a row. It waits long until a test that awaits no answer makes it hasty."""
    store = ZookeeperStore(mortal.hosts, chroot, "consumers", timeout_s=PATIENT_S)
    put(store, "g", {KEY: StoredOffset(1, ANCHOR)})
    yield store
    store.close()


def patiently(store: ZookeeperStore) -> ZookeeperStore:
    """The same store, with time enough for a server that has just started on a slow machine."""
    store._ensemble._timeout_s = PATIENT_S
    return store


def hastily(store: ZookeeperStore) -> ZookeeperStore:
    """The same store, with little time for a server that will not answer."""
    store._ensemble._timeout_s = SOON
    return store


def test_a_store_works_again_after_its_server_restarted(mortal, fragile):
    before = fragile.read("g")
    mortal.kill()
    hastily(fragile)
    for attempt in (
        lambda: fragile.read("g"),
        lambda: fragile.check_writable("g"),
        lambda: fragile.write("g", [Change(KEY, before[0].version, StoredOffset(2))], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Unreachable, match=r"could not be reached within 1\.5 s.*; nothing was written"):
            attempt()
    mortal.start()
    assert patiently(fragile).read("g") == before
    change(fragile, StoredOffset(2, ANCHOR))
    assert only(fragile).stored.offset == 2


@pytest.fixture
def at_the_transaction(monkeypatch) -> Any:
    """``at_the_transaction(act)``: act right before the next transaction is sent."""
    from kazoo.client import TransactionRequest

    real = TransactionRequest.commit_async

    def arrange(act: Any) -> None:
        def commit_async(transaction: Any) -> Any:
            monkeypatch.undo()
            act()
            return real(transaction)

        monkeypatch.setattr(TransactionRequest, "commit_async", commit_async)

    return arrange


def test_a_frozen_server_gives_an_unknown_outcome_and_a_second_write_completes_it(mortal, fragile, at_the_transaction):
    row = only(fragile)
    at_the_transaction(lambda: (hastily(fragile), mortal.pause()))
    changes = [Change(KEY, row.version, StoredOffset(2, ANCHOR))]
    with pytest.raises(OutcomeUnknown, match=r"did not say whether it took .*no answer in time") as caught:
        fragile.write("g", changes, reason="test", now_ms=NOW)
    assert caught.value.exit_code == 7
    with pytest.raises(Unreachable, match="could not be reached"):
        fragile.read("g")
    mortal.resume()
    patiently(fragile)
    if only(fragile).stored.offset == 1:  # the request had not arrived when the server froze
        assert fragile.write("g", changes, reason="test", now_ms=NOW).written == (KEY,)
    assert only(fragile).stored.offset == 2


def test_an_expired_session_is_replaced(zookeeper, store):
    from kazoo.client import KazooClient

    put(store, "g", {KEY: StoredOffset(1)})
    thief = KazooClient(zookeeper.hosts, client_id=store._ensemble._zk.client_id)
    thief.start(timeout=30)  # takes the session over,
    thief.stop()  # and ends it
    thief.close()
    assert only(store).stored.offset == 1
    change(store, StoredOffset(2))
    assert only(store).stored.offset == 2


def test_the_client_library_prints_nothing(mortal, chroot):
    program = (
        "import logging, sys\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "from reconciler.core.errors import Unreachable\n"
        "from reconciler.places.zookeeper.store import ZookeeperStore\n"
        f"store = ZookeeperStore({mortal.hosts!r}, {chroot!r}, 'consumers', timeout_s={PATIENT_S})\n"
        "store.read('g'); print('read', flush=True); sys.stdin.readline()\n"
        f"store._ensemble._timeout_s = {SOON}\n"
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


def test_an_answer_that_the_client_library_cannot_parse_costs_a_connection_and_prints_nothing(store, monkeypatch):
    from kazoo.protocol.connection import ConnectionHandler

    put(store, "g", {KEY: StoredOffset(1)})
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    real = ConnectionHandler._read_response

    def fail_once(*_: Any) -> Any:
        monkeypatch.setattr(ConnectionHandler, "_read_response", real)
        raise RuntimeError("xids do not match")

    monkeypatch.setattr(ConnectionHandler, "_read_response", fail_once)
    assert only(store).stored.offset == 1
    assert printed == []


def test_closing_does_not_wait_for_a_frozen_server(mortal, fragile):
    mortal.pause()
    closing = threading.Thread(target=fragile.close, daemon=True)
    closing.start()
    closing.join(timeout=8)  # ending the session in order would take twice as long
    assert not closing.is_alive()
