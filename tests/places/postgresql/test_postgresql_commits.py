"""What an answer to COMMIT proves, or none: on a connection that is not there."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from psycopg.pq import DiagnosticField, TransactionStatus

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.places.postgresql.connection import Database, raise_explained


class Connection:
    """Takes every statement; the answers to COMMIT are those given, then it succeeds."""

    def __init__(self, *answers: psycopg.Error) -> None:
        self.answers, self.closed, self.info, self.commits = list(answers), False, self, 0
        self.transaction_status = TransactionStatus.IDLE
        self._file = os.open(os.devnull, os.O_RDONLY)

    def fileno(self) -> int:
        return self._file

    def cursor(self) -> Connection:
        return self

    def execute(self, statement: Any, values: Any = ()) -> Connection:
        return self

    def fetchall(self) -> list[tuple[int]]:
        return [(1,)]

    def rollback(self) -> None: ...

    def commit(self) -> None:
        self.commits += 1
        if self.answers:
            raise self.answers.pop(0)

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        self.closed = True


def answer(severity: str, code: str) -> psycopg.Error:
    info = dict.fromkeys(DiagnosticField) | {
        DiagnosticField.SEVERITY_NONLOCALIZED: severity.encode(),
        DiagnosticField.SQLSTATE: code.encode(),
        DiagnosticField.MESSAGE_PRIMARY: b"not on a holiday",
    }
    return psycopg.DatabaseError("not on a holiday", info=info)


def outcome(monkeypatch: pytest.MonkeyPatch, *answers: psycopg.Error, only_reads: bool = False) -> tuple[Any, int]:
    """What a transaction returns or raises, and the number of its COMMITs."""
    connection = Connection(*answers)
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: connection)
    connection.isolation_level = None  # type: ignore[attr-defined]
    database = Database("postgresql://h/db", "PostgreSQL at h", timeout_s=2)
    try:
        return database.transaction(lambda db: db.one("SELECT 1"), only_reads=only_reads), connection.commits
    except ReconcilerError as error:
        return error, connection.commits
    finally:
        database.close()
        connection.close()


@pytest.mark.parametrize("code", ["P0001", "MY001", "23503", "22012", "42501", "57014"])
def test_a_commit_that_a_deferred_trigger_refuses_has_written_nothing(monkeypatch, code):
    error, _ = outcome(monkeypatch, answer("ERROR", code))
    assert isinstance(error, Unreachable)
    assert "nothing was written" in error.message
    assert isinstance(error, Refused) or code == "57014"


@pytest.mark.parametrize(("code", "of_server"), [("55P03", False), ("57014", False), ("53300", True), ("57P03", True)])
def test_what_holds_up_one_table_is_told_from_a_server_that_is_not_there(code, of_server):
    with pytest.raises(Unreachable) as raised:
        raise_explained(answer("ERROR", code), "PostgreSQL at h", 2)
    assert (raised.value.retryable, raised.value.of_server) == (True, of_server)


def test_a_commit_that_lost_a_race_is_tried_again(monkeypatch):
    assert outcome(monkeypatch, answer("ERROR", "40001")) == ((1,), 2)


@pytest.mark.parametrize(
    "given",
    [
        answer("FATAL", "57P01"),  # it may have committed, and only waited for its standby
        answer("ERROR", "08P01"),  # a pooler that lost the server
        answer("ERROR", "40003"),
        answer("PANIC", "XX000"),
        psycopg.OperationalError("server closed the connection unexpectedly"),
    ],
)
def test_any_other_end_of_a_commit_leaves_the_outcome_of_a_write_unknown_and_a_read_just_has_no_answer(
    monkeypatch, given
):
    error, commits = outcome(monkeypatch, given)
    assert (type(error), commits) == (OutcomeUnknown, 1)
    error, _ = outcome(monkeypatch, given, only_reads=True)
    assert isinstance(error, Unreachable)
    assert error.exit_code == 6
