"""The content of a Structured Streaming checkpoint, for users and programs to inspect.

    from reconciler.checkpoints.show import describe

    found = describe("/data/checkpoints/clicks")
    print(found.last_batch, found.committed, [source.name for source in found.sources])

Plain Python: needs no pyspark. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from reconciler.checkpoints.log import batch_of
from reconciler.checkpoints.reading import MANIFEST, read_checkpoint
from reconciler.checkpoints.restart import Checkpoint, LateLog, SourcePosition
from reconciler.core.anchors import encodable
from reconciler.folder import Folder, open_folder
from reconciler.formats import json_fields
from reconciler.formats.decimal_text import whole_number
from reconciler.formats.json_fields import FieldError

FORMAT = "reconciler.checkpoint/1"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class Source:
    """One source. ``text`` is its offset as written in the log; ``start`` and ``end`` are as in ``SourcePosition``."""

    name: str
    text: str | None
    start: Mapping[tuple[str, int], int] | None
    end: Mapping[tuple[str, int], int] | None


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. ``name`` and ``partitions`` are None where Spark recorded none (before 3.5)."""

    number: int
    name: str | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything known about a checkpoint.

    ``last_batch`` None: no batch was planned. ``next_batch``: the batch that a restart runs; ``repeats``: it was begun
    before. ``missing``: the first and the last number of each gap in the offset log; ``missing_words`` says what may
    have left the newest. ``behind``: the query may have put out more than its log says. ``watermark_ms`` and
    ``planned_at_ms`` (epoch ms) are the last batch's. ``warnings``: what is odd about its files, without full stops.
    """

    path: str
    query_id: str | None
    last_batch: int | None
    committed: bool
    next_batch: int
    repeats: bool
    missing: tuple[tuple[int, int], ...]
    offset_version: int | None
    commit_version: int | None
    planned_at_ms: int | None
    watermark_ms: int | None
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    state_provider: str | None
    cloned_from: str | None
    behind: LateLog | None = None
    missing_words: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def numbers_missing(self) -> bool:
        """Whether the offset log has gaps."""
        return bool(self.missing)

    def to_json(self) -> dict[str, Any]:
        """JSON values, format ``reconciler.checkpoint/1``."""
        return {
            "format": FORMAT,
            "path": self.path,
            "query_id": self.query_id,
            "last_batch": self.last_batch,
            "committed": self.committed,
            "next_batch": self.next_batch,
            "repeats": self.repeats,
            "numbers_missing": self.numbers_missing,
            "missing": [list(each) for each in self.missing],
            "offset_version": self.offset_version,
            "commit_version": self.commit_version,
            "planned_at_ms": self.planned_at_ms,
            "watermark_ms": self.watermark_ms,
            "sources": [
                {
                    "name": each.name,
                    "kafka": each.start is not None or each.end is not None,
                    "text": each.text,
                    "start": _by_topic(each.start),
                    "end": _by_topic(each.end),
                }
                for each in self.sources
            ],
            "state": {
                "provider": self.state_provider,
                "operators": [
                    {"number": each.number, "name": each.name, "partitions": each.partitions} for each in self.operators
                ],
            },
            "cloned_from": self.cloned_from,
            "behind": None
            if self.behind is None
            else {"tracking": self.behind.tracking.name.lower(), "step_ms": self.behind.step_ms},
            "warnings": list(self.warnings),
        }


def describe(path: str | PathLike[str]) -> Description:
    """The checkpoint at a local path or a URL. Raises as ``read_checkpoint`` does."""
    found = read_checkpoint(fspath(path))
    folder = open_folder(fspath(path))
    last = found.last
    metadata = _metadata(last.metadata) if last is not None else {}
    provider = _text(metadata.get("conf"), PROVIDER)
    return Description(
        path=folder.shown,
        query_id=found.query_id,
        last_batch=last.batch if last else None,
        committed=found.committed,
        next_batch=found.next_batch,
        repeats=found.repeats_a_batch,
        missing=found.missing,
        offset_version=last.version if last else None,
        commit_version=_commit_version(folder),
        planned_at_ms=last.planned_at_ms if last else None,
        watermark_ms=_integer(metadata, "batchWatermarkMs"),
        sources=tuple(_source(found, position) for position in found.positions),
        operators=tuple(_operators(folder)),
        state_provider=provider.rpartition(".")[2] if provider is not None else None,
        cloned_from=_cloned_from(folder),
        behind=found.behind,
        missing_words=found.missing_words(),
        warnings=found.doubts,
    )


def _source(found: Checkpoint, position: SourcePosition) -> Source:
    line = found.last.source(position.name) if found.last is not None else None
    return Source(position.name, line.text if line is not None else None, position.start, position.end)


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


def _integer(fields: Mapping[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) else None


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


def _cloned_from(folder: Folder) -> str | None:
    try:
        return _text(json_fields.json_object(folder.read(MANIFEST).decode()), "from")
    except (FileNotFoundError, ValueError):
        return None


def _text(content: object, key: str) -> str | None:
    found = content.get(key) if isinstance(content, dict) else None
    return found if isinstance(found, str) and encodable(found) else None
