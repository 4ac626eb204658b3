"""Spark's file sink: it takes each batch's number once, and drops what comes under a number that it has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.failover.checkpoint.checkpoint_files import PLANNED


@dataclass
class FileSink:
    """``may_double``: a start was allowed by which records come twice; else that is an error."""

    folder: Path
    last: int = -1
    content: Counter[int] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    may_double: bool = False

    def take(self, batch: int, numbers: Iterable[int]) -> None:
        new = list(numbers)
        if batch <= self.last:
            lost = set(new) - set(self.content)
            assert not lost, f"the sink has batch {batch}, and drops {sorted(lost)}"
            return
        twice = set(new) & set(self.content)
        assert not twice or self.may_double, f"batch {batch} brings {sorted(twice)} again"
        self.content.update(new)
        self.last = batch
        entry = {"path": f"file://{self.folder}/{batch}.json", "size": 90 if new else 0, "isDir": False}
        line = json.dumps({**entry, "modificationTime": PLANNED, "action": "add"})
        self.lines.append(line)
        log = self.folder / "_spark_metadata"
        log.mkdir(parents=True, exist_ok=True)
        is_compacted = batch % 10 == 9
        lines = self.lines if is_compacted else [line]
        (log / (f"{batch}.compact" if is_compacted else str(batch))).write_text("\n".join(["v1", *lines]))
