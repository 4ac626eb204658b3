"""The table of places where jobs keep their offsets, one row a scheme: what an address alone says of its store.

Messages, the comparison of addresses, the import rules and the tests are derived from this table. It opens nothing and
imports no client; ``places.registry`` opens a store by its row. CONTRIBUTING.md has the steps to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from reconciler.ports import Traits

NO_TRAITS = Traits()
Given = Mapping[str, str]
"""The parameters of an address, by name."""


class Behind(Enum):
    """The rest of an address, after its scheme."""

    NOTHING = auto()
    NAME = auto()
    FILE = auto()
    """Slashes and a path on this machine, as SQLAlchemy writes it."""
    FOLDER = auto()
    """A path or a URL."""
    SERVERS = auto()
    """Two slashes, hosts and a path."""


def _always(_: Given) -> bool:
    return True


def _never(_: Given) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """One kind of store. ``module`` has ``open_address``; ``client`` is its package, ``extra`` the one to install.

    ``parameters`` hold no secret: messages show their values. ``port``: of servers whose address names none.
    ``by_job_with``: the parameters with which only the job writes to the store. ``has_groups``: each group has rows of
    its own, with these parameters. ``lacks_number``: the numbers are another program's, and need ``number=``.
    """

    module: str
    example: str
    behind: Behind
    client: str | None = None
    extra: str | None = None
    port: str = ""
    parameters: str = ""
    traits: Traits = NO_TRAITS
    by_job_with: frozenset[str] = frozenset()
    has_groups: Callable[[Given], bool] = _always
    lacks_number: Callable[[Given], bool] = _never

    @property
    def room(self) -> str:
        """The store's package, or its module."""
        return ".".join(self.module.split(".")[:3])


def _names_a_group(given: Given) -> bool:
    return "group" in given or any("{group}" in given.get(name, "") for name in ("property", "app_id"))


STORES: dict[str, StoreSpec] = {
    "sqlite": StoreSpec(module="reconciler.places.sqlite.store", example="sqlite:///offsets.db", behind=Behind.FILE),
    "kafka-group": StoreSpec(
        module="reconciler.places.kafka.group",
        example="kafka-group:",
        behind=Behind.NOTHING,
        client="confluent_kafka",
        traits=Traits(holds_commits=True),
    ),
    "hbase": StoreSpec(
        module="reconciler.places.hbase.address",
        example="hbase://HOST:PORT/TABLE?layout=cloudera",
        behind=Behind.SERVERS,
        client="happybase",
        port="9090",
        parameters="layout prefix column protocol transport id_of key_of find",
        has_groups=lambda given: not given.get("layout", "").startswith("cdap-"),
        lacks_number=lambda given: given.get("layout") == "cloudera",
    ),
    "zookeeper": StoreSpec(
        module="reconciler.places.zookeeper.store",
        example="zookeeper://HOSTS/CHROOT?layout=consumers",
        behind=Behind.SERVERS,
        client="kazoo",
        extra="zookeeper",
        port="2181",
        parameters="layout",
        has_groups=lambda given: given.get("layout") != "single",
        lacks_number=_always,
    ),
    "postgresql": StoreSpec(
        module="reconciler.places.postgresql",
        example="postgresql://HOST/DATABASE",
        behind=Behind.SERVERS,
        client="psycopg",
        extra="postgresql",
        port="5432",
        parameters="schema table newest_by written_by time id user host hostaddr port dbname ssl sslmode sslrootcert "
        "connect_timeout application_name target_session_attrs load_balance_hosts gssencmode channel_binding",
        by_job_with=frozenset({"newest_by", "written_by"}),
        has_groups=lambda given: "table" not in given or "group" in given,
        lacks_number=lambda given: "table" in given,
    ),
    "mysql": StoreSpec(
        module="reconciler.places.sql",
        example="mysql://HOST/DATABASE?table=T&topic=C&partition=C&offset=C",
        behind=Behind.SERVERS,
        client="sqlalchemy",
        extra="mysql",
        port="3306",
        parameters="ssl_ca ssl_cert ssl_key ssl_check_hostname",
        by_job_with=frozenset({"newest_by", "written_by"}),
        has_groups=lambda given: "group" in given,
        lacks_number=_always,
    ),
    "checkpoint": StoreSpec(
        module="reconciler.places.checkpoint.show",
        example="checkpoint:PATH",
        behind=Behind.FOLDER,
        client="fsspec",
        extra="files",
        parameters="position",
        traits=Traits(corrected_in_copy=True),
        has_groups=_never,
    ),
    "files": StoreSpec(
        module="reconciler.places.files",
        example="files:PATH",
        behind=Behind.FOLDER,
        client="fsspec",
        extra="files",
        parameters="keep",
    ),
    "delta": StoreSpec(
        module="reconciler.places.delta.store",
        example="delta:PATH?layout=commit&number=next",
        behind=Behind.FOLDER,
        client="deltalake",
        extra="delta",
        parameters="layout walk app_id field lists topic_name partitions",
        traits=Traits(corrected_by_job=True),
        has_groups=_names_a_group,
    ),
    "iceberg": StoreSpec(
        module="reconciler.places.iceberg.store",
        example="iceberg:CATALOG/NAMESPACE.TABLE?layout=summary&number=next&property=NAME",
        behind=Behind.NAME,
        client="pyiceberg",
        extra="iceberg",
        parameters="layout walk property field lists branch topic_name",
        traits=Traits(corrected_by_job=True),
        has_groups=_names_a_group,
    ),
    "python": StoreSpec(
        module="reconciler.places.python",
        example="python:package.module:function",
        behind=Behind.NAME,
        traits=Traits(corrected_by_job=True),
    ),
    "memory": StoreSpec(module="reconciler.places.memory", example="memory:NAME", behind=Behind.NAME),
}
ALIASES = {"postgres": "postgresql", "mariadb": "mysql", "oracle": "mysql", "mssql": "mysql"}
"""Other schemes of a row. The last two are other servers, which ``places.sql`` distinguishes."""


def spec_of(scheme: str | None) -> StoreSpec | None:
    """The row of a scheme, or of its other name; None if there is none."""
    return STORES.get(ALIASES.get(scheme or "", scheme or ""))
