"""A PostgreSQL server for the whole run, databases in it, a plain client, and the stores for the behaviour suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.places.registry import open_store
from tests.places.servers import in_own_folder
from tests.places.store_cases import Case

if TYPE_CHECKING:
    from tests.demo.lab.servers.postgresql import PostgresServer

MAPPED = "table=txn_offsets&topic=topic&partition=part&offset=off"
PATIENT = "timeout=60"
"""For stores whose calls should not time out: a busy machine may take longer than the product's default."""
GROUPED = "table=job_offsets&topic=topic&partition=part&offset=off&group=grp"
TABLES = (
    "CREATE TABLE txn_offsets (topic text NOT NULL, part integer NOT NULL, off bigint NOT NULL)",
    "CREATE TABLE job_offsets (grp text, topic text, part integer, off bigint, PRIMARY KEY (grp, topic, part))",
)


def a_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server in a folder that the server's user can enter, unlike pytest's."""
    from tests.demo.lab.servers.postgresql import PostgresServer

    yield from in_own_folder(request, PostgresServer)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The run's server. Tests share it: use ``database``."""
    yield from a_server(request)


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """An address whose search path is this test's own empty schema. Append more parameters with ``&``."""
    import psycopg

    name = f"st_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres.url()}?options=-csearch_path%3D{name}"


@pytest.fixture
def psql(database: str) -> Iterator[Any]:
    """A plain psycopg connection to the test's database, as any other program has it."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgresql_own_case(database: str) -> Case:
    address = f"{database}&{PATIENT}"
    store = open_store(address)
    store.create()
    store.close()
    return Case(lambda: open_store(address), ("events", "a.events"), has_stays=True)


def mapped_case(psql: Any, address: str, **guards: bool) -> Case:
    """An existing table."""
    for statement in TABLES:
        psql.execute(statement)
    return Case(lambda: open_store(address), ("events", "a.events"), dates_rows=False, **guards)


@pytest.fixture
def postgresql_mapped_case(psql: Any, database: str) -> Case:
    return mapped_case(psql, f"{database}&{MAPPED}&{PATIENT}", groups=False)


@pytest.fixture
def postgresql_grouped_case(psql: Any, database: str) -> Case:
    return mapped_case(psql, f"{database}&{GROUPED}&{PATIENT}")
