"""PostgreSQL's errors as this product's sentences. Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html"""

from __future__ import annotations

import re
from typing import NoReturn

import psycopg

from reconciler.core.errors import Away, NotNow, Refused, Unreachable


class Again(NotNow):
    """Nothing was written, and the same transaction may succeed at once."""


class NoAnswer(psycopg.OperationalError):  # type: ignore[misc]
    """The server did not answer in time, and the connection was cut."""


_CREDENTIALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist"
    r"|is not permitted to log in|certificate|permission denied for database"
)
_UNRESOLVED = re.compile(r"could not translate host name|failed to resolve host|Name or service not known|getaddrinfo")
_NO_DATABASE = re.compile(r"database .* does not exist")

_BUSY_CODES = {"40001", "40P01"}
_UNREACHABLE_CODES = re.compile(r"08...|57P0.|53...|58...")
_SENTENCES = {
    "57014": "did not finish a statement within {timeout:g} s",
    "55P03": "could not get a lock within {timeout:g} s: another transaction holds the rows or the table",
}
_REFUSALS = {
    "42501": (
        "does not allow it",
        "Have it granted to the user of the store's address (GRANT … ON …), or use another one.",
    ),
    "25006": (
        "is read-only",
        "A standby cannot be written: name the primary, or several hosts and target_session_attrs=read-write.",
    ),
}


def raise_explained(err: psycopg.Error, place: str, timeout_s: float) -> NoReturn:
    """Raise this product's error for one before COMMIT: nothing was written. An error that only a bug causes stays."""
    if err.sqlstate is not None:
        raise _by_code(err, err.sqlstate, place, timeout_s) from err
    if isinstance(err, psycopg.OperationalError):
        raise Unreachable(
            f"{place} did not answer ({server_message(err)}); nothing was written.",
            hint="Check that the server runs and can be reached, then run this again.",
        ) from err
    if isinstance(err, psycopg.DataError):
        raise Refused(
            f"{place} cannot hold this: {server_message(err)}; nothing was written.",
            hint="Choose another store for it.",
        ) from err
    raise err


def _by_code(err: psycopg.Error, code: str, place: str, timeout_s: float) -> Unreachable:
    message = server_message(err)
    if code in _BUSY_CODES:
        return Again(
            f"{place}: other transactions were in the way ({message}); nothing was written.", hint="Run this again."
        )
    if code in _SENTENCES:
        return NotNow(
            f"{place} {_SENTENCES[code].format(timeout=timeout_s)}; nothing was written.",
            hint="See in pg_stat_activity what holds it up, then run this again.",
        )
    if _UNREACHABLE_CODES.fullmatch(code):
        return Unreachable(f"{place} gave up ({message}); nothing was written.", hint="See the server's log for why.")
    if code in _REFUSALS:
        what, hint = _REFUSALS[code]
        return Refused(f"{place} {what} ({message}); nothing was written.", hint=hint)
    if code == "23502":
        column = err.diag.column_name or "?"
        return Refused(
            f'{place} takes no new row without a value for the column "{column}", which the store\'s address does not'
            " name; nothing was written.",
            hint="Give the column a default, or insert rows for the destination's topic yourself (any offset will do),"
            " then make a new plan.",
        )
    constraint = err.diag.constraint_name
    return Refused(
        f"{place} refused it: {message} (SQLSTATE {code}); nothing was written.",
        hint=f'See the constraint "{constraint}" of the table.' if constraint else "See the server's log for more.",
    )


def explain_connecting(err: psycopg.Error, place: str) -> Unreachable:
    """The error to raise for a connection that failed. libpq has no code for that, only a message."""
    message = server_message(err)
    if _NO_DATABASE.search(message):
        return Refused(
            f"{place} does not exist ({message}).", hint="Correct the store's address, or create it with createdb."
        )
    if _CREDENTIALS.search(message):
        return Refused(
            f"{place} does not let this user in ({message}).",
            hint="Correct user and password (in the address, PGPASSWORD or ~/.pgpass), or the server's pg_hba.conf.",
        )
    if _UNRESOLVED.search(message):
        return Refused(
            f"{place} could not be reached ({message}); nothing was written.",
            hint="Correct the host of the store's address, or this machine's name resolution (DNS).",
        )
    return Away(
        f"{place} could not be reached ({message}); nothing was written.",
        hint="Check host and port of the store's address, and that the server runs.",
    )


def rolled_back(err: psycopg.Error) -> bool:
    """True if an error in answer to COMMIT proves that nothing was committed.

    A deferred constraint or trigger refuses with a code of any class (23…, P0001, the trigger's own), and the server
    goes on. Codes of a server or a pooler that gave up prove nothing, and the shutdown codes (57P…) least of all: the
    server may have committed and was only waiting for its standby.
    """
    code = err.sqlstate or ""
    if err.diag.severity_nonlocalized != "ERROR" or _UNREACHABLE_CODES.fullmatch(code):
        return False
    return code != "40003" and not code.startswith("XX")


def server_message(err: psycopg.Error) -> str:
    """The message of the server or of libpq, as one line without a full stop."""
    text = err.diag.message_primary or str(err)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(err).__name__]
    # One line for each host, in the order they were tried.
    message = lines[0] if len(lines) < 3 else "; ".join(lines[:4])
    message = re.sub(r"^(connection failed: )?(connection to server .*? failed: )?(FATAL:\s*)?", "", message)
    return message.rstrip(".")
