"""State in one HBase table: a row an entry. Keys count down, so that a scan meets the newest first.

``checkAndPut`` of a row that must not exist gives a number to one writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import unquote, urlsplit

from reconciler.config.addresses import without_secrets
from reconciler.places.hbase.table import HBaseTable, endpoint_of
from reconciler.places.parameters import Parameters, wrong_address
from reconciler.state.store import FIRST, Held

EXAMPLE = "hbase://HOST:PORT/TABLE"
FAMILIES: Mapping[bytes, Mapping[str, int]] = {b"e": {"maxVersions": 1}}
_ENTRY = b"e:entry"
_MOST = 2**63 - 1


def open_address(address: str) -> HBaseState:
    """``hbase://HOST:PORT/TABLE``. Raises ConfigError for any other address."""
    wrong = partial(wrong_address, "[state] store", EXAMPLE)
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError as err:
        raise wrong("its host or port cannot be read") from err
    table = unquote(url.path[1:])
    if url.username is not None or not url.hostname or not table or "/" in table:
        raise wrong("it is not a host, a port and a table")
    parameters = Parameters(url.query, wrong)
    endpoint = endpoint_of(url.hostname, port, parameters)
    parameters.check_all_known()
    return HBaseState(HBaseTable(endpoint, table, FAMILIES), without_secrets(address))


class HBaseState:
    def __init__(self, table: HBaseTable, shown: str) -> None:
        self._table = table
        self.shown = shown

    def create(self) -> None:
        self._table.create()

    def put(self, log: str, number: int, entry: bytes) -> bool:
        return self._table.put_if_unchanged(_key(log, number), _ENTRY, None, entry)

    def read(self, log: str, newest: int) -> Sequence[Held]:
        rows = self._table.scan(_key(log, _MOST), _end(log), limit=newest)
        return [Held(_number(key), cells[_ENTRY].value) for key, cells in rows.items() if _ENTRY in cells]

    def read_one(self, log: str, number: int) -> Held | None:
        cells = self._table.rows([_key(log, number)]).get(_key(log, number), {})
        return Held(number, cells[_ENTRY].value) if _ENTRY in cells else None

    def remove(self, log: str, number: int) -> None:
        self._table.delete_row(_key(log, number))

    def prune(self, log: str, upto: int) -> None:
        if upto < FIRST:
            return
        for key in reversed(self._table.scan(_key(log, upto), _end(log))):
            self._table.delete_row(key)

    def close(self) -> None:
        self._table.close()


def _prefix(log: str) -> bytes:
    return log.encode() + b"\x00"


def _key(log: str, number: int) -> bytes:
    return _prefix(log) + (_MOST - number).to_bytes(8, "big")


def _end(log: str) -> bytes:
    """The key after the log's last one, which is that of number 0."""
    return _key(log, 0) + b"\x00"


def _number(key: bytes) -> int:
    return _MOST - int.from_bytes(key[-8:], "big")
