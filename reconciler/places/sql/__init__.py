"""Offsets in a job's existing table of any SQL database, through SQLAlchemy Core: MySQL and MariaDB; others untried.

    mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE?table=T&topic=C&partition=C&offset=C[&MORE]

``oracle://``, with a service's name as the database, and ``mssql://`` take the same words. Nothing is contacted before
the first read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from reconciler.config.addresses import Parts, has_port, scheme_of, split, without_secrets
from reconciler.core.errors import ConfigError
from reconciler.places.mapped_table import TABLE_PARAMETERS, table_in
from reconciler.places.parameters import ENCODED, Parameters, wrong_address
from reconciler.ports import OffsetStore

EXAMPLE = "mysql://USER@HOST/DATABASE?table=T&topic=C&partition=C&offset=C"
TIMEOUT_S = 5.0
"""How long connecting, each statement, and each wait for a lock may take."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of server: its name, SQLAlchemy's name with the driver, and the parameters that go to the driver.

    The other fields are the server's numbers of errors. ``busy``: the transaction lost a race, and may be repeated at
    once. ``locked``: another one holds the rows. ``login``: the user may not enter.
    """

    system: str
    driver: str
    passed_on: tuple[str, ...] = ()
    busy: Collection[int] = ()
    locked: Collection[int] = ()
    login: Collection[int] = ()


_MYSQL = Dialect(
    "MySQL",
    "mysql+pymysql",
    ("ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname"),
    busy=(1020, 1213),
    locked=(1205,),
    login=(1044, 1045, 1049, 1698),
)
DIALECTS = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "oracle": Dialect("Oracle", "oracle+oracledb", busy=(60, 8177), locked=(54, 30006), login=(1017, 1045, 12514)),
    "mssql": Dialect("SQL Server", "mssql+pymssql", busy=(1205,), locked=(1222,), login=(4060, 18456)),
}


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """The store of ``mysql://…``, ``mariadb://…``, ``oracle://…`` or ``mssql://…``, which names an existing table.

    Raises ConfigError, without secrets, for an address that is not whole, and a driver that is not installed.
    """
    from sqlalchemy import URL

    from reconciler.places.sql.database import Database
    from reconciler.places.sql.table import SqlTable

    scheme = scheme_of(address) or ""
    dialect = DIALECTS[scheme]
    wrong = partial(wrong_address, f"A store's address {scheme}:…", EXAMPLE)
    parts = split(address)
    if not address[len(scheme) :].startswith("://"):
        raise wrong(f"it does not begin with {scheme}://")
    if "@" in parts.path or "@" in parts.user or parts.fragment:
        raise wrong(f"it has an @ or a # behind its login (in user, password and database, {ENCODED})")
    host, port = _host(parts, wrong)
    database = unquote(parts.path[1:])
    if not database:
        raise wrong("it names no database")
    parameters = Parameters(parts.query, wrong)
    own = {name: text for name in TABLE_PARAMETERS if (text := parameters.given_text(name)) is not None}
    more = {name: text for name in dialect.passed_on if (text := parameters.given_text(name)) is not None}
    if more.get("ssl_check_hostname", "true") not in ("true", "false"):
        raise wrong("ssl_check_hostname= is neither true nor false")
    timeout_s = parameters.timeout_s(TIMEOUT_S)
    parameters.check_all_known()
    schema, columns = table_in(own, wrong)
    if columns is None:
        raise wrong("it names no table")
    user, colon, password = (unquote(part) for part in parts.user.partition(":"))
    where = (None, {"service_name": database}) if scheme == "oracle" else (database, more)
    login = (user or None, password if colon else None)
    url = URL.create(dialect.driver, *login, host, port, *where)
    place = f"{dialect.system} at {parts.hosts}, database {database}"
    return SqlTable(Database(url, dialect, place, timeout_s), schema, columns, without_secrets(address))


def _host(parts: Parts, wrong: Callable[[str], ConfigError]) -> tuple[str, int | None]:
    host, _, port = parts.hosts.rpartition(":") if has_port(parts.hosts) else (parts.hosts, "", "")
    if not host or "," in host or (port and not (port.isdecimal() and int(port) < 2**16)):
        raise wrong("it does not name one host, and perhaps its port")
    return host.strip("[]"), int(port) if port else None
