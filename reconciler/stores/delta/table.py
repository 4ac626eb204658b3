"""A Delta table at a path or URL. ``deltalake`` reads it; the login to a bucket comes from the environment, as that
documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.folder import one_line, open_folder


def is_restore(info: Mapping[str, Any]) -> bool:
    """Whether the commit with this ``commitInfo`` is a RESTORE."""
    return str(info.get("operation")).upper() == "RESTORE"


def restored_version(info: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE leads to; None for one to a time, which does not tell."""
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
        """The table as it is now; None if there is none. To be called within ``errors``."""
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
        """The table as it was at this version; None if its log has been removed. To be called within ``errors``."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self._path, version=version)
        except DeltaError:
            return None

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
