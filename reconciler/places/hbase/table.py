"""One HBase table through a Thrift 1 server (happybase's generated client), with this product's errors.

Defects of the client library, and the answer to each:

- After a timeout the same connection gives the previous request's answer to the next request. So any failure of a
  connection closes it, and the next call opens another.
- Errors of HBase itself (``Hbase_thrift.IOError``) are thrift exceptions too, though the connection is sound. They hold
  a Java stack trace as bytes; messages repeat only the class and the first line.
- ``str()`` of an error of the Thrift server raises.
- Nothing has a timeout unless one is set.
- The server does not refuse a write to a table that is disabled, or whose region is missing: it retries for minutes.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from reconciler.core.errors import Away, NotCreated, NotNow, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.near import tables_like
from reconciler.places.parameters import Parameters
from reconciler.retry import insist
from reconciler.waits import for_seconds, is_unresolved, waiting

T = TypeVar("T")

PORT = 9090
TIMEOUT_S = 5.0
CREATE_S = 60.0
PAGE = 500
"""Rows a request."""
RUN_AGAIN = "Run this again."

_log = logging.getLogger(__name__)
_JAVA_ERROR = re.compile(r"(?:[\w$]+\.)+([A-Z]\w*(?:Exception|Error))")
_SHELL_OPTIONS = {"maxVersions": "VERSIONS", "timeToLive": "TTL"}


@dataclass(frozen=True, slots=True)
class ThriftEndpoint:
    """A Thrift server's address, and the ``transport`` and ``protocol`` that it was started with."""

    host: str
    port: int
    transport: str = "buffered"
    protocol: str = "binary"
    timeout_s: float = TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def endpoint_of(host: str, port: int | None, parameters: Parameters) -> ThriftEndpoint:
    """The endpoint with the address's ``transport``, ``protocol`` and ``timeout``."""
    transport = parameters.choice("transport", "buffered", "framed")
    protocol = parameters.choice("protocol", "binary", "compact")
    return ThriftEndpoint(host, port or PORT, transport, protocol, parameters.timeout_s(TIMEOUT_S))


