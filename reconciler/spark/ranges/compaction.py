"""Merge the small files that ``hashed_files`` leaves, without a reader ever seeing both old and new.

    from reconciler.spark.ranges.compaction import compact

    compact(spark, "/srv/clicks", target_bytes=256 * 2**20)      # or: reconciler compact /srv/clicks

Theory of operation. The newest snapshot of the catalogue names the files that count (``output``). A compaction

    1. removes files that no reader can have been given for ``grace_ms``
    2. reads the files that are smaller than half of ``target_bytes`` and count now, and writes them merged into
       ``_compacted``, where a reader that lists the directory does not look. What it has written is larger than that,
       but for a small rest: so a row is merged once or twice, however often compactions run
    3. makes the next snapshot, in one step: it names every file that counts, and the batches that it replaces

If it is killed before 3, nothing has changed; step 1 removes files in ``_compacted`` that no snapshot names. Of two
compactions only one makes the next snapshot; the other fails with Changed. A batch that ends meanwhile is not named by
the snapshot, and counts beside it. One that is still under way is left alone.

Readers that called ``output.files`` before 3 continue with the old files, which stay for ``grace_ms``. A reader that
lists the directory itself sees the old files until they are removed, and never the merged ones: it never sees both, but
after the first compaction it misses the merged records.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.clock import clock_ms
from reconciler.core.errors import Changed, ConfigError
from reconciler.folder import open_folder
from reconciler.spark.ranges.hadoop import Directory
from reconciler.spark.ranges.output import CATALOGUE, Catalogue, CatalogueEntry, snapshot_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTED = "_compacted"
TARGET_BYTES = 256 * 2**20
GRACE_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction's result: how many files count before and after, and how many old ones were removed."""

    before: int
    after: int
    removed: int


def compact(
    spark: SparkSession,
    path: str,
    *,
    catalogue: str | None = None,
    target_bytes: int = TARGET_BYTES,
    grace_ms: int = GRACE_MS,
    now_ms: Callable[[], int] = clock_ms,
) -> Compacted:
    """Merge files smaller than half of ``target_bytes`` into files of about that size.

    Raises Changed if another compaction was first (nothing was changed), ConfigError if there is no catalogue, and the
    catalogue's errors.
    """
    root = path.rstrip("/")
    listed = Catalogue(open_folder(catalogue or f"{root}/{CATALOGUE}"))
    if not listed.folder.exists():
        raise ConfigError(
            f"{path} is no output of range batches: it has no catalogue at {listed.folder.shown}.",
            hint="Correct the path; if the catalogue is elsewhere, name its place (--catalogue).",
        )
    directory = Directory(spark, root)
    found = listed.contents()
    removed = _remove_old(directory, listed, now_ms() - grace_ms)
    before = len(found.files)
    settled = {name: entry for name, entry in found.batches.items() if name not in found.begun}
    counted = [*(found.snapshot.files if found.snapshot else ()), *(f for e in settled.values() for f in e.files)]
    small, parts = to_merge({name: directory.size(name) for name in counted}, target_bytes)
    if len(small) < 2:
        return Compacted(before, before, removed)
    merged = _merge(spark, directory, small, parts)
    replaced = {*(found.snapshot.replaces if found.snapshot else ()), *settled}
    kept = [name for name in counted if name not in set(small)]
    number = found.number + 1
    # Batches whose files of the catalogue are gone need not be named again: they cannot come back.
    replaces = tuple(sorted(replaced & set(listed.done())))
    entry = CatalogueEntry(snapshot_name(number), "", (*kept, *merged), (), replaces, now_ms())
    if not listed.put(snapshot_name(number), entry):
        raise Changed(
            f"Another compaction of {root} was first; nothing was changed.", hint="Run one compaction at a time."
        )
    return Compacted(before, before - len(small) + len(merged), removed)


def to_merge(sizes: Mapping[str, int], target_bytes: int) -> tuple[list[str], int]:
    """Which files are small, by name, and into how many they are to be merged.

    That many are rounded: each is then at least two thirds of the target, if all of them together are.
    """
    small = sorted(name for name, size in sizes.items() if size < target_bytes / 2)
    return small, max(1, round(sum(sizes[name] for name in small) / target_bytes))


def _merge(spark: SparkSession, directory: Directory, names: list[str], parts: int) -> list[str]:
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
    aside = f"{COMPACTED}/_writing-{digest}-{time.time_ns()}"
    frame = spark.read.option("mergeSchema", "true").parquet(*(f"{directory.path}/{name}" for name in names))
    try:
        frame.coalesce(parts).write.parquet(f"{directory.path}/{aside}")
        written = [name for name in directory.names(aside) if name.endswith(".parquet")]
        merged = [f"{COMPACTED}/{digest}-{time.time_ns()}-{place:05d}.parquet" for place in range(len(written))]
        for old, new in zip(written, merged, strict=True):
            directory.move(f"{aside}/{old}", new)
    finally:
        directory.remove(aside)
    return merged


def _remove_old(directory: Directory, listed: Catalogue, since_ms: int) -> int:
    """Remove files that have not counted since ``since_ms`` (epoch ms); returns how many files of data.

    At that moment the last snapshot before it counted, and the batches that it does not name.
    """
    snapshots = listed.snapshots()
    then = next((each for each in reversed(snapshots) if each.written_at_ms <= since_ms), None)
    later = snapshots if then is None else snapshots[snapshots.index(then) :]
    there = set(listed.folder.names())
    superfluous = [] if then is None else [f"{name}.json" for name in then.replaces]
    entries = [(name, listed.load(name)) for name in superfluous if name in there]
    entries += [(each.name, each) for each in snapshots if each not in later]
    named = {file for each in later for file in each.files}
    removed = 0
    for name, entry in entries:
        old = [file for file in (entry.files if entry else ()) if file not in named]
        for file in old:
            directory.remove(file)
        listed.folder.remove(name)
        removed += len(old)
    for name in directory.names(COMPACTED):
        file = f"{COMPACTED}/{name}"
        # A young one may belong to a compaction that is under way.
        if file not in named and directory.modified_ms(file) <= since_ms:
            directory.remove(file)
            removed += 1
    return removed
