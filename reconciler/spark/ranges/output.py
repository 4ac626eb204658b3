"""The output of ``hashed_files``: which files count, for readers with or without Spark.

    from reconciler.spark.ranges import output

    output.files("/srv/clicks")             # ["/srv/clicks/9f…-00000.parquet", …]
    output.read(spark, "/srv/clicks")       # a DataFrame of them

Below the output's path, ``_batches`` is the catalogue (Spark ignores names that begin with ``_``):

==============================  ========================================================================================
``NAME.begun.json``             a batch that is under way, or was when its run was killed; its files do not count yet
``NAME.staged``                 all files of that batch, as one run has written them
``NAME.lost.json``              another run of the group was first; this batch will be undone
``NAME.json``                   a batch whose offsets are saved: its files count
==============================  ========================================================================================

All are JSON in UTF-8 with a ``sha256`` over the rest, format ``reconciler.output/1``, each written atomically and never
changed. The files that count are those of the finished batches.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused, Unreachable
from reconciler.folder import Folder, open_folder
from reconciler.formats import range_manifests as range_lines
from reconciler.formats.json_fields import (
    INT32_MAX,
    INT64_MAX,
    FieldError,
    integer,
    json_object,
    required,
    required_text,
    string,
)
from reconciler.spark.ranges.planning import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "reconciler.output/1"
CATALOGUE = "_batches"
LISTINGS = 20
"""How often the catalogue is listed again if listed files vanish."""

BEGUN, LOST, DONE = ".begun.json", ".lost.json", ".json"
STAGED = ".staged"
"""Without .json: an installation that does not know it would take it for a batch that counts."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One partition in a batch: its range, and its stored row before (None: none) and after."""

    range: OffsetRange
    before: StoredOffset | None = None
    after: StoredOffset | None = None


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One file of the catalogue; ``files`` are relative to the output's path."""

    name: str
    group: str = ""
    files: tuple[str, ...] = ()
    parts: tuple[BatchPart, ...] = ()
    written_at_ms: int = 0

    @property
    def offsets(self) -> int:
        """How many offsets its ranges have together."""
        return sum(part.range.offsets for part in self.parts)


@dataclass(frozen=True, slots=True)
class Contents:
    """The batches that count, by name, and the names of those under way."""

    batches: Mapping[str, CatalogueEntry]
    begun: frozenset[str]

    @property
    def files(self) -> list[str]:
        return [each for name in sorted(self.batches) for each in self.batches[name].files]


def files(path: str, *, catalogue: str | None = None) -> list[str]:
    """The files that count, as full paths, in no particular order. Raises as ``Catalogue`` does."""
    found = Catalogue(open_folder(catalogue or f"{path.rstrip('/')}/{CATALOGUE}")).contents()
    return [f"{path.rstrip('/')}/{name}" for name in found.files]


def read(
    spark: SparkSession, path: str, *, catalogue: str | None = None, schema: Any = None, format: str = "parquet"
) -> DataFrame:
    """All rows that count now. ``schema`` is needed only while there are none.

    Raises Refused if there is nothing to read and no schema, else as ``files`` does.
    """
    found = files(path, catalogue=catalogue)
    if found:
        reader = spark.read if schema is None else spark.read.schema(schema)
        return reader.format(format).load(found)
    if schema is None:
        raise Refused(f"{path} has no finished batch yet.", hint="Give a schema to read nothing, or wait for one.")
    return spark.createDataFrame([], schema)


