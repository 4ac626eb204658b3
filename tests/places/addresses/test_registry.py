"""Opening stores by address: valid addresses, and the errors for the rest."""

import subprocess
import sys
from dataclasses import replace

import pytest

from reconciler.config.addresses import without_secrets
from reconciler.config.stores import STORES
from reconciler.core.errors import ConfigError
from reconciler.places import registry
from reconciler.places.registry import open_store
from reconciler.ports import Traits


@pytest.mark.parametrize("address", ["redis://localhost", "localhost:9092", "sqlit:///x", "mongodb+srv://u:pw@h"])
def test_the_error_for_an_unknown_scheme_lists_the_known_ones(address):
    with pytest.raises(ConfigError, match="There is no store with the scheme") as caught:
        open_store(address)
    assert all(scheme.example in str(caught.value) for scheme in STORES.values())
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("address", ["", "offsets.db", ":x", "/tmp/x:y"])
def test_an_address_without_scheme_is_refused(address):
    with pytest.raises(ConfigError, match="has no scheme"):
        open_store(address)


@pytest.mark.parametrize(
    "address", ["sqlite:x.db", "sqlite://x.db", "sqlite:///", "sqlite:///:memory:", "sqlite:////d/"]
)
def test_a_wrong_sqlite_address_is_refused(address):
    with pytest.raises(ConfigError, match="not the address of a SQLite store"):
        open_store(address)


@pytest.mark.parametrize("address", ["memory:?number=next", "memory:a?b", "memory:a#b"])
def test_a_memory_address_takes_no_parameters(address):
    with pytest.raises(ConfigError, match="it takes no parameters, and no"):
        open_store(address)


NUMBERS = (
    "zookeeper://h/kafka?layout=consumers",
    "zookeeper://h/kafka?layout=single",
    "hbase://h/t?layout=cloudera",
    "postgresql://h/db?table=t&topic=t&partition=p&offset=o",
    "delta:/t?layout=commit",
    "iceberg:lab/db.t?layout=columns&topic=t&partition=p&offset=o",
)


@pytest.mark.parametrize("address", NUMBERS)
def test_every_place_with_another_programs_numbers_takes_each_meaning(address):
    for meaning in ("next", "last", "first"):
        open_store(f"{address}&number={meaning}").close()
    with pytest.raises(ConfigError, match="number='end' is not one of next, last, first"):
        open_store(f"{address}&number=end")


def test_a_wrong_memory_address_is_refused():
    with pytest.raises(ConfigError, match="not the address of a memory store"):
        open_store("memory://x")


def test_the_group_store_takes_its_cluster_from_the_destination():
    with pytest.raises(ConfigError, match="needs the destination's client settings"):
        open_store("kafka-group:")
    with pytest.raises(ConfigError, match="needs the destination's client settings"):
        open_store("kafka-group:", kafka_client={"client.id": "x"})
    with pytest.raises(ConfigError, match="nothing behind it"):
        open_store("kafka-group:clicks", kafka_client={"bootstrap.servers": "localhost:1"})
    assert open_store("kafka-group:", kafka_client={"bootstrap.servers": "x"}).address == "kafka-group:"


def test_a_missing_client_names_what_to_install(monkeypatch):
    memory = STORES["memory"]
    monkeypatch.setitem(STORES, "some", replace(memory, client="no_such_client", extra="some"))
    with pytest.raises(ConfigError) as caught:
        open_store("some:")
    assert "no_such_client, which is not installed" in caught.value.message
    assert caught.value.hint == "Run: pip install 'failover-offset-reconciler[some]'"


def test_stores_of_one_name_share_their_rows():
    one, two, other = open_store("memory:shared"), open_store("MEMORY:shared"), open_store("memory:")
    from reconciler.core.anchors import StoredOffset
    from reconciler.ports import TopicPartition
    from tests.places.store_cases import put

    put(one, "g", {TopicPartition("t", 0): StoredOffset(1)})
    assert two.read("g") == one.read("g") != []
    assert other.read("g") == []


