"""An Iceberg table, by its catalog (of pyiceberg's own configuration), by its folder or by its metadata file.

A folder says which metadata file is the table's only if Hadoop's catalog wrote it. This catalog commits by renaming a
file to the next ``vN.metadata.json`` (``HadoopTableOperations`` of Iceberg 1.11; ``vN.gz.metadata.json`` is
compressed). All other catalogs write ``NNNNN-UUID.metadata.json`` first, then move a pointer of their own: a file whose
writer lost the race, or died in between, stays and was never committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.places.folder import one_line, open_folder
from reconciler.waits import for_seconds, in_time, waiting

_HADOOP = re.compile(r"v([0-9]+)(\.gz)?\.metadata\.json")
_UNFINISHED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?")
"""A file that Hadoop's catalog renames to ``vN.metadata.json``; a writer that died leaves it."""
_METADATA = ".metadata.json"
"""In the name of every metadata file; of some old ones ``.gz`` follows it."""
ANSWER_S = 30.0
"""For the catalog and the metadata file together. A table's metadata may have many megabytes, and a catalog may read
them before it answers."""


class IcebergAt:
    """A table by ``CATALOG/NAMESPACE.TABLE``, by the folder of a Hadoop table, or by a file ``….metadata.json``.

    ``shown`` and ``setting`` name it, and where it is configured, in sentences. Raises ConfigError for a place that is
    none.
    """

    def __init__(self, place: str, shown: str, setting: str) -> None:
        self.shown = shown
        self._place = place
        self._setting = setting
        self._opened = False
        self._is_path = "://" in place or place.startswith(("/", ".", "file:"))
        if not self._is_path and not all(place.partition("/")):
            raise ConfigError(
                f"The {setting} {shown} names no table.",
                hint="Write iceberg:CATALOG/NAMESPACE.TABLE, or the table's folder, iceberg:/warehouse/db/table.",
            )

    def table(self) -> Any | None:
        """The current table; None if there is none. To be called within ``errors``.

        Raises TimeoutError without an answer in ``ANSWER_S``.
        """
        self._opened = False
        with waiting(self.shown, for_seconds(ANSWER_S)):
            table = in_time(self._open, ANSWER_S)
        self._opened = table is not None
        return table

    def _open(self) -> Any | None:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import StaticTable

        if self._is_path:
            metadata = self._metadata()
            return None if metadata is None else StaticTable.from_metadata(metadata)
        catalog, _, name = self._place.partition("/")
        try:
            # A request ends later than its caller gives it up, whose words are the better ones.
            return open_catalog(catalog, 2 * ANSWER_S).load_table(name)
        except NoSuchTableError:
            return None

    def history(self, table: Any, newest: Any) -> Iterator[Any]:
        """The snapshots from ``newest`` along the parents. Ends where the table has no older one left, or none ever.

        Raises Refused for parents in a circle.
        """
        at, seen = newest, set[int]()
        while at is not None:
            if at.snapshot_id in seen:
                raise Refused(
                    f"The table {self.shown} is damaged: its snapshots are each other's parents.",
                    hint="Restore its metadata.",
                )
            seen.add(at.snapshot_id)
            yield at
            at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)

    def _metadata(self) -> str | None:
        """The newest metadata file of the table's folder; None if there is none.

        Raises Refused for a metadata file that has another name than Hadoop's catalog gives: some other program
        commits there, and only its catalog knows what.
        """
        if self._place.endswith(_METADATA):
            return self._place
        names = open_folder(self._place).names("metadata")
        found = [(int(of[1]), name) for name in names if (of := _HADOOP.fullmatch(name))]
        # Hadoop's local file system keeps checksums, as .v1.metadata.json.crc.
        others = {name for name in names if _METADATA in name and name[0] != "."} - {name for _, name in found}
        if others and not (found and all(map(_UNFINISHED.fullmatch, others))):
            raise Refused(
                f"The folder of the table {self.shown} does not say which of its metadata files its catalog committed.",
                hint=f"Name the table in the job's {self._setting} by its catalog, iceberg:CATALOG/NAMESPACE.TABLE, or "
                "by its metadata file.",
            )
        return f"{self._place.rstrip('/')}/metadata/{max(found)[1]}" if found else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the library's errors as Unreachable, ConfigError or Refused, with the table's name."""
        try:
            yield
        except ReconcilerError:
            raise
        except FileNotFoundError as error:
            raise self._failure(Refused, error, f"There is no such file: correct the job's {self._setting}.") from error
        except (ImportError, ValueError, KeyError) as error:
            if self._opened and not isinstance(error, ImportError):
                hint = "Check that its files are whole, and of a kind that pyiceberg reads."
                raise self._failure(Refused, error, hint) from error
            # pyiceberg's words for its own configuration
            hint = f"Correct the job's {self._setting}, or pyiceberg's configuration."
            raise self._failure(ConfigError, error, hint) from error
        except Exception as error:  # each catalog and file system has errors of its own
            raise self._failure(Unreachable, error, "Check that it is reachable, then run this again.") from error

    def _failure(self, kind: type[ReconcilerError], error: Exception, hint: str) -> ReconcilerError:
        return kind(f"The table {self.shown} could not be read: {one_line(error)}.", hint=hint)


def summary_of(snapshot: Any) -> dict[str, str]:
    """A snapshot's summary without its operation; empty where it has none."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def open_catalog(name: str, timeout_s: float) -> Any:
    """The catalog of that name. Of a REST catalog, every request ends after ``timeout_s`` without an answer."""
    from pyiceberg.catalog import TYPE, URI, CatalogType, infer_catalog_type, load_catalog
    from pyiceberg.utils.config import Config

    configured = Config().get_catalog_config(name) or {}
    if URI not in configured:
        return load_catalog(name)  # it has the words for what is missing, and knows the catalogs without a URI
    kind = configured[TYPE] if TYPE in configured else infer_catalog_type(name, configured)
    is_rest = kind is CatalogType.REST or str(kind).lower() == CatalogType.REST.value
    return _rest_catalog(name, timeout_s, configured) if is_rest else load_catalog(name)


def _rest_catalog(name: str, timeout_s: float, configured: Any) -> Any:
    """pyiceberg's REST catalog, with a time limit in each of its sessions.

    pyiceberg sets none (``RestCatalog._create_session`` of 0.12). A request that its caller has given up would keep a
    thread and a connection forever, and in a watcher one more each round.
    """
    from pyiceberg.catalog.rest import RestCatalog

    def limited(session: Any) -> Any:
        session.request = partial(type(session).request, session, timeout=timeout_s)
        return session

    class LimitedCatalog(RestCatalog):  # type: ignore[misc]
        def _create_session(self) -> Any:
            return limited(super()._create_session())

        def _create_legacy_oauth2_auth_manager(self, session: Any) -> Any:
            """It asks for a token at once, by the session that is being made."""
            return super()._create_legacy_oauth2_auth_manager(limited(session))

    return LimitedCatalog(name, **configured)
