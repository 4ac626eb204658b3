"""A Delta table at a path or URL. ``deltalake`` reads it; the login to a bucket comes from the environment, as that
documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.places.folder import one_line, open_folder

AT_ONCE = 16
"""The most commits that are read at the same time."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One commit of a table's log. ``info``: its ``commitInfo``, which Delta's protocol leaves to the writer."""

    version: int
    info: Mapping[str, Any] | None
    transactions: Mapping[str, int]
    """The versions that it brought, by ``appId``."""
    removes: bool
    """True if it removes files, as a RESTORE does that takes rows back."""


def is_restore(info: Mapping[str, Any]) -> bool:
    """True if the commit with this ``commitInfo`` is a RESTORE."""
    return str(info.get("operation")).upper() == "RESTORE"


def restored_version(info: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE leads to; None for a RESTORE to a time, which does not name it."""
    of = info.get("operationParameters")
    to = of.get("version") if isinstance(of, dict) else None
    if to is None or not str(to).isdecimal() or not str(to).isascii() or len(str(to)) > 18:
        return None
    return int(to)


class DeltaAt:
    """Where a table is, or may be. ``shown`` and ``setting`` name it, and where it is configured, in sentences."""

    def __init__(self, path: str, shown: str, setting: str) -> None:
        self.shown = shown
        self._path = path
        self._setting = setting

    def table(self) -> Any | None:
        """The current table; None if there is none. To be called within ``errors``."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._path)
        except TableNotFoundError:
            # It says so, too, of a folder that this user may not enter, and of a mount that fails.
            if "://" not in self._path or self._path.startswith("file:"):
                open_folder(self._path).names("_delta_log")
            return None

    def at_version(self, version: int) -> Any | None:
        """The table at this version; None if its log has been removed. To be called within ``errors``."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self._path, version=version)
        except DeltaError:
            return None

    def commits(self, table: Any) -> Iterator[DeltaCommit]:
        """The table's commits, newest first, until one that its log no longer has. To be called within ``errors``.

        They are read by their names, since ``history`` leaves out commits without ``commitInfo``, and includes commits
        made after ``table`` was opened, and so counts both wrong.
        """
        from deltalake._internal import DeltaFileSystemHandler

        read = partial(_commit, DeltaFileSystemHandler(self._path))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for newest in range(table.version(), -1, -AT_ONCE):
                for found in pool.map(read, range(newest, max(newest - AT_ONCE, -1), -1)):
                    if found is None:
                        return
                    yield found

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the library's errors as Unreachable, ConfigError or Refused, with the table's name."""
        from deltalake.exceptions import DeltaError, DeltaProtocolError

        try:
            yield
        except ReconcilerError:
            raise
        except DeltaProtocolError as error:
            raise self._refused(error) from error
        except (DeltaError, OSError) as error:
            raise Unreachable(
                f"The table {self.shown} could not be read: {one_line(error)}.",
                hint="Check that it is reachable from here, with the login in the environment, then run this again.",
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"The {self._setting} {self.shown} cannot be opened: {one_line(error)}.",
                hint=f"Correct the job's {self._setting}.",
            ) from error
        except Exception as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> Refused:
        return Refused(
            f"The table {self.shown} is not understood: {one_line(error)}.", hint="A newer deltalake may read it."
        )


def _commit(files: Any, version: int) -> DeltaCommit | None:
    """The commit of this version, from the table's ``files``; None if it is not there. Raises TypeError if damaged."""
    try:
        text = bytes(files.open_input_file(f"_delta_log/{version:020}.json").read()).decode()
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TypeError(f"version {version} of its log is not JSON") from error
    info = next((each["commitInfo"] for each in actions if "commitInfo" in each), None)
    brought = {each["txn"]["appId"]: int(each["txn"]["version"]) for each in actions if "txn" in each}
    return DeltaCommit(
        version, info if isinstance(info, dict) else None, brought, any("remove" in each for each in actions)
    )
