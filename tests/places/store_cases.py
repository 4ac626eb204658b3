"""The stores under test and their abilities, for the behaviour suite and the tests of pairs."""

import functools
import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.places.registry import open_store
from reconciler.ports import Change, OffsetStore, TopicPartition
from tests.waiting import LIMIT_S

PATIENCE_S = 60.0
"""For a request to a broker of a busy machine."""
NOW = 1_700_000_000_000

_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """One store: how to open it again, the topics that it can hold, and guards for what only some stores can do."""

    open: Callable[[], OffsetStore]
    topics: tuple[str, str]
    real_compare_and_set: bool = True
    any_topic_name: bool = True
    sentinels: bool = True
    groups: bool = True
    rows_apart: bool = True
    """A row's version does not change with another row."""
    has_stays: bool = False
    """A row has room for the stay of its job."""
    dates_rows: bool = True
    """A row has the time that its writer gives it."""
    whole_anchors: bool = True
    """A store that keeps anchors keeps any, and not only what its own programs keep."""
    may_all_lose: bool = False
    """Of two writers at once, both may give up."""
    versions_recur: bool = False
    """A row that is written back to what it was has its old version."""

    def key(self, partition: int = 0, topic: int = 0) -> TopicPartition:
        return TopicPartition(self.topics[topic], partition)

    @staticmethod
    def group(prefix: str = "st-group") -> str:
        return f"{prefix}-{uuid.uuid4().hex[:8]}-{next(_numbers)}"


def sqlite_case(directory) -> Case:
    return Case(lambda: open_store(f"sqlite:///{directory}/offsets.db"), ("events", "a.events"), has_stays=True)


def memory_case() -> Case:
    name = uuid.uuid4().hex
    return Case(lambda: open_store(f"memory:{name}"), ("events", "a.events"), has_stays=True)


@functools.cache
def topics_of_groups(bootstrap: str) -> tuple[str, str]:
    """Two topics for the whole run: each test commits for groups of its own."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient, NewTopic
    from tenacity import retry, stop_after_delay, wait_fixed

    topics = (f"st-events-{uuid.uuid4().hex}", f"st-a.events-{uuid.uuid4().hex}")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, 4, 1) for topic in topics]).values():
        created.result()

    # The broker that answers next may not have heard of them yet.
    @retry(stop=stop_after_delay(LIMIT_S), wait=wait_fixed(0.1))
    def known() -> None:
        for described in admin.describe_topics(TopicCollection(list(topics))).values():
            described.result()

    known()
    return topics


def kafka_case(bootstrap: str) -> Case:
    return Case(
        lambda: open_store("kafka-group:", kafka_client={"bootstrap.servers": bootstrap}, timeout_s=PATIENCE_S),
        topics_of_groups(bootstrap),
        real_compare_and_set=False,
        versions_recur=True,
        any_topic_name=False,
        sentinels=False,
    )


def of_fixture(name: str) -> Callable[[pytest.FixtureRequest, Path], Case]:
    """The case of a fixture, in a module ``fixtures`` below ``tests/places``."""
    return lambda request, _: request.getfixturevalue(f"{name}_case")


HERE: dict[str, Callable[[pytest.FixtureRequest, Path], Case]] = {
    "memory": lambda _, __: memory_case(),
    "sqlite": lambda _, folder: sqlite_case(folder),
    "files_local": of_fixture("files_local"),
    "files_memory": of_fixture("files_memory"),
}
"""The stores of the behaviour suite that need no server, by names that begin with their scheme."""
_FIXTURES = (
    *("zookeeper_consumers", "zookeeper_single", "postgresql_own", "postgresql_mapped", "postgresql_grouped"),
    *("mysql_mapped", "mysql_grouped"),
    *("hbase_cloudera", "hbase_logsaver", "hbase_metrics", "hbase_flowlet", "files_hdfs"),
    *("files_s3", "files_gs", "files_abfs"),
)
ON_SERVERS: dict[str, Callable[[pytest.FixtureRequest, Path], Case]] = {
    "kafka-group": lambda request, _: kafka_case(request.getfixturevalue("clusters").destination.bootstrap),
    **{name: of_fixture(name) for name in _FIXTURES},
}
"""Those that need one."""


def put(store: OffsetStore, group: str, rows: dict, *, now_ms: int = NOW, reason: str = "test"):
    """Write rows regardless of their versions; returns the result."""
    versions = {row.key: row.version for row in (store.read(group) if exists(store, group) else [])}
    changes = [Change(key, versions.get(key), stored) for key, stored in rows.items()]
    return store.write(group, changes, reason=reason, now_ms=now_ms)


def exists(store: OffsetStore, group: str) -> bool:
    """False for a store that cannot be read yet, because its first write creates it."""
    from reconciler.core.errors import Refused

    try:
        store.read(group)
    except Refused:
        return False
    return True
