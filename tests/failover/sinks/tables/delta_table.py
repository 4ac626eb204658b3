"""A Delta table made by hand, of which only the log is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.failover.checkpoint.checkpoint_files import QUERY

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}]}


class Delta:
    """A table by hand: commits as Delta 4.4 writes them, without their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        (folder / "_delta_log").mkdir(parents=True)
        table: dict[str, Any] = {"id": "9c12d441", "format": {"provider": "parquet", "options": {}}}
        table |= {"partitionColumns": [], "schemaString": json.dumps(SCHEMA), "configuration": {}}
        self.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": table})

    def commit(self, *actions: dict[str, Any]) -> None:
        path = self.folder / "_delta_log" / f"{self.version:020}.json"
        path.write_text("\n".join(map(json.dumps, actions)))
        self.version += 1

    def batch(self, number: int, rows: int = 5, app_id: str | None = None) -> None:
        """By Delta's own sink, or by ``foreachBatch`` under a name of the job's."""
        commit: dict[str, Any] = {"timestamp": 1, "operation": "STREAMING UPDATE", "operationParameters": {}}
        if app_id is None:
            commit["operationParameters"] = {"queryId": QUERY, "epochId": str(number), "outputMode": "Append"}
        else:
            commit["operation"] = "WRITE"
        commit["operationMetrics"] = {"numAddedFiles": "0", "numOutputRows": str(rows)}
        self.commit({"commitInfo": commit}, {"txn": {"appId": app_id or QUERY, "version": number, "lastUpdated": 1}})
