"""PostgreSQL addresses: which parameters are this product's, and which libpq's. Nothing is opened here.

    postgresql://[USER[:PASSWORD]@][HOST[:PORT],…][/DATABASE][?PARAMETERS]

Everything but this product's own parameters goes to libpq unchanged, with its environment variables, password file and
service file. No libpq parameter has one of our names; a parameter unknown to both is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from psycopg import ProgrammingError, conninfo, pq

from reconciler.places import common
from reconciler.places.mapped_table import TABLE_PARAMETERS, MappedTable, table_in
from reconciler.places.parameters import ENCODED, shown_name, wrong_address

EXAMPLE = "postgresql://host/db, or with a table of your own postgresql://host/db?table=T&topic=C&partition=C&offset=C"
_wrong = partial(wrong_address, "A store's address postgresql:…", EXAMPLE)
OWN = (*TABLE_PARAMETERS, "timeout")
TIMEOUT_S = 5.0
"""How long connecting, each statement, and each wait for a lock may take."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address taken apart: ``libpq`` is the connection string, with its secrets; ``place`` names it without."""

    libpq: str
    place: str
    timeout_s: float
    schema: str | None = None
    columns: MappedTable | None = None


def parse(address: str) -> Address:
    """Take an address apart. Raises ConfigError, without secrets, for anything that this product and libpq reject."""
    rest = address.partition(":")[2]
    if not rest.startswith("//"):
        raise _wrong("it does not begin with postgresql://")
    base, _, query = rest.partition("?")
    authority, _, path = base[2:].partition("/")
    if "@" in path or authority.count("@") > 1:  # libpq would take the end of a password for a host or a database
        raise _wrong(f"it has an @ behind its login (in user, password and database, {ENCODED})")
    own, foreign = _split(query)
    uri = f"postgresql:{base}" + (f"?{'&'.join(foreign)}" if foreign else "")
    try:
        known = conninfo.conninfo_to_dict(uri)
    except (ProgrammingError, UnicodeError):  # psycopg reads what is percent-encoded as UTF-8
        raise _wrong(f"libpq cannot take it apart (in a login, {ENCODED})") from None
    hosts = authority.rpartition("@")[2]
    place = f"PostgreSQL at {(known.get('host') and hosts) or hosts or 'the default host'}"
    if database := known.get("dbname"):
        place += f", database {database!s}"
    schema, columns = table_in(own, _wrong)
    seconds = TIMEOUT_S if (text := own.get("timeout")) is None else common.timeout_s(text)
    if seconds is None:
        raise _wrong(f"timeout={text!a} is not a time in seconds, above 0 and up to 600")
    return Address(uri, place, seconds, schema, columns)


def _split(query: str) -> tuple[dict[str, str], list[str]]:
    libpq = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    own: dict[str, str] = {}
    foreign = []
    for part in query.split("&") if query else []:
        name, equals, value = part.partition("=")
        name = unquote(name)
        if name in OWN:
            if name in own:
                raise _wrong(f"{name} is given twice")
            own[name] = unquote(value)
            if not equals or not own[name]:
                raise _wrong(f"{name} is empty")
        elif name in libpq or name == "ssl":  # which libpq takes for sslmode, as JDBC's addresses have it
            foreign.append(part)
        else:
            raise _wrong(
                f"{shown_name(name, value)} is neither one of its parameters ({', '.join(OWN)}) nor one of libpq's"
            )
    return own, foreign
