"""Delta tables: a query's batches as the table's own transactions have them.

Source: Delta's protocol (``txn``: ``appId`` and ``version``), compared with tables that Delta 4.4 wrote. Spark's Delta
sink writes under the query's id, as the checkpoint's ``metadata`` has it; ``foreachBatch`` with ``txnAppId`` under a
name of the job's. A write whose version is not above the name's last is dropped. ``RESTORE`` takes back the rows, and
leaves the versions as they are.

``deltalake`` reads tables without a JVM; the login to a bucket comes from the environment, as it documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import Refused
from reconciler.sinks.taken import Taken
from reconciler.stores.delta.table import DeltaAt, is_restore, restored_version

RECENT = 100
"""Commits, counted from the newest, that are searched for one that wrote rows, or took them back."""
FAR = 1000
"""As ``RECENT``, where those do not reach back to the last batch."""
FEW = 10
"""As ``RECENT``, where each commit must be compared with the table before it."""


class DeltaSink:
    """The table at a path or URL. ``app_id``: the job's own ``txnAppId``; None where Delta's own sink writes."""

    knows_queries = True

    def __init__(self, path: str, app_id: str | None) -> None:
        self.app_id = app_id
        self.shown = without_secrets(f"delta:{path}{f'?app_id={app_id}' if app_id else ''}")
        self._at = DeltaAt(path, self.shown, "sink")

    @property
    def takes_every_batch(self) -> bool:
        return self.app_id is None

    def data_files(self) -> tuple[str, ...]:
        """The Parquet files that hold the table's rows; none if it does not exist.

        Raises Refused where the files alone do not show the rows: deleted ones, and columns under other names.
        """
        with self._at.errors():
            table = self._at.table()
            if table is None:
                return ()
            renames = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
            deletes = "deletionVectors" in (table.protocol().reader_features or ())
            files = tuple(table.file_uris())
        if renames or deletes:
            why = "has renamed columns" if renames else "may have deleted rows in its files"
            raise Refused(
                f"The table {self.shown} {why}, which only Delta's own reader knows.",
                hint="Add its jars: --conf spark.jars.packages=io.delta:delta-spark_…",
            )
        return files

    def last_taken(self, app_id: str | None) -> Taken:
        """The last version that the table has of this name. A table that does not exist yet has none."""
        assert app_id is not None, "knows_queries"
        with self._at.errors():
            table = self._at.table()
            last = None if table is None else table.transaction_version(app_id)
            if table is None or last is None:
                return Taken(None)
            recent = table.history(RECENT)
            brought = self._brought(recent, app_id, last)
            rows = None if brought is None else _rows(recent[brought])
            commits, whole = self._since(table, recent, brought, app_id, last)
            undone = self._undone(commits, app_id, last)
        return Taken(last, is_empty=rows == 0, has_records=bool(rows), whole=whole, undone=undone)

    def has_queries(self) -> bool:
        """Whether Delta's own sink has written one of the recent commits."""
        with self._at.errors():
            table = self._at.table()
            recent = [] if table is None else table.history(RECENT)
        return any("queryId" in (each.get("operationParameters") or {}) for each in recent)

    def _brought(self, recent: Sequence[Mapping[str, Any]], app_id: str, last: int) -> int | None:
        """Which of the commits, newest first, brought this version of the name; None if that is not found.

        A commit under the job's own name does not tell; the table before it does.
        """
        if self.app_id is None:
            return next((at for at, each in enumerate(recent) if _is_batch(each, app_id, last)), None)
        for at, commit in enumerate(recent[:FEW]):
            number = commit["version"]
            before = self._at.at_version(number - 1) if number > 0 else None
            if number > 0 and before is None:  # removed in time
                return None
            if before is None or before.transaction_version(app_id) != last:
                return at
        return None

    def _since(
        self, table: Any, recent: Sequence[Mapping[str, Any]], brought: int | None, app_id: str, last: int
    ) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """The commits newer than the one that brought this version, at least; and whether none of them is missing."""
        if brought is not None:
            return recent[:brought], True
        for limit in (RECENT, FAR):
            commits = recent if limit == RECENT else table.history(limit)
            is_rest = len(commits) < limit
            if is_rest and self._at.at_version(0) is not None:
                return commits, True  # the log from its beginning
            oldest = self._at.at_version(commits[-1]["version"]) if commits else None
            if oldest is not None and oldest.transaction_version(app_id) != last:
                return commits, True
            if is_rest:
                break
        return commits, False

    def _undone(self, commits: Sequence[Mapping[str, Any]], app_id: str, last: int) -> str:
        """How a RESTORE took this version's rows back; empty if none did."""
        below: int | None = None
        for commit in commits:
            version = commit["version"]
            if not is_restore(commit) or (below is not None and version > below):
                continue
            then = self._at.at_version(version)  # with the versions of right before it
            if then is not None and then.transaction_version(app_id) != last:
                return ""
            below = restored_version(commit)  # the commits between do not count
            led_to = None if below is None else self._at.at_version(below)
            if led_to is None:
                return f"version {version} of the table is a RESTORE, and whether it kept batch {last} is not known"
            if led_to.transaction_version(app_id) != last:
                return f"version {version} of the table is a RESTORE to version {below}, which lacks batch {last}"
        return ""


def _is_batch(commit: Mapping[str, object], app_id: str, version: int) -> bool:
    """Whether Delta's own sink made this commit, for this query's batch."""
    of = commit.get("operationParameters")
    return isinstance(of, dict) and of.get("queryId") == app_id and str(of.get("epochId")) == str(version)


def _rows(commit: Mapping[str, object]) -> int | None:
    metrics = commit.get("operationMetrics")
    rows = metrics.get("numOutputRows") if isinstance(metrics, dict) else None
    return int(rows) if rows is not None and str(rows).isdecimal() else None
