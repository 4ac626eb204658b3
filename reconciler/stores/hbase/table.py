"""One HBase table through a Thrift 1 server (happybase's generated client), in this product's words and errors.

What the client library does, and what is done about it:

- After a timeout the same connection gives the previous request's answer to the next one. So whatever went wrong with
  a connection closes it, and the next call opens another.
- Errors of HBase itself (``Hbase_thrift.IOError``) are thrift exceptions too, and no fault of the connection. They hold
  a Java stack trace as bytes; only the class and the first line are said.
- ``str()`` of an error of the Thrift server raises.
- Nothing has a timeout unless one is set.
- A write to a table that is disabled, or whose region is nowhere, is not refused: the server tries again for minutes.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.retry import insist
from reconciler.stores.hbase.layouts.cells import Cell

T = TypeVar("T")
Cells = Mapping[bytes, Cell]

TIMEOUT_S = 5.0
CREATE_S = 60.0
PAGE = 500
"""Rows a request."""

_log = logging.getLogger(__name__)
_JAVA_ERROR = re.compile(r"(?:[\w$]+\.)+([A-Z]\w*(?:Exception|Error))")


@dataclass(frozen=True, slots=True)
class Door:
    """Where and how a Thrift server is reached; ``transport`` and ``protocol`` are as it was started."""

    host: str
    port: int
    transport: str = "buffered"
    protocol: str = "binary"
    timeout_s: float = TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HBaseTable:
    """A table, which need not be there yet. Many threads may use it; their calls take turns on one connection.

    Reading raises Unreachable without an answer in time, and Refused where HBase says no. Writing raises these where
    nothing was written, and OutcomeUnknown where something may have been.
    """

    def __init__(self, door: Door, name: str, families: Mapping[bytes, Mapping[str, int]]) -> None:
        """``families`` are the table's, each with Thrift's options (``maxVersions``, ``timeToLive`` in seconds)."""
        self.name = name
        self._families = families
        self._door = door
        self._table = name.encode()
        self._lock = threading.RLock()
        self._connection: Any = None

    # ------------------------------------------------------------ reading

    def rows(self, keys: Sequence[bytes]) -> dict[bytes, Cells]:
        """The rows there are, with all their cells."""
        found: dict[bytes, Cells] = {}
        for start in range(0, len(keys), PAGE):
            page = list(keys[start : start + PAGE])
            found |= _by_key(self._read(partial(self._get_rows, page)))
        return found

    def scan(self, start: bytes, stop: bytes, *, limit: int | None = None, reverse: bool = False) -> dict[bytes, Cells]:
        """The rows from ``start`` (inclusive) to ``stop`` (exclusive), in their order; ``limit`` of them at most.

        An empty ``stop`` is the end. Backwards, ``start`` is the larger key. HBase answers swapped bounds with no rows
        at all, so they are checked.
        """
        if stop and ((start < stop) if reverse else (start > stop)):
            raise ValueError(f"the bounds {start!r} and {stop!r} are the wrong way round")
        return self._read(lambda client: dict(self._scanned(client, start, stop, limit, reverse)))

    def scan_prefix(self, prefix: bytes) -> dict[bytes, Cells]:
        """The rows whose keys begin with ``prefix``, in their order."""
        kept = prefix.rstrip(b"\xff")
        stop = kept[:-1] + bytes((kept[-1] + 1,)) if kept else b""
        return self._read(lambda client: dict(self._scanned(client, prefix, stop, None, False)))

    def versions(self, key: bytes, column: bytes, count: int) -> list[Cell]:
        """The newest versions of one cell, the newest first."""
        found = self._read(lambda client: client.getVer(self._table, key, column, count, {}))
        return [Cell(cell.value, cell.timestamp) for cell in found]

    def check_usable(self) -> None:
        """Raise Refused for a table that is missing, disabled, or without one of its families.

        Whether this user may write to it, HBase says only when it is written to.
        """
        there = self._read(lambda client: {name.rstrip(b":") for name in client.getColumnDescriptors(self._table)})
        if not there.issuperset(self._families):
            raise self._answered("NoSuchColumnFamilyException", writing=False)
        self.rows([b"!"])  # a disabled table has families, and rows only for those who do not ask

    def _get_rows(self, keys: list[bytes], client: Any) -> Any:
        return client.getRows(self._table, keys, {})

    def _scanned(
        self, client: Any, start: bytes, stop: bytes, limit: int | None, reverse: bool
    ) -> Iterator[tuple[bytes, Cells]]:
        page = PAGE if limit is None else min(limit, PAGE)
        wanted = _thrift().TScan(startRow=start, stopRow=stop, caching=page, reversed=reverse)
        scanner = client.scannerOpenWithScan(self._table, wanted, {})
        left = limit
        while left is None or left > 0:
            rows = client.scannerGetList(scanner, page if left is None else min(page, left))
            if not rows:
                break
            yield from _by_key(rows).items()
            left = None if left is None else left - len(rows)
        client.scannerClose(scanner)

    # ------------------------------------------------------------ writing

    def check_and_put(self, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Put ``value`` if the cell still holds ``expected`` (None: if there is no cell). False if it does not.

        A False may also come from a second try inside the server whose first one succeeded: look at the cell.
        """
        mutation = _thrift().Mutation(column=column, value=value)
        return bool(self._write(lambda client: client.checkAndPut(self._table, key, column, expected, mutation, {})))

    def put(self, key: bytes, cells: Mapping[bytes, bytes], *, at: int | None = None) -> None:
        """Put cells into one row in one step, with this timestamp (None: the server's time)."""
        mutations = [_thrift().Mutation(column=column, value=value) for column, value in cells.items()]
        if at is None:
            self._write(lambda client: client.mutateRow(self._table, key, mutations, {}))
        else:
            self._write(lambda client: client.mutateRowTs(self._table, key, mutations, at, {}))

    def delete(self, key: bytes, columns: Sequence[bytes], *, at: int) -> None:
        """Delete the columns' cells with timestamps up to ``at``, of one row in one step."""
        mutations = [_thrift().Mutation(isDelete=True, column=column) for column in columns]
        self._write(lambda client: client.mutateRowTs(self._table, key, mutations, at, {}))

    def delete_row(self, key: bytes) -> None:
        """Delete a row with all its cells."""
        self._write(lambda client: client.deleteAllRow(self._table, key, {}))

    def create(self) -> None:
        """Make the table with its families, unless it is there. It takes HBase longer than other calls."""
        thrift = _thrift()
        descriptors = [thrift.ColumnDescriptor(name=name + b":", **options) for name, options in self._families.items()]

        def make(client: Any) -> None:
            with suppress(thrift.AlreadyExists):
                client.createTable(self._table, descriptors)

        patient = HBaseTable(replace(self._door, timeout_s=max(CREATE_S, self._door.timeout_s)), self.name, {})
        try:
            patient._write(make)
        except OutcomeUnknown as error:
            raise Unreachable(error.message, hint=f"Run this again, or type into HBase's shell: {self.ddl}") from error
        finally:
            patient.close()

    @property
    def ddl(self) -> str:
        """What makes the table in HBase's shell."""
        return f"create '{self.name}', " + ", ".join(map(self._in_shell, self._families))

    def _in_shell(self, family: bytes) -> str:
        words = {"maxVersions": "VERSIONS", "timeToLive": "TTL"}
        options = "".join(f", {words[option]} => {value}" for option, value in self._families[family].items())
        return f"{{NAME => '{family.decode()}'{options}}}"

    # ------------------------------------------------------------ calls

    def _read(self, ask: Callable[[Any], T]) -> T:
        """Ask, and ask again over a new connection where one was lost, for the time of one timeout."""
        began = monotonic()

        def once() -> T:
            with self._lock:
                client = self._client()
                try:
                    return ask(client)
                except Exception as error:
                    raise self._said(error, writing=False) from error

        return insist(once, give_up=lambda: monotonic() - began >= self._door.timeout_s)

    def _write(self, ask: Callable[[Any], T]) -> T:
        with self._lock:
            client = self._client()
            try:
                return ask(client)
            except Exception as error:
                raise self._said(error, writing=True) from error

    def _client(self) -> Any:
        if self._connection is None:
            import happybase

            try:
                self._connection = happybase.Connection(
                    self._door.host,
                    self._door.port,
                    timeout=max(1, round(self._door.timeout_s * 1000)),
                    transport=self._door.transport,
                    protocol=self._door.protocol,
                )
            except Exception as error:
                raise self._no_door(error) from error
        return self._connection.client

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(Exception):
                    connection.close()

    # ------------------------------------------------------------ errors

    def _no_door(self, error: Exception) -> ReconcilerError:
        if not isinstance(error, OSError) and type(error).__name__ != "TTransportException":
            raise error
        return Unreachable(
            f"No HBase Thrift server answers at {self._door}.",
            hint="Check the store's address, and that the Thrift server runs (hbase thrift start).",
        )

    def _said(self, error: Exception, *, writing: bool) -> ReconcilerError:
        """This product's error for the client's; anything that is not HBase's own closes the connection."""
        from thriftpy2.thrift import TException

        if isinstance(error, _thrift().IOError | _thrift().IllegalArgument):
            return self._answered(_plainly(error), writing=writing)
        self.close()
        if not isinstance(error, TException | OSError | EOFError):
            raise error
        if isinstance(error, TimeoutError):
            what = f"The HBase Thrift server at {self._door} gave no answer within {self._door.timeout_s:g} s"
        elif type(error).__name__ == "TApplicationException":
            what = f"The HBase Thrift server at {self._door} failed ({_plainly(error)})"
            if not writing:
                return Refused(f"{what}.", hint="Its log says more.")
        else:
            what = f"The connection to the HBase Thrift server at {self._door} was lost"
        if writing:
            return OutcomeUnknown(f"{what} while {self.name!r} was written.", hint="Run this again.")
        hint = "See whether HBase is well."
        if self._door.transport == "buffered":
            hint += " A Thrift server that was started with -f (framed) needs transport=framed in the store's address."
        return Unreachable(f"{what}.", hint=hint)

    def _answered(self, said: str, *, writing: bool) -> ReconcilerError:
        for exception, (what, hint) in self._refusals().items():
            if exception in said:
                return Refused(what, hint=hint)
        _log.debug("HBase says of %s: %s", self.name, said)
        if writing:
            what = f"HBase could not say whether it wrote to {self.name!r}: {said}."
            return OutcomeUnknown(what, hint="Run this again.")
        return Unreachable(f"HBase could not read {self.name!r}: {said}.", hint="See whether HBase is well.")

    def _refusals(self) -> dict[str, tuple[str, str]]:
        namespace = self.name.partition(":")[0]
        families = ", ".join(map(self._in_shell, self._families))
        return {
            "TableNotFoundException": (
                f"There is no table {self.name!r} in HBase.",
                f"Correct the store's address, or make the table in HBase's shell: {self.ddl}",
            ),
            "NamespaceNotFoundException": (
                f"There is no namespace {namespace!r} in HBase.",
                f"Make it in HBase's shell, since Thrift 1 cannot: create_namespace '{namespace}'",
            ),
            "TableNotEnabledException": (
                f"The HBase table {self.name!r} is disabled.",
                f"Enable it in HBase's shell: enable '{self.name}'",
            ),
            "NoSuchColumnFamilyException": (
                f"The HBase table {self.name!r} lacks a column family that this layout needs.",
                f"Correct the layout in the store's address, or say in HBase's shell: alter '{self.name}', {families}",
            ),
            "AccessDeniedException": (
                f"The user of HBase's Thrift server may not do this with table {self.name!r}.",
                "Ask HBase's administrator for read and write on the table.",
            ),
        }


def _thrift() -> Any:
    """HBase's own types and errors, which happybase makes when it is loaded."""
    import happybase  # noqa: F401
    import Hbase_thrift

    return Hbase_thrift


def _by_key(rows: Sequence[Any]) -> dict[bytes, Cells]:
    return {row.row: {name: Cell(c.value, c.timestamp) for name, c in row.columns.items()} for row in rows}


def _plainly(error: Any) -> str:
    """The class and the first line of what a server said, without its stack trace."""
    message = error.message or b""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    inner = _JAVA_ERROR.findall(text)
    return " ".join(dict.fromkeys([*inner[-1:], _JAVA_ERROR.sub(r"\1", first)[:200]]))
