"""HBase for the whole run, a plain client of it, and the stores in it for the behaviour suite."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import cannot
from store_cases import Case

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.ports import OffsetStore, TopicPartition
from reconciler.stores.registry import open_store

if TYPE_CHECKING:
    from reconciler.lab.hbase import HBase

TOPICS = ("events", "a.events")


_SERVER: pytest.StashKey[HBase] = pytest.StashKey()


@pytest.fixture(scope="session")
def hbase(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HBase:
    """The run's HBase. Tests share it: use tables of ``hbase_table``'s making, or the suite's own with other groups.

    One server, though the stores' tests and the commands' each have this fixture for their own.
    """
    if _SERVER not in request.config.stash:
        request.config.stash[_SERVER] = server = started(request, tmp_path_factory.mktemp("hbase"))
        request.config.add_cleanup(server.stop)
    return request.config.stash[_SERVER]


def started(request: pytest.FixtureRequest, directory: Path) -> HBase:
    from reconciler import artifacts
    from reconciler.lab.hbase import HBase

    try:
        return HBase(directory, artifacts.hbase_jars(print)).start()
    except (ConfigError, Unreachable) as error:
        cannot(request, str(error))


@pytest.fixture
def happy(hbase: HBase) -> Iterator[Any]:
    """happybase's own connection: what any other program writes and sees."""
    connection = hbase.connection()
    yield connection
    connection.close()


@pytest.fixture
def hbase_table(happy: Any) -> Callable[..., Any]:
    """Make a table with these families (and their options) for one test; a plain client's table."""

    def make(**families: Mapping[str, int]) -> Any:
        name = f"t_{uuid.uuid4().hex[:12]}"
        happy.create_table(name, dict(families))
        return happy.table(name)

    return make


@pytest.fixture(scope="session")
def hbase_shared(hbase: HBase) -> Callable[[str], str]:
    """The address of a table for all cases of one layout (a query), which is made once: it takes HBase a second."""
    made: dict[str, str] = {}

    def address(query: str) -> str:
        if query not in made:
            made[query] = f"hbase://{hbase.address}/shared_{len(made)}?layout={query}"
            store = open_store(made[query])
            store.create()
            store.close()
        return made[query]

    return address


def emptied(happy: Any, address: str) -> str:
    """The address, once its table has no rows."""
    table = happy.table(address.partition("?")[0].rpartition("/")[2])
    for key, _ in table.scan():
        table.delete(key)
    return address


@pytest.fixture
def hbase_anchored_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("anchored")
    return Case(lambda: open_store(address), TOPICS)


@pytest.fixture
def hbase_cloudera_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("cloudera")
    return Case(lambda: open_store(address), TOPICS, any_topic_name=False, rows_apart=False, whole_history=False)


@pytest.fixture
def hbase_cloudera_anchors_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("cloudera&anchor_family=anchors")
    return Case(lambda: open_store(address), TOPICS, any_topic_name=False, rows_apart=False, whole_history=False)


@pytest.fixture
def hbase_logsaver_case(hbase_shared: Callable[[str], str]) -> Case:
    address = hbase_shared("cdap-logsaver&prefix=100")
    own = address.replace("prefix=100", f"prefix={uuid.uuid4().int % 2**31}")
    return Case(lambda: open_store(own), TOPICS, groups=False)


@pytest.fixture
def hbase_metrics_case(hbase_shared: Callable[[str], str], happy: Any) -> Case:
    address = emptied(happy, hbase_shared("cdap-metrics"))
    return Case(lambda: open_store(address), TOPICS, groups=False)


class NoRecords:
    """A log that has no record at any offset."""

    def at(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, None]:
        return dict.fromkeys(places)

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def hbase_flowlet_case(hbase: HBase, hbase_shared: Callable[[str], str], happy: Any) -> Case:
    from reconciler.layouts import cdap
    from reconciler.stores.hbase_beside import BesideStore
    from reconciler.stores.hbase_cdap import Flowlet
    from reconciler.stores.hbase_table import Door, HBaseTable

    address = emptied(happy, hbase_shared("cdap-flowlet&id_of=key"))
    host, _, port = hbase.address.partition(":")
    name = address.partition("?")[0].rpartition("/")[2]

    def opened() -> OffsetStore:
        return BesideStore(HBaseTable(Door(host, int(port)), name, {cdap.FAMILY: {}}), Flowlet(NoRecords()), address)

    return Case(opened, TOPICS, groups=False)