def test_opening_loads_only_the_modules_of_that_store():
    program = (
        "import sys; from reconciler.places.registry import open_store; open_store('memory:');"
        "print(sorted({'sqlite3', 'confluent_kafka', 'tenacity', 'pyspark'} & set(sys.modules)))"
        ";open_store('kafka-group:', kafka_client={'bootstrap.servers': 'x'}); print('confluent_kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:////a/b@c.db", "sqlite:////a/b@c.db"),
        ("kafka-group:", "kafka-group:"),
        ("postgresql://u:pw@h:5432/db?sslmode=require", "postgresql://h:5432/db?sslmode=require"),
        ("postgresql://h/db?user=u&password=pw", "postgresql://h/db?user=u"),
        ("hbase://h1:9090/t?layout=cloudera&token=pw", "hbase://h1:9090/t?layout=cloudera"),
        ("zookeeper://u:p@w@h1:1,h2:2/chroot", "zookeeper://h1:1,h2:2/chroot"),
        ("zookeeper://u:pw@h1,[::1]:2/chroot?layout=single", "zookeeper://h1,[::1]:2/chroot?layout=single"),
        ("postgresql://[u:pw@h", "postgresql://h"),
        ("postgresql://u:p/pw@h/db", "postgresql://…"),
        ("postgresql://u:12/pw@h/db", "postgresql://…"),
        ("postgresql://u:p@w/pw@h/db", "postgresql://…"),
        ("zookeeper://u:12/pw@h:1,h2:2/a", "zookeeper://…"),
        ("postgresql://u:p?pw@h/db", "postgresql://…"),
        ("postgresql://u:p#pw@h/db", "postgresql://h/db"),
        ("zookeeper://u:1,2/pw@h:1,h2:2/a", "zookeeper://…"),
        ("zookeeper://h1:1,[::1]:2/a%40b", "zookeeper://h1:1,[::1]:2/a%40b"),
        ("files:webhdfs://u:pw@h:9870/a?walk=9", "files:webhdfs://h:9870/a?walk=9"),
        (
            "delta:s3://u:pw@b/t?layout=txn&app_id=a-{partition}&key=pw",
            "delta:s3://b/t?layout=txn&app_id=a-{partition}",
        ),
        ("iceberg:lab/db.t?number=next&property=x&token=pw", "iceberg:lab/db.t?number=next&property=x"),
        ("mssql://u:pw@h/db?table=t&password=pw", "mssql://h/db?table=t"),
        ("pw", "(no address)"),
        ("hbase://h:1/t?layout=cloudera#pw", "hbase://h:1/t?layout=cloudera#…"),
        ("hbase://h:1/t?layout=cloudera&foo=pw", "hbase://h:1/t?layout=cloudera&foo=…"),
        ("hbase://h:1/t?pw", "hbase://h:1/t"),
        ("zookeeper://h:pw/x?layout=single", "zookeeper://…"),
        ("zookeeper://h#pw/x", "zookeeper://h/x#…"),
        ("kafka-group:pw", "kafka-group:…"),
        ("kafka-group:?x=pw", "kafka-group:?x=…"),
        ("sqlite:///x.db#pw", "sqlite:///x.db#…"),
        ("postgresql://h/db?options=-cx=pw&sslmode=require", "postgresql://h/db?options=…&sslmode=require"),
    ],
)
def test_addresses_are_shown_without_secrets(address, shown):
    assert without_secrets(address) == shown
    assert "pw" not in without_secrets(address)


@pytest.mark.parametrize(
    "address",
    [
        "hbase://h/t?layout=cdap-metrics",
        "zookeeper://h/kafka?layout=single",
        "postgresql://h/db?table=t&topic=a&partition=b&offset=c",
        "delta:/srv/t?layout=commit&number=next",
        "iceberg:/srv/t?layout=summary&number=next&property=x",
    ],
)
def test_a_store_without_groups_may_be_reserved_for_one(address):
    store = open_store(f"{address}&of_group=clicks")
    for call in (lambda: store.read("g"), lambda: store.check_writable("g")):
        with pytest.raises(ConfigError, match="are those of group 'clicks', and group 'g' is asked for"):
            call()


@pytest.mark.parametrize("address", ["files:s3://u:p?pw@b/t", "files:s3://u:p?pw=x@b/t"])
def test_what_follows_a_bare_question_mark_in_a_password_is_not_shown(address):
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "traits"),
    [
        ("kafka-group:", Traits(holds_commits=True)),
        ("checkpoint:/srv/clicks", Traits(corrected_in_copy=True)),
        ("Checkpoint:/srv/clicks", Traits(corrected_in_copy=True)),
        ("checkpoint:/srv/clicks?position=end", Traits(corrected_in_copy=True)),
        ("sqlite:///offsets.db", Traits()),
        ("postgres://host/db", Traits()),
        ("postgresql://host/db?table=t&number=last", Traits()),
        ("postgresql://host/db?table=t&newest_by=at", Traits(corrected_by_job=True)),
        ("postgres://host/db?table=t&written_by=job", Traits(corrected_by_job=True)),
        ("mariadb://host/db?table=t&newest_by=at", Traits(corrected_by_job=True)),
        ("delta:/srv/clicks?layout=commit&number=next", Traits(corrected_by_job=True)),
        ("iceberg:lab/db.clicks", Traits(corrected_by_job=True)),
        ("unknown:checkpoint:", Traits()),
        ("", Traits()),
    ],
)
def test_the_traits_of_a_store_are_known_from_its_address(address, traits):
    assert registry.traits(address) == traits
