"""One HBase for the whole run, a plain client of it, and the stores in it for the behaviour suite."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.places.registry import open_store
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from tests.places.servers import cannot
from tests.places.store_cases import NOW, Case

if TYPE_CHECKING:
    from tests.demo.lab.servers.hbase import HBase

TOPICS = ("events", "a.events")
KEY = TopicPartition("events", 0)
PATIENT_S = 60
"""Seconds, for tests in which no call should time out."""


@pytest.fixture(scope="session")
def hbase(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """The run's HBase. Tests share it: use tables of the fixture ``tables``, or the suite's own with other groups."""
    from tests.demo.lab.archives import archive_hbase
    from tests.demo.lab.servers.hbase import HBase
    from tests.demo.lab.servers.jars import hbase_jars

    try:
        jars = hbase_jars()
        archive_hbase(jars)
        server = HBase(tmp_path_factory.mktemp("hbase"), jars).start()
    except (ConfigError, Unreachable) as error:
        cannot(request, str(error))
    yield server
    server.stop()


@pytest.fixture
def happy(hbase: HBase) -> Iterator[Any]:
    """happybase's own connection: another program's view of HBase."""
    connection = hbase.connection()
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def hbase_shared(hbase: HBase) -> Callable[[str], str]:
    """The address of one table for all cases of a layout (a query). It is created once, which takes HBase a second."""
    made: dict[str, str] = {}

    def address(query: str) -> str:
        if query not in made:
            made[query] = f"hbase://{hbase.address}/shared_{len(made)}?layout={query}&timeout={PATIENT_S}"
            store = open_store(made[query])
            store.create()
            store.close()
        return made[query]

    return address


def empty_table(happy: Any, address: str) -> str:
    """Delete the rows of the table at ``address``, and return the address."""
    table = happy.table(address.partition("?")[0].rpartition("/")[2])
    for key, _ in table.scan():
        table.delete(key)
    return address


@pytest.fixture
def hbase_cloudera_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("cloudera")
    return Case(
        lambda: open_store(address), TOPICS, any_topic_name=False, rows_apart=False, dates_rows=False, may_all_lose=True
    )


@pytest.fixture
def hbase_logsaver_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("cdap-logsaver&prefix=100")
    own = address.replace("prefix=100", f"prefix={uuid.uuid4().int % 2**31}")
    return Case(lambda: open_store(own), TOPICS, groups=False, dates_rows=False, whole_anchors=False)


@pytest.fixture
def hbase_metrics_case(hbase_shared: Callable[[str], str], happy: Any) -> Case:
    address = empty_table(happy, hbase_shared("cdap-metrics"))
    return Case(lambda: open_store(address), TOPICS, groups=False, dates_rows=False)


@pytest.fixture
def hbase_flowlet_case(hbase: HBase, hbase_shared: Callable[[str], str], happy: Any) -> Case:
    from reconciler.places.hbase import cdap
    from reconciler.places.hbase.cdap import CdapStore
    from reconciler.places.hbase.flowlet import Flowlet
    from reconciler.places.hbase.table import HBaseTable, ThriftEndpoint

    address = empty_table(happy, hbase_shared("cdap-flowlet&id_of=key"))
    host, _, port = hbase.address.partition(":")
    name = address.partition("?")[0].rpartition("/")[2]

    def opened() -> OffsetStore:
        table = HBaseTable(ThriftEndpoint(host, int(port), timeout_s=PATIENT_S), name, {cdap.FAMILY: {}})
        no_records = dict.fromkeys  # the log has no record at any offset
        return CdapStore(table, Flowlet(no_records), address)

    return Case(opened, TOPICS, groups=False, dates_rows=False, whole_anchors=False)


# ---------------------------------------------------------------- for the tests of HBase alone


class Counted:
    """The number of rows that a store has received from HBase."""

    rows = 0


class Tables:
    """Tables for one test, a name for each layout, with a plain client of them."""

    def __init__(self, hbase: HBase, plain: Any) -> None:
        self.plain = plain
        self._hbase = hbase
        self._unique = uuid.uuid4().hex[:12]
        self._opened: list[Any] = []

    def name(self, query: str) -> str:
        return f"t_{self._unique}_{''.join(c for c in query if c.isalnum())}"

    def open(self, query: str, more: str = "") -> Any:
        """The store of this layout; its table may not exist."""
        return self.at(self.name(query), query + more)

    def at(self, name: str, query: str) -> Any:
        more = "" if "timeout=" in query else f"&timeout={PATIENT_S}"
        self._opened.append(open_store(f"hbase://{self._hbase.address}/{name}?layout={query}{more}"))
        return self._opened[-1]

    def made(self, query: str, more: str = "") -> Any:
        """The store of this layout with its table."""
        store = self.open(query, more)
        store.create()
        return store

    def table(self, query: str) -> Any:
        """The plain client's table of a layout."""
        return self.plain.table(self.name(query))

    def count_rows(self, store: Any) -> Counted:
        """Count the rows that this store receives from now on."""
        counted, table = Counted(), store._table
        real = table._client

        class Counting:
            def __getattr__(self, method: str) -> Any:
                def call(*arguments: Any) -> Any:
                    answer = getattr(real(), method)(*arguments)
                    counted.rows += len(answer) if method in ("getRows", "scannerGetList") else 0
                    return answer

                return call

        table._client = Counting
        return counted

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def tables(hbase: HBase, happy: Any) -> Iterator[Tables]:
    made = Tables(hbase, happy)
    yield made
    made.close()


def only(store: OffsetStore, group: str = "g", *, topic: str | None = None, partition: int | None = None) -> Row:
    """The group's only row (of a topic and partition)."""
    rows = store.read(group, None if topic is None else [topic])
    (row,) = [row for row in rows if partition in (None, row.key.partition)]
    return row


def change(store: OffsetStore, new: StoredOffset, key: TopicPartition = KEY, group: str = "g") -> None:
    """Write one row, at its current version."""
    versions = {row.key: row.version for row in store.read(group)}
    result = store.write(group, [Change(key, versions.get(key), new)], reason="test", now_ms=NOW)
    assert result.written == (key,)