class Catalogue:
    """The catalogue in a folder. Raises the folder's errors, and Refused for a file in an unknown format."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def contents(self) -> Contents:
        for _ in range(LISTINGS):
            try:
                return self._contents()
            except FileNotFoundError:
                continue  # another run has undone a listed batch
        raise Unreachable(
            f"The files of {self.folder.shown} vanish while they are read.", hint="Find out which program removes them."
        )

    def _contents(self) -> Contents:
        names = self.folder.names()
        begun = {name.removesuffix(BEGUN) for name in names if name.endswith(BEGUN)}
        batches = {}
        for name in names:
            if _is_done(name) and (entry := self.load(name)) is not None:
                batches[entry.name] = entry
        return Contents(batches, frozenset(begun))

    def done(self) -> list[str]:
        """The names of all finished batches."""
        return sorted(name.removesuffix(DONE) for name in self.folder.names() if _is_done(name))

    def counted_beside(self, name: str) -> list[CatalogueEntry]:
        """The finished batches; none if the one of this name is finished itself."""
        names = self.done()
        found = [] if name in names else [self.find(each + DONE) for each in names]
        return [entry for entry in found if entry is not None]

    def begun(self) -> list[CatalogueEntry]:
        """Batches that are under way, or were when their run was killed."""
        found = []
        for name in sorted(name for name in self.folder.names() if name.endswith(BEGUN)):
            try:
                entry = self.load(name)
            except FileNotFoundError:  # another run has finished or undone it since it was listed
                continue
            if entry is None:  # incomplete: its run was killed before it wrote anything else
                self.folder.remove(name)
            else:
                found.append(entry)
        return found

    def has(self, name: str) -> bool:
        """Whether the catalogue has this file, without a list of all files: each batch asks."""
        try:
            self.folder.read(name)
        except FileNotFoundError:
            return False
        return True

    def find(self, name: str) -> CatalogueEntry | None:
        """None for a file that does not exist, or was not written completely."""
        try:
            return self.load(name)
        except FileNotFoundError:
            return None

    def load(self, name: str) -> CatalogueEntry | None:
        """None for a file that was not written completely. Raises FileNotFoundError."""
        data = self.folder.read(name)
        entry = loads(data, f"{self.folder.shown}/{name}")
        if entry is None:
            log.warning("the file %s/%s is ignored: it is incomplete", self.folder.shown, name)
        return entry

    def put(self, name: str, entry: CatalogueEntry) -> bool:
        """Write a file of the catalogue; False if it exists already. An incomplete one is replaced."""
        try:
            self.folder.publish(name, dumps(entry))
        except FileExistsError:
            try:
                if self.load(name) is not None:
                    return False
            except FileNotFoundError:
                return False  # another run has removed it since: it was there
            self.folder.remove(name)
            self.folder.publish(name, dumps(entry))
        return True


def _is_done(name: str) -> bool:
    return name.endswith(DONE) and not name.endswith((BEGUN, LOST))


# ---------------------------------------------------------------- bytes


def dumps(entry: CatalogueEntry) -> bytes:
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": entry.name,
        "group": entry.group,
        "written_at_ms": entry.written_at_ms,
        "files": list(entry.files),
        "ranges": [_dumped(part) for part in entry.parts],
    }
    return json.dumps({**content, "sha256": _sum(content)}, separators=(",", ":")).encode() + b"\n"


def loads(data: bytes, shown: str) -> CatalogueEntry | None:
    """None for incomplete bytes. Raises Refused for complete content in another format."""
    try:
        content: dict[str, Any] = json_object(data.decode())
        stated = content.pop("sha256")
    except (ValueError, KeyError):
        return None
    if stated != _sum(content) or content.get("format") != FORMAT:
        raise Refused(
            f"{shown} is not of the format {FORMAT}, or was altered.",
            hint="Upgrade this installation if a newer one wrote it; else restore it.",
        )
    try:
        return CatalogueEntry(
            required(string(content, "name"), "name"),
            required(string(content, "group"), "group"),
            _texts(content, "files"),
            tuple(_part(each) for each in _items(content, "ranges")),
            required(integer(content, "written_at_ms"), "written_at_ms"),
        )
    except FieldError as error:
        raise Refused(f"{shown} cannot be read: {error}.", hint="Find out which program wrote it.") from error


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _dumped(part: BatchPart) -> dict[str, Any]:
    each = part.range
    found: dict[str, Any] = {"topic": each.topic, "partition": each.partition}
    found |= {"from": each.from_offset, "until": each.until_offset}
    for side, stored in (("before", part.before), ("after", part.after)):
        if stored is not None:
            found[side] = json.loads(range_lines.line_of(each.topic, each.partition, stored))
            found[side]["written_at_ms"] = stored.written_at_ms
    return found


def _items(content: Mapping[str, Any], key: str) -> list[object]:
    found = content.get(key)
    if not isinstance(found, list):
        raise FieldError(key, "is not a list")
    return found


def _texts(content: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(required(string({key: each}, key), key) for each in _items(content, key))


def _part(content: object) -> BatchPart:
    if not isinstance(content, dict):
        raise FieldError("ranges", "holds what is no object")
    numbers = (
        required(integer(content, key, 0, most), key)
        for key, most in (("partition", INT32_MAX), ("from", INT64_MAX), ("until", INT64_MAX))
    )
    read = OffsetRange(required_text(content, "topic"), *numbers)
    sides = []
    for side in ("before", "after"):
        line = content.get(side)
        sides.append(None if line is None else range_lines.parse_range(json.dumps(line), None).stored)
    return BatchPart(read, *sides)
