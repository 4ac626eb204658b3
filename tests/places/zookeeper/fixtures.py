"""One ZooKeeper server for the whole run, a plain client of it, and the stores in it for the behaviour suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.places.registry import open_store
from reconciler.places.zookeeper.store import ZookeeperStore
from reconciler.ports import Change, Row
from tests.places.servers import cannot
from tests.places.store_cases import NOW, Case

if TYPE_CHECKING:
    from tests.demo.lab.servers.zookeeper import ZooKeeperServer

PATIENT_S = 60
"""Seconds, for stores whose calls should not time out: a busy machine may take longer than the product's default."""


def a_server(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    from tests.demo.lab.servers.jars import zookeeper_jars
    from tests.demo.lab.servers.zookeeper import ZooKeeperServer

    try:
        jars = zookeeper_jars()
    except (ConfigError, Unreachable) as error:
        cannot(request, str(error))
    with ZooKeeperServer(factory.mktemp("zookeeper"), jars) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """The run's server. Tests share it: use the path of the fixture ``chroot``."""
    yield from a_server(request, tmp_path_factory)


@pytest.fixture
def chroot() -> str:
    """A path of this test alone; the znode does not exist yet."""
    return f"/st-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kazoo(zookeeper: ZooKeeperServer) -> Iterator[Any]:
    """kazoo's own client: another program's view of ZooKeeper."""
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper.hosts)
    client.start(timeout=PATIENT_S)
    yield client
    client.stop()
    client.close()


def zookeeper_case(server: ZooKeeperServer, chroot: str, layout: str, **guards: bool) -> Case:
    address = f"zookeeper://{server.hosts}{chroot}?layout={layout}&timeout={PATIENT_S}"
    store = open_store(address)
    store.create()
    store.close()
    topics = ("events", "a.events")
    return Case(lambda: open_store(address), topics, any_topic_name=False, dates_rows=False, **guards)


@pytest.fixture
def zookeeper_consumers_case(zookeeper: ZooKeeperServer, chroot: str) -> Case:
    return zookeeper_case(zookeeper, chroot, "consumers")


@pytest.fixture
def zookeeper_single_case(zookeeper: ZooKeeperServer, chroot: str) -> Case:
    return zookeeper_case(zookeeper, chroot, "single", groups=False, versions_recur=True)


# ---------------------------------------------------------------- for this store's own tests


@pytest.fixture
def open_zookeeper(zookeeper, chroot) -> Iterator[Any]:
    """Open a store below this test's chroot, which exists."""
    opened = []

    def open_at(layout: str = "consumers", **more: Any) -> ZookeeperStore:
        store = ZookeeperStore(zookeeper.hosts, chroot, layout, **{"timeout_s": PATIENT_S, **more})
        opened.append(store)
        return store

    zookeeper_case(zookeeper, chroot, "consumers")
    yield open_at
    for store in opened:
        store.close()


def only(store: ZookeeperStore, group: str = "g") -> Row:
    (row,) = store.read(group)
    return row


def change(store: ZookeeperStore, new: StoredOffset) -> Any:
    """Replace the only row."""
    row = only(store)
    return store.write("g", [Change(row.key, row.version, new)], reason="test", now_ms=NOW)
