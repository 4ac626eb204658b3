"""Spark's file sink, and a function of the user's that knows a query's batches.

The file sink has its log in ``PATH/_spark_metadata``, on any file system that fsspec opens. Source: Spark 4.2.1
(``FileStreamSink``, ``FileStreamSinkLog``, ``CompactibleFileStreamLog``), compared with folders that PySpark 4.2.1
wrote. ``N`` holds batch N: ``v1``, then a line of JSON for each file. Every tenth one is ``N.compact`` and holds the
lines of all batches before it, too. The sink drops a batch whose number is not above the log's last, whichever query it
is from: no query's id is kept.

``python:module:function`` is called with the name of the query's batches (its id, or ``app_id``) and returns the number
of the last batch that was taken, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from os.path import isfile
from urllib.parse import unquote, urlsplit

from reconciler.core.errors import ReconcilerError, Refused
from reconciler.core.json_fields import INT64_MAX, FieldError, integer, json_object, required_text
from reconciler.failover.sinks.guard import Taken
from reconciler.places.folder import Folder, one_line, open_folder

LOG = "_spark_metadata"
_COMPRESSED = frozenset({"gz", "bz2", "lz4", "snappy", "deflate", "zst", "zstd", "xz"})
_NAME = re.compile(r"(0|[1-9]\d{0,18})(\.compact)?")


class FileSink:
    """A folder of files. Raises what ``open_folder`` and its folder raise."""

    knows_queries = False
    takes_every_batch = True
    app_id = None

    def __init__(self, path: str) -> None:
        self._folder = open_folder(path)
        self.shown = f"files:{self._folder.shown}"

    def has_queries(self) -> bool:
        return bool(self._folder.names(LOG))

    def formats(self) -> set[str]:
        """The formats of the files that the log names, by their names: ``parquet``, ``json``, … Raises Refused."""
        batches = self._batches()
        whole = max((number for number, name in batches.items() if name.endswith(".compact")), default=0)
        try:
            return {
                _format(path)
                for number, name in batches.items()
                if number >= whole
                for path, _ in _files(self._folder, name)
            }
        except (FieldError, UnicodeDecodeError) as error:
            raise self._not_understood(LOG, error) from error

    def last_taken(self, app_id: str | None) -> Taken:
        """The log's last batch, of any query."""
        batches = self._batches()
        if not batches:
            return Taken(None)
        last = max(batches)
        try:
            rows = _rows(self._folder, batches, last)
            return Taken(last, is_empty=rows == 0, has_records=bool(rows))
        except FileNotFoundError:  # compacted or removed since it was listed: a query is running
            return Taken(last)
        except (FieldError, UnicodeDecodeError) as error:
            raise self._not_understood(f"{LOG}/{batches[last]}", error) from error

    def _batches(self) -> dict[int, str]:
        """The log's batches: number, and file's name."""
        return {int(found[1]): found[0] for name in self._folder.names(LOG) if (found := _NAME.fullmatch(name))}

    def _not_understood(self, name: str, error: Exception) -> Refused:
        return Refused(
            f"The file sink's log {self._folder.shown}/{name} is not understood: {error}.",
            hint="If Spark reads it, a newer release of this product may as well; if not, restore the folder.",
        )


def _rows(folder: Folder, batches: dict[int, str], last: int) -> int | None:
    """The least number of records in the last batch, 0 for none at all; None if that is not known.

    A compacted batch lists all files of the log: its own are the files that the log did not list before.
    """
    files = _files(folder, batches[last])
    if batches[last].endswith(".compact"):
        first = max((number for number in batches if number < last and batches[number].endswith(".compact")), default=0)
        before = range(first, last)
        if any(number not in batches for number in before):
            return None  # removed in time: whose files they are does not show
        files -= {file for number in before for file in _files(folder, batches[number])}
    counts = [_records(path, size) for path, size in files]
    known = [count for count in counts if count is not None]
    return sum(known) or (None if None in counts else 0)


def _files(folder: Folder, name: str) -> set[tuple[str, int]]:
    """The files that a batch of the log names, each as a URI with its size in bytes."""
    found = set()
    for line in folder.read(f"{LOG}/{name}").decode().splitlines()[1:]:
        file = json_object(line)
        found.add((required_text(file, "path"), integer(file, "size", 0) or 0))
    return found


def _format(uri: str) -> str:
    """The name of a file's format for Spark's reader: ``part-0.c000.snappy.parquet`` is ``parquet``."""
    parts = [part for part in uri.rpartition("/")[2].split(".")[1:] if part not in _COMPRESSED]
    return {"txt": "text"}.get(parts[-1], parts[-1]) if parts else ""


def _records(uri: str, size: int) -> int | None:
    """The least number of records in a file: 0 if it is empty, a local Parquet file's own count, 1 for text."""
    if size == 0:
        return 0
    if uri.endswith((".json", ".txt")):
        return 1
    if not (uri.startswith("file:/") and uri.endswith(".parquet") and find_spec("pyarrow")):
        return None
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        path = unquote(urlsplit(uri).path)
        return int(read_metadata(path).num_rows) if isfile(path) else None  # a pipe would be waited for
    except (OSError, ValueError, ArrowException):
        return None


class FunctionSink:
    """A sink that asks a function; ``name`` is its name in the configuration."""

    knows_queries = True
    takes_every_batch = False

    def __init__(self, name: str, function: Callable[..., object], app_id: str | None) -> None:
        self.shown = name
        self.app_id = app_id
        self._function = function

    def last_taken(self, app_id: str | None) -> Taken:
        """The function's return value. Raises Refused if it raises, or returns anything but a number or None."""
        try:
            last = self._function(app_id)
        except ReconcilerError:
            raise
        except Exception as error:
            raise self._refused(f"raised {type(error).__name__}: {one_line(error)}") from error
        if last is None:
            return Taken(None)
        if not isinstance(last, int) or isinstance(last, bool) or not 0 <= last <= INT64_MAX:
            raise self._refused(f"returned {last!r}, which is no number of a batch")
        return Taken(last)

    def has_queries(self) -> bool:
        """Not known: the function is asked about one name."""
        return False

    def _refused(self, why: str) -> Refused:
        return Refused(f"The sink {self.shown} {why}.", hint="Correct the function.")
