"""PostgreSQL addresses: which parameters belong to libpq, errors for unknown ones, and that no secret is shown."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.places.registry import open_store
from tests.places.postgresql.fixtures import MAPPED


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("tabel=t", "'tabel' is neither one of its parameters"),
        ("layout=own", "'layout' is neither one of its parameters"),
        ("table=t&topic=a&partition=b", "offset is missing"),
        ("topic=a", "topic goes with table only"),
        ("newest_by=at", "newest_by goes with table only"),
        ("table=t&topic=a&partition=b&offset=c&number=end", "number='end' is not one of next, last, first"),
        ("table=t&topic=a&partition=b&offset=c&written_by=me", "written_by='me' is not job"),
        ("table=t&topic=a&topic=b", "topic is given twice"),
        ("table=&topic=a", "table is empty"),
        ("timeout=0", "timeout='0' is not a time in seconds"),
        ("table=t&topic=a&partition=a&offset=c", "two of its columns are the same"),
        ("table=t&topic=a&partition=b&offset=c&group=d&of_group=g", "of_group says whose rows they are"),
    ],
)
def test_a_wrong_address_says_what_is_wrong_and_how_a_right_one_looks(parameters, why):
    with pytest.raises(ConfigError) as caught:
        open_store(f"postgresql://u:pw@h/db?{parameters}")
    assert why in caught.value.message
    assert "postgresql://host/db?table=T&topic=C&partition=C&offset=C" in caught.value.hint
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("address", ["postgresql:h/db", "postgresql://u:p%w@h/db"])
def test_an_address_that_libpq_rejects_is_a_configuration_error(address):
    with pytest.raises(ConfigError, match="is wrong"):
        open_store(address)


@pytest.mark.parametrize(
    "login", ["u:Ali@Baba", "u:Ali/Baba", "u:12/Baba", "u:Ali?Baba", "u:Ali?Baba=Baba", "u:Ali?timeout=2&Baba=x"]
)
def test_a_password_that_is_not_percent_encoded_is_refused_without_a_part_of_it(login):
    # libpq would take the rest for a host or a database, and name it in its errors.
    with pytest.raises(ConfigError, match=r"login.*write .* as %2F %3F %40") as caught:
        open_store(f"postgresql://{login}@h/db")
    assert "Ali" not in str(caught.value)
    assert "Baba" not in str(caught.value)


def test_libpqs_parameters_go_to_libpq_and_secrets_are_not_shown():
    address = f"postgres://u:pw@h1:5433,h2/db?sslmode=require&{MAPPED}&password=pw2&application_name=x%20y"
    store = open_store(address)
    assert store._database._libpq == (
        "postgresql://u:pw@h1:5433,h2/db?sslmode=require&password=pw2&application_name=x%20y"
    )
    assert "pw" not in store.address
    assert store._database.place == "PostgreSQL at h1:5433,h2, database db"


def test_capabilities_are_known_without_a_server():
    own = open_store("postgresql://no-such-host/db").capabilities
    assert (own.keeps_anchors, own.atomic_batches) == (True, True)
    mapped = open_store(f"postgresql://no-such-host/db?{MAPPED}").capabilities
    assert (mapped.keeps_anchors, mapped.atomic_batches) == (False, True)
