"""A MariaDB server for the whole run, databases in it, a plain client, and the stores for the behaviour suite."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.places.registry import open_store
from tests.places.servers import cannot, in_own_folder
from tests.places.store_cases import Case

if TYPE_CHECKING:
    from tests.demo.lab.servers.mariadb import MariaServer

MAPPED = "table=txn_offsets&topic=topic&partition=part&offset=off"
GROUPED = "table=job_offsets&topic=topic&partition=part&offset=off&group=grp"
PATIENT = "timeout=60"
"""For stores whose calls should not time out: a busy machine may take longer than the product's default."""
TABLES = (
    "CREATE TABLE txn_offsets (topic varchar(500) NOT NULL, part integer NOT NULL, off bigint NOT NULL)",
    "CREATE TABLE job_offsets (grp varchar(200), topic varchar(500), part integer, off bigint)",
)


def a_maria_server(request: pytest.FixtureRequest) -> Iterator[MariaServer]:
    from tests.demo.lab.servers.mariadb import MariaServer

    for package in ("sqlalchemy", "pymysql"):
        if importlib.util.find_spec(package) is None:
            cannot(request, f"the Python package {package} is not installed (the extra mysql)")
    yield from in_own_folder(request, MariaServer)


@pytest.fixture(scope="session")
def maria(request: pytest.FixtureRequest) -> Iterator[MariaServer]:
    """The run's server. Tests share it: use ``results``."""
    yield from a_maria_server(request)


@pytest.fixture
def results(maria: MariaServer) -> str:
    """The address of this test's own empty database."""
    name = f"st_{uuid.uuid4().hex[:12]}"
    with maria.connect() as connection:
        connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return maria.url(name)


@pytest.fixture
def sql(maria: MariaServer, results: str) -> Iterator[Any]:
    """Run a statement in the test's database, as any other program does; returns its rows."""
    with maria.connect(results.rpartition("/")[2]) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)  # without values, a per cent sign is one
                return list(cursor.fetchall())

        yield run


def case_of(sql: Any, address: str, **guards: bool) -> Case:
    for statement in TABLES:
        sql(statement)
    topics = ("events", "a.events")
    return Case(lambda: open_store(address), topics, dates_rows=False, versions_recur=True, **guards)


@pytest.fixture
def mysql_mapped_case(sql: Any, results: str) -> Case:
    return case_of(sql, f"{results}?{MAPPED}&{PATIENT}", groups=False)


@pytest.fixture
def mysql_grouped_case(sql: Any, results: str) -> Case:
    return case_of(sql, f"{results}?{GROUPED}&{PATIENT}")
