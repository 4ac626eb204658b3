"""An HBase table in memory, whose calls can fail or die; it satisfies what the layouts use of ``HBaseTable``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from reconciler.places.hbase.table import HBaseCell, HBaseTable

T = TypeVar("T")


class FakeTable:
    """Rows by key. ``around`` is asked at each call: it gets the call's name, its row and the call itself."""

    name = "t"

    def __init__(self) -> None:
        self.data: dict[bytes, dict[bytes, HBaseCell]] = {}
        self.around: Callable[[str, bytes, Callable[[], object]], object] = lambda name, row, call: call()
        self.clock = 0
        """The server's, epoch ms."""

    def check_usable(self) -> None:
        """It always is."""

    def rows(self, keys: Sequence[bytes]) -> dict[bytes, dict[bytes, HBaseCell]]:
        return self._call("rows", b"", lambda: {key: dict(self.data[key]) for key in keys if self.data.get(key)})

    def scan(
        self, start: bytes, stop: bytes, *, limit: int | None = None, reverse: bool = False
    ) -> dict[bytes, dict[bytes, HBaseCell]]:
        def found() -> dict[bytes, dict[bytes, HBaseCell]]:
            keys = sorted((key for key, cells in self.data.items() if cells), reverse=reverse)
            if reverse:
                keys = [key for key in keys if key <= start and (not stop or key > stop)]
            else:
                keys = [key for key in keys if key >= start and (not stop or key < stop)]
            return {key: dict(self.data[key]) for key in keys[:limit]}

        return self._call("scan", start, found)

    put_if_unchanged: Any = HBaseTable.put_if_unchanged

    def check_and_put(self, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        def swap() -> bool:
            cell = self.data.get(key, {}).get(column)
            if (None if cell is None else cell.value) != expected:
                return False
            self._set(key, {column: value})
            return True

        return self._call("check_and_put", key, swap)

    def scan_prefix(self, prefix: bytes) -> dict[bytes, dict[bytes, HBaseCell]]:
        found = {key: dict(cells) for key, cells in self.data.items() if cells and key.startswith(prefix)}
        return self._call("scan_prefix", prefix, lambda: found)

    def put(self, key: bytes, cells: Mapping[bytes, bytes], *, at: int | None = None) -> None:
        self._call("put", key, lambda: self._set(key, cells, at))

    def create(self) -> None:
        pass

    def delete_row(self, key: bytes) -> None:
        self._call("delete_row", key, lambda: self.data.pop(key, None))

    def close(self) -> None:
        pass

    def _set(self, key: bytes, cells: Mapping[bytes, bytes], at: int | None = None) -> None:
        self.clock += 1
        stamp, row = self.clock if at is None else at, self.data.setdefault(key, {})
        row |= {
            name: HBaseCell(value, stamp) for name, value in cells.items() if name not in row or row[name].at <= stamp
        }

    def _call(self, name: str, key: bytes, call: Callable[[], T]) -> T:
        return self.around(name, key, call)  # type: ignore[return-value]


class FakeConnection:
    """One store's way to a ``FakeTable``: its calls can be replaced without those of other stores."""

    put_if_unchanged: Any = HBaseTable.put_if_unchanged

    def __init__(self, table: FakeTable) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)
