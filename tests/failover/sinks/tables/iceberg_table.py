"""An Iceberg table made by hand, of which only the metadata is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.failover.checkpoint.checkpoint_files import QUERY


class Iceberg:
    """A table by hand: only its metadata file, which is all that is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshots: list[dict[str, Any]] = []

    def add(self, summary: dict[str, str], expired: int = 0) -> None:
        number = len(self.snapshots) + 1
        made = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": 1_000_000 + number, "schema-id": 0}
        made |= {"manifest-list": f"{self.folder}/{number}.avro", "summary": {"operation": "append", **summary}}
        self.snapshots.append(made | ({"parent-snapshot-id": number - 1} if number > 1 else {}))
        self._write(expired)

    def batch(self, epoch: int, query: str = QUERY, rows: int = 5, expired: int = 0) -> None:
        self.add(
            {
                "spark.sql.streaming.queryId": query,
                "spark.sql.streaming.epochId": str(epoch),
                "added-records": str(rows),
            },
            expired,
        )

    def rolled_back(self, to: int, expired: int = 1) -> None:
        """The table after ``rollback_to_snapshot``: the later snapshots are there until they expire."""
        self._write(expired, to)

    def _write(self, expired: int, current: int | None = None) -> None:
        content = {
            **{"format-version": 2, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": str(self.folder)},
            **{"last-sequence-number": len(self.snapshots), "last-updated-ms": 2_000_000, "last-column-id": 1},
            "schemas": [
                {
                    **{"type": "struct", "schema-id": 0, "identifier-field-ids": []},
                    "fields": [{"id": 1, "name": "id", "required": False, "type": "int"}],
                }
            ],
            **{"current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0},
            **{"last-partition-id": 999, "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0},
            **{
                "properties": {},
                "current-snapshot-id": current or len(self.snapshots),
                "snapshots": self.snapshots[expired:],
            },
        }
        (self.folder / "metadata").mkdir(parents=True, exist_ok=True)
        file = self.folder / "metadata" / f"v{len(self.snapshots)}.metadata.json"
        file.write_text(json.dumps(content))