class HBaseTable:
    """A table, which need not exist yet. Threads may share it; their calls take turns on one connection.

    Reading raises Unreachable without an answer in time, and Refused where HBase refuses. Writing raises these where
    nothing was written, and OutcomeUnknown where something may have been.
    """

    def __init__(self, endpoint: ThriftEndpoint, name: str, families: Mapping[bytes, Mapping[str, int]]) -> None:
        """``families`` are the table's, each with Thrift's options (``timeToLive`` in seconds)."""
        self.name = name
        self._families = families
        self._endpoint = endpoint
        self._table = name.encode()
        self._lock = threading.RLock()
        self._connection: Any = None

    # ------------------------------------------------------------ reading

    def rows(self, keys: Sequence[bytes]) -> dict[bytes, Cells]:
        """The existing ones of the rows, with all their cells."""
        found: dict[bytes, Cells] = {}
        for start in range(0, len(keys), PAGE):
            found |= _by_key(self._read(partial(self._get_rows, list(keys[start : start + PAGE]))))
        return found

    def _get_rows(self, keys: list[bytes], client: Any) -> Any:
        return client.getRows(self._table, keys, {})

    def scan(self, start: bytes, stop: bytes, *, limit: int | None = None, reverse: bool = False) -> dict[bytes, Cells]:
        """The rows from ``start`` (inclusive) to ``stop`` (exclusive), in their order; ``limit`` of them at most.

        An empty ``stop`` is the end. Backwards, ``start`` is the larger key. HBase answers swapped bounds with no rows
        at all, so they raise ValueError here.
        """
        if stop and ((start < stop) if reverse else (start > stop)):
            raise ValueError(f"the bounds {start!r} and {stop!r} are the wrong way round")
        return self._read(lambda client: dict(self._scan(client, start, stop, limit, reverse=reverse)))

    def scan_prefix(self, prefix: bytes) -> dict[bytes, Cells]:
        """The rows whose keys begin with ``prefix``, in their order."""
        kept = prefix.rstrip(b"\xff")
        return self.scan(prefix, kept[:-1] + bytes((kept[-1] + 1,)) if kept else b"")

    def check_usable(self) -> None:
        """Raise Refused for a table that is missing, disabled, or without one of its families.

        HBase checks the permission to write only on a write.
        """
        present = self._read(lambda client: {name.rstrip(b":") for name in client.getColumnDescriptors(self._table)})
        if not present.issuperset(self._families):
            raise self._server_error("NoSuchColumnFamilyException", writing=False)
        self.rows([b"!"])  # a disabled table still lists its families: only reading rows finds out

    def _scan(
        self, client: Any, start: bytes, stop: bytes, limit: int | None, *, reverse: bool
    ) -> Iterator[tuple[bytes, Cells]]:
        page = PAGE if limit is None else min(limit, PAGE)
        options = _thrift().TScan(startRow=start, stopRow=stop, caching=page, reversed=reverse)
        scanner = client.scannerOpenWithScan(self._table, options, {})
        left = limit
        while left is None or left > 0:
            rows = client.scannerGetList(scanner, page if left is None else min(page, left))
            if not rows:
                break
            yield from _by_key(rows).items()
            left = None if left is None else left - len(rows)
        client.scannerClose(scanner)

    # ------------------------------------------------------------ writing

    def put_if_unchanged(self, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Compare-and-set one cell; ``value`` must differ from all that others write. True if this call wrote it.

        Where the answer is lost or negative, the cell decides: the server may have tried twice. Raises OutcomeUnknown
        where the cell cannot decide; a request under way may still be carried out later.
        """
        lost: OutcomeUnknown | None = None
        try:
            if self.check_and_put(key, column, expected, value):
                return True
        except OutcomeUnknown as error:
            lost = error
        try:
            cell = self.rows([key]).get(key, {}).get(column)
        except ReconcilerError as error:
            raise lost or OutcomeUnknown(error.message, hint=RUN_AGAIN) from error
        if cell is not None and cell.value == value:
            return True
        if lost is not None:
            raise lost
        return False

    def check_and_put(self, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Put ``value`` if the cell still holds ``expected`` (None: if there is no cell). False if it does not.

        False may also come from a second try inside the server after a first one that succeeded.
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

    def delete_row(self, key: bytes) -> None:
        self._write(lambda client: client.deleteAllRow(self._table, key, {}))

    def create(self) -> None:
        """Create the table with its families, unless it exists. HBase takes longer for it than for other calls."""
        thrift = _thrift()
        descriptors = [thrift.ColumnDescriptor(name=name + b":", **options) for name, options in self._families.items()]

        def create_table(client: Any) -> None:
            with suppress(thrift.AlreadyExists):
                client.createTable(self._table, descriptors)

        timeout_s = max(CREATE_S, self._endpoint.timeout_s)
        patient = HBaseTable(replace(self._endpoint, timeout_s=timeout_s), self.name, {})
        try:
            patient._write(create_table)
        except OutcomeUnknown as error:
            raise Unreachable(error.message, hint=f"Run this again, or type into HBase's shell: {self.ddl}") from error
        finally:
            patient.close()

    @property
    def ddl(self) -> str:
        """The statement that creates the table in HBase's shell."""
        return f"create '{self.name}', {self._families_in_shell}"

    @property
    def _families_in_shell(self) -> str:
        return ", ".join(
            f"{{NAME => '{family.decode()}'"
            + "".join(f", {_SHELL_OPTIONS[option]} => {value}" for option, value in options.items())
            + "}"
            for family, options in self._families.items()
        )

    # ------------------------------------------------------------ calls

    def _read(self, call: Callable[[Any], T]) -> T:
        """Call with the client, and retry over a new connection for the time of one timeout."""
        return insist(lambda: self._call(call, writing=False), left_s=for_seconds(self._endpoint.timeout_s))

    def _write(self, call: Callable[[Any], T]) -> T:
        return self._call(call, writing=True)

    def _call(self, call: Callable[[Any], T], *, writing: bool) -> T:
        with self._lock, waiting(str(self._endpoint), for_seconds(self._endpoint.timeout_s)):
            client = self._client()
            try:
                return call(client)
            except Exception as error:
                raise self._wrap(error, writing=writing) from error

    def _client(self) -> Any:
        if self._connection is None:
            import happybase

            try:
                self._connection = happybase.Connection(
                    self._endpoint.host,
                    self._endpoint.port,
                    timeout=max(1, round(self._endpoint.timeout_s * 1000)),
                    transport=self._endpoint.transport,
                    protocol=self._endpoint.protocol,
                )
            except Exception as error:
                if not isinstance(error, OSError) and type(error).__name__ != "TTransportException":
                    raise
                if is_unresolved(error):
                    raise Refused(
                        f'The name "{self._endpoint.host}" of the HBase Thrift server does not resolve.',
                        hint="Correct the store's address, or this machine's name resolution (DNS).",
                    ) from error
                raise Away(
                    f"No HBase Thrift server answers at {self._endpoint}.",
                    hint="Check the store's address, and that the Thrift server runs (hbase thrift start).",
                ) from error
        return self._connection.client

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(Exception):
                    connection.close()

    # ------------------------------------------------------------ errors

    def _wrap(self, error: Exception, *, writing: bool) -> ReconcilerError:
        """This product's error for the client's; any error that is not HBase's own closes the connection."""
        from thriftpy2.thrift import TException

        if isinstance(error, _thrift().IOError | _thrift().IllegalArgument):
            return self._server_error(_summary(error), writing=writing)
        self.close()
        if not isinstance(error, TException | OSError | EOFError):
            raise error
        if isinstance(error, TimeoutError):
            what = f"The HBase Thrift server at {self._endpoint} gave no answer within {self._endpoint.timeout_s:g} s"
        elif type(error).__name__ == "TApplicationException":
            what = f"The HBase Thrift server at {self._endpoint} failed ({_summary(error)})"
            if not writing:
                return Refused(f"{what}.", hint="See its log for the cause.")
        else:
            what = f"The connection to the HBase Thrift server at {self._endpoint} was lost"
        if writing:
            return OutcomeUnknown(f"{what} during a write to {self.name!r}.", hint=RUN_AGAIN)
        hint = "Check that HBase is healthy."
        if self._endpoint.transport == "buffered":
            hint += " A Thrift server that was started with -f (framed) needs transport=framed in the store's address."
        return Unreachable(f"{what}.", hint=hint)

    def _server_error(self, message: str, *, writing: bool) -> ReconcilerError:
        """The error for HBase's own ``message``."""
        for exception, (what, hint) in self._refusals().items():
            if exception in message:
                if exception == "TableNotFoundException":
                    return NotCreated(what, hint=f"{self._tables_like_it()}{hint}")
                return Refused(what, hint=hint)
        _log.debug("HBase's error for %s: %s", self.name, message)
        if writing:
            return OutcomeUnknown(f"HBase could not say whether it wrote to {self.name!r}: {message}.", hint=RUN_AGAIN)
        return NotNow(f"HBase could not read {self.name!r}: {message}.", hint="Check that HBase is healthy.")

    def _tables_like_it(self) -> str:
        with suppress(Exception):  # the missing table is the error to report, whatever this lookup meets
            names = [name.decode() for name in self._client().getTableNames()]
            return tables_like(self.name, [(name, repr(name)) for name in names])
        return ""

    def _refusals(self) -> dict[str, tuple[str, str]]:
        """Message and hint by the Java exception that HBase names."""
        namespace = self.name.partition(":")[0]
        return {
            "TableNotFoundException": (
                f"There is no table {self.name!r} in HBase.",
                f"Correct the store's address, or create the table in HBase's shell: {self.ddl}",
            ),
            "NamespaceNotFoundException": (
                f"There is no namespace {namespace!r} in HBase.",
                f"Create it in HBase's shell, since Thrift 1 cannot: create_namespace '{namespace}'",
            ),
            "TableNotEnabledException": (
                f"The HBase table {self.name!r} is disabled.",
                f"Enable it in HBase's shell: enable '{self.name}'",
            ),
            "NoSuchColumnFamilyException": (
                f"The HBase table {self.name!r} lacks a column family that this layout needs.",
                "Correct the layout in the store's address, or run in HBase's shell: "
                f"alter '{self.name}', {self._families_in_shell}",
            ),
            "AccessDeniedException": (
                f"The user of HBase's Thrift server is not allowed to do this with table {self.name!r}.",
                "Ask HBase's administrator for read and write on the table.",
            ),
        }


def _thrift() -> Any:
    """HBase's own types and errors, which happybase generates on import."""
    import happybase  # noqa: F401
    import Hbase_thrift

    return Hbase_thrift


def _by_key(rows: Sequence[Any]) -> dict[bytes, Cells]:
    return {row.row: {name: HBaseCell(c.value, c.timestamp) for name, c in row.columns.items()} for row in rows}


def _summary(error: Any) -> str:
    """The class and the first line of a server's message, without its stack trace."""
    message = error.message or b""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    inner = _JAVA_ERROR.findall(text)
    return " ".join(dict.fromkeys([*inner[-1:], _JAVA_ERROR.sub(r"\1", first)[:200]]))


@dataclass(frozen=True, slots=True)
class HBaseCell:
    """A value and its timestamp: when the server took it (epoch ms), unless its writer set another one."""

    value: bytes
    at: int


Cells = Mapping[bytes, HBaseCell]
"""A row's cells by column (``FAMILY:QUALIFIER``)."""


def sorted_content(cells: Cells) -> list[tuple[str, str, int]]:
    """Column and value in hex, and timestamp, of every cell, by column: the content of a row's version."""
    return [(name.hex(), cell.value.hex(), cell.at) for name, cell in sorted(cells.items())]
