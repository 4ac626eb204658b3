"""The content of a Structured Streaming checkpoint, for users and programs to inspect.

    from reconciler.places.checkpoint.show import describe

    print(describe("/data/checkpoints/clicks").to_json())

Plain Python: needs no pyspark. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import Any

from reconciler.core import json_fields
from reconciler.core.anchors import encodable
from reconciler.core.json_fields import FieldError
from reconciler.core.text import whole_number
from reconciler.places.checkpoint.log import batch_of
from reconciler.places.checkpoint.reading import read_folder, read_manifest
from reconciler.places.checkpoint.restart import Checkpoint
from reconciler.places.folder import Folder, open_folder

FORMAT = "reconciler.checkpoint/1"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. ``name`` and ``partitions`` are None where Spark recorded none (before 3.5)."""

    number: int
    name: str | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything known about a checkpoint. ``watermark_ms`` (epoch ms) is the last batch's."""

    path: str
    found: Checkpoint
    commit_version: int | None
    watermark_ms: int | None
    operators: tuple[Operator, ...]
    state_provider: str | None
    cloned_from: str | None

    def text_of(self, source: str) -> str | None:
        """The source's offset as written in the log."""
        line = self.found.last.source(source) if self.found.last is not None else None
        return line.text if line is not None else None

    def to_json(self) -> dict[str, Any]:
        """JSON values, format ``reconciler.checkpoint/1``."""
        found, last, late = self.found, self.found.last, self.found.behind
        return {
            "format": FORMAT,
            "path": self.path,
            "query_id": found.query_id,
            "last_batch": last.batch if last else None,
            "committed": found.committed,
            "next_batch": found.next_batch,
            "repeats": found.repeats_a_batch,
            "numbers_missing": bool(found.missing),
            "missing": [list(each) for each in found.missing],
            "offset_version": last.version if last else None,
            "commit_version": self.commit_version,
            "planned_at_ms": last.planned_at_ms if last else None,
            "watermark_ms": self.watermark_ms,
            "sources": [
                {
                    "name": each.name,
                    "kafka": each.start is not None or each.end is not None,
                    "text": self.text_of(each.name),
                    "start": _by_topic(each.start),
                    "end": _by_topic(each.end),
                }
                for each in found.positions
            ],
            "state": {"provider": self.state_provider, "operators": [asdict(each) for each in self.operators]},
            "cloned_from": self.cloned_from,
            "behind": late and {"tracking": late.tracking.name.lower(), "step_ms": late.step_ms},
            "warnings": list(found.doubts),
        }


def describe(path: str | PathLike[str]) -> Description:
    """The checkpoint at a local path or a URL. Raises as ``read_checkpoint`` does."""
    folder = open_folder(fspath(path))
    found = read_folder(folder)
    metadata = _metadata(found.last.metadata) if found.last is not None else {}
    provider, watermark = _text(metadata.get("conf"), PROVIDER), metadata.get("batchWatermarkMs")
    return Description(
        path=folder.shown,
        found=found,
        commit_version=_commit_version(folder),
        watermark_ms=watermark if isinstance(watermark, int) else None,
        operators=tuple(_operators(folder)),
        state_provider=provider.rpartition(".")[2] if provider is not None else None,
        cloned_from=_text(read_manifest(folder), "from"),
    )


def _by_topic(offsets: Mapping[tuple[str, int], int] | None) -> dict[str, dict[str, int]] | None:
    if offsets is None:
        return None
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _metadata(line: str) -> dict[str, object]:
    try:
        return json_fields.json_object(line)
    except FieldError:
        return {}


def _numbers(folder: Folder, below: str) -> list[int]:
    """The numbers among a folder's names, in order."""
    return sorted(number for name in folder.names(below) if (number := batch_of(name)) is not None)


def _commit_version(folder: Folder) -> int | None:
    numbers = _numbers(folder, "commits")
    if not numbers:
        return None
    first, _, _ = folder.read(f"commits/{numbers[-1]}").partition(b"\n")
    return whole_number(first[1:].strip()) if first.startswith(b"v") else None


def _operators(folder: Folder) -> Iterator[Operator]:
    for number in _numbers(folder, "state"):
        partitions = len(_numbers(folder, f"state/{number}"))
        yield Operator(number, _operator_name(folder, f"state/{number}/_metadata"), partitions)


def _operator_name(folder: Folder, below: str) -> str | None:
    """The operator's name from its metadata: ``metadata`` (version 1), or the newest of ``v2``."""
    versions = _numbers(folder, f"{below}/v2")
    try:
        text = folder.read(f"{below}/v2/{versions[-1]}" if versions else f"{below}/metadata").decode()
        operator = json_fields.json_object(text.partition("\n")[2]).get("operatorInfo")
    except (FileNotFoundError, ValueError):
        return None
    return _text(operator, "operatorName")


def _text(content: object, key: str) -> str | None:
    found = content.get(key) if isinstance(content, dict) else None
    return found if isinstance(found, str) and encodable(found) else None
