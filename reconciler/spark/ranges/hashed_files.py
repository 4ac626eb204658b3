"""Exactly once, into files: a batch's files are named after the hash of its ranges, and count once.

    sink = HashNamedFiles("/srv/clicks")
    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="files:/srv/clicks/_offsets")
    job.run(exactly_once(lambda frame, ranges: frame.selectExpr("CAST(value AS STRING) AS text"), into=sink))
    output.read(spark, "/srv/clicks").count()

Theory of operation. The steps of a batch, each atomic, and what a restart does if the run was killed after it
(``settle``; the layout is that of ``output``):

    1. begun: its ranges, and the rows before and after, are written      runs the very same ranges again
    2. its files are written aside, then renamed                          the same: the others are removed in 5
    3. staged: the catalogue names all its files                          the same, without writing files again
    4. its offsets are saved (the store's compare-and-set)                finishes: 5 and 6
    5. done: the staged files count from now on; others are removed       6
    6. begun and staged are removed

The stored rows show whether step 4 happened, even if a failover has corrected them meanwhile
(``interrupted.is_saved``). If it did not, and the job now reads another cluster, the batch is undone and its records
are read there. It is undone, too, if compaction has removed its last records meanwhile: the rows after it would be
others than those that were written in step 1. So it is if a person has corrected one of the rows before it: step 4
cannot happen any more (``is_overtaken``); and if batches that count hold all of its records: then another run of the
group has saved the rows that it would have saved (``holds_all``). If the rows do not show it, or batches that count
contradict them (``is_contradicted``), the batch needs a decision: ``unfinished="keep"`` or ``"drop"``.

Of two runs of one group that write the same batch, the first that has staged all its files decides which files count;
each run's files have names of their own, so that none replaces or removes another's that may count. A run whose batch
another has undone meanwhile saves no offsets for it, even if the other has begun it again.

A batch that counts already is run again only if its stored offsets were set back, by a rollback for example. As long as
the catalogue has it, its files stay as they are: the results of the same records are the same. Other ranges of the same
records are another batch, whose rows count too.

Who is protected: readers of the catalogue (``output.files``, ``output.read``) see each record once, at any moment. A
plain ``spark.read.parquet(path)`` lists files: it may see a batch before its offsets are saved, in part, or as two runs
have written it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, ConfigError, NeedsPerson
from reconciler.folder import LocalFolder, open_folder
from reconciler.formats.decimal_text import some
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from reconciler.spark.ranges import interrupted, output
from reconciler.spark.ranges.hadoop import Directory
from reconciler.spark.ranges.offsets import as_they_are, refuse_conflicts, require_atomic
from reconciler.spark.ranges.output import BEGUN, CATALOGUE, DONE, LOST, STAGED, BatchPart, Catalogue, CatalogueEntry
from reconciler.spark.ranges.planning import LogEdges, OffsetRange, name_of
from reconciler.spark.ranges.sinks import RangeBatch, RangeSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

WRITING = "_writing"


class HashNamedFiles(RangeSink):
    """A sink of Parquet files below ``path``, which belongs to one job.

    ``catalogue`` is the catalogue's address for fsspec if it is not in ``path``, for example ``webhdfs://…`` where
    Spark's path is ``hdfs://…``. ``files`` is the number of files per batch (None: one per task). ``unfinished`` is a
    person's decision on a batch whose offsets may or may not have been saved. ``options`` go to Spark's writer
    (``compression``).
    """

    needs_rows = True

    def __init__(
        self,
        path: str,
        *,
        catalogue: str | None = None,
        files: int | None = None,
        unfinished: Literal["stop", "keep", "drop"] = "stop",
        options: Mapping[str, str] | None = None,
    ) -> None:
        if unfinished not in ("stop", "keep", "drop"):
            raise ConfigError(f"unfinished={unfinished!r} is not known.", hint='Use "stop", "keep" or "drop".')
        if files is not None and files < 1:
            raise ConfigError(f"files={files} is not a number of files.", hint="Give 1 or more, or None.")
        self._path = path.rstrip("/")
        self._beside = catalogue is None
        self._catalogue = Catalogue(open_folder(catalogue or f"{self._path}/{CATALOGUE}"))
        self._files = files
        self._unfinished = unfinished
        self._options = dict(options or {})
        self._again: CatalogueEntry | None = None
        self._rows: Mapping[TopicPartition, Row] = {}
        self._begun: CatalogueEntry | None = None
        """The batch of this run as the catalogue has it: a rival may undo it, and begin it again with other rows."""
        self._directory: Directory | None = None
        self._store: OffsetStore | None = None
        self._has_rewritten = False

    def check(self, store: OffsetStore) -> None:
        """Raise Refused for a store that may write only some of a batch's rows."""
        require_atomic(store, "a restart could not decide whether a batch was saved")
        self._store = store

    def has_rewritten(self) -> bool:
        found, self._has_rewritten = self._has_rewritten, False
        return found

    # ------------------------------------------------------------ before a batch

    def settle(self, spark: SparkSession, group: str, rows: Mapping[TopicPartition, Row]) -> None:
        """Finish or undo batches that were begun. Creates the catalogue's folder.

        Raises NeedsPerson if the rows do not show which, and ConfigError for a path that means two places.
        """
        directory = Directory(spark, self._path)
        if self._directory is None:
            self._require_one_place(directory)
            if not self._catalogue.folder.exists():
                self._catalogue.folder.make()
        self._directory = directory
        self._again = None
        self._rows = rows
        stored = {at: row.stored for at, row in rows.items()}
        # The largest first: if it was saved, it may hold all of a smaller one, which then was not.
        for entry in sorted(self._catalogue.begun(), key=lambda each: each.offsets, reverse=True):
            if entry.group != group:
                raise ConfigError(
                    f"{self._path} is the output of group {entry.group}, not of {group}.",
                    hint="Give each job its own path.",
                )
            saved, is_lost = interrupted.is_saved(entry, stored), self._mark_of(entry, LOST) is not None
            others = [] if saved is False else self._catalogue.counted_beside(entry.name)
            if saved and interrupted.is_contradicted(entry, stored, others):
                saved = None
            if saved is None and not is_lost:
                if self._are_older(group, stored):
                    self._has_rewritten = True
                    return
                saved = self._decided_by_person(entry)
            if saved and not interrupted.holds_all(others, entry):
                self._finish(entry)
            elif saved or is_lost or self._again is not None or interrupted.is_overtaken(entry, stored):
                self._undo(entry)
            else:
                self._again = entry

    def unfinished(self, group: str, log: LogEdges) -> tuple[OffsetRange, ...] | None:
        """The ranges to run again. If they can no longer be read, the batch is undone instead."""
        entry, self._again = self._again, None
        if entry is None:
            return None
        ranges = tuple(part.range for part in entry.parts)
        gone = [
            each
            for each in ranges
            if each.from_offset < log.starts.get(each.at, 0) or each.until_offset > log.ends.get(each.at, 0)
        ]
        if name_of(ranges, log.cluster) != entry.name or gone:
            self._undo(entry)
            return None
        return ranges

    def _require_one_place(self, directory: Directory) -> None:
        """Raise ConfigError where Spark would write elsewhere than beside the catalogue.

        A path without a scheme is one of Hadoop's default file system to Spark, and one of this machine's disk here:
        the driver on another machine would find no catalogue, and start over.
        """
        folder, scheme = self._catalogue.folder, directory.scheme
        if self._beside and isinstance(folder, LocalFolder) and scheme != "file":
            raise ConfigError(
                f"The path {self._path} names no file system: Spark's default (fs.defaultFS) is {scheme}:, and the "
                "catalogue would be on this machine's disk. No result was written.",
                hint="Write file:///PATH for the disk; or path and catalogue with their schemes, like "
                '"hdfs://HOST/clicks" and catalogue="webhdfs://HOST:9870/clicks/_batches", give that catalogue to '
                "output.read(), too, and keep the offsets where every machine finds them: files:/PATH is on this "
                f'disk. An output whose catalogue is on this disk already goes on with catalogue="{folder.shown}".',
            )

    def _are_older(self, group: str, stored: Mapping[TopicPartition, StoredOffset]) -> bool:
        """Whether other runs have written the rows since they were read, and begun what these cannot tell."""
        return self._store is not None and {row.key: row.stored for row in self._store.read(group)} != stored

    def _decided_by_person(self, entry: CatalogueEntry) -> bool:
        if self._unfinished != "stop":
            _log.warning("the batch %s of %s is decided by hand: %s", entry.name, self._path, self._unfinished)
            return self._unfinished == "keep"
        raise NeedsPerson(
            f"The batch {entry.name} of {self._path} ({some([str(part.range) for part in entry.parts])}) was under way "
            "when its run ended, and the stored offsets are neither all those before it nor all those after it.",
            hint="If its records will be read again, or another run has saved a batch of its own since (two runs "
            'overlapped), start once with HashNamedFiles(unfinished="drop"). Only if this very batch was saved and its '
            "offsets were replaced since, so that its records lie before the stored ones and in no other batch, use "
            'unfinished="keep".',
        )

    # ------------------------------------------------------------ a batch

    def begin(self, batch: RangeBatch, changes: Sequence[Change]) -> bool:
        """False for a batch that was begun before with other last records, which compaction has removed since."""
        after = {change.key: change.new for change in changes if change.new is not None}
        before = {at: row.stored for at, row in batch.rows.items()}
        parts = tuple(BatchPart(each, before.get(each.at), after.get(each.at)) for each in batch.ranges)
        written_at_ms = max((new.written_at_ms or 0 for new in after.values()), default=0)
        entry = CatalogueEntry(batch.name, batch.group, parts=parts, written_at_ms=written_at_ms)
        if self._catalogue.put(batch.name + BEGUN, entry):
            self._begun = output.loads(output.dumps(entry), batch.name + BEGUN)
            return True
        there = self._catalogue.find(batch.name + BEGUN)  # None: another run has just finished or undone it
        if there is None or not _starts_alike(there, entry):
            raise Changed(
                f"Another run has begun the batch {batch.name} of {self._path} from other rows.",
                hint="Run one job per group.",
            )
        if _ends(there) == _ends(entry):
            self._begun = there
            return True
        self.abandon(batch)
        return False

    def abandon(self, batch: RangeBatch) -> None:
        """Have ``settle`` undo the batch, unless the rows show that its offsets were saved after all."""
        there = self._catalogue.find(batch.name + BEGUN)
        if there is not None:
            self._mark(there, LOST)

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the batch's files, unless they count already or a run has staged all of them."""
        if self._catalogue.has(batch.name + DONE):
            self._require_begun(batch)
            _log.warning(
                "the batch %s of %s counts already: its files stay, and the results of this run are not written",
                batch.name,
                self._path,
            )
            return
        if self._begun is not None and self._mark_of(self._begun, STAGED) is not None:
            _log.info("the files of batch %s of %s were written before", batch.name, self._path)
            return
        directory, attempt = self._opened(), f"{batch.name}-{secrets.token_hex(4)}"
        aside = f"{WRITING}/{attempt}"
        frame = results if self._files is None else results.repartition(self._files)
        names: list[str] = []
        may_count = False
        try:
            frame.write.options(**self._options).mode("overwrite").parquet(f"{self._path}/{aside}")
            self._require_begun(batch)
            for number, old in enumerate(directory.names(aside, "*.parquet")):
                names.append(f"{attempt}-{number:05d}.parquet")
                directory.move(f"{aside}/{old}", names[-1])
            may_count = True  # also if the catalogue does not answer
            may_count = self._staged(batch, tuple(names))
        finally:
            directory.remove(aside)
            for name in () if may_count else names:
                directory.remove(name)
        self._require_begun(batch)

    def _staged(self, batch: RangeBatch, names: tuple[str, ...]) -> bool:
        """Have these files count with the batch; False if another run has staged its own, finished or undone it."""
        if self._begun is None or not self._mark(self._begun, STAGED, names):
            return False
        if self._is_begun(batch):
            return True
        done = self._catalogue.find(batch.name + DONE)
        if done is not None and set(names) <= set(done.files):
            return True  # another run has found them here, and finished the batch with them
        self._catalogue.folder.remove(batch.name + STAGED)
        return False

    def _mark(self, begun: CatalogueEntry, kind: str, files: tuple[str, ...] = ()) -> bool:
        """Write what is said of this very batch; False if it was written before. A mark of one that was begun under
        this name earlier, and undone, is replaced: its run wrote it too late."""
        entry = replace(begun, files=files)
        if self._catalogue.put(begun.name + kind, entry):
            return True
        if self._mark_of(begun, kind) is not None:
            return False
        self._catalogue.folder.remove(begun.name + kind)
        return self._catalogue.put(begun.name + kind, entry)

    def _mark_of(self, begun: CatalogueEntry, kind: str) -> CatalogueEntry | None:
        """What was written of this very batch. A mark of an earlier version of this product does not say which."""
        found = self._catalogue.find(begun.name + kind)
        return found if found is None or not found.parts or replace(found, files=()) == begun else None

    def _is_begun(self, batch: RangeBatch) -> bool:
        """False if another run has finished or undone what this one has begun; it may have begun it again."""
        return self._begun is not None and self._catalogue.find(batch.name + BEGUN) == self._begun

    def _require_begun(self, batch: RangeBatch) -> None:
        if not self._is_begun(batch):
            raise self._taken_over(batch)

    def _taken_over(self, batch: RangeBatch) -> Changed:
        return Changed(
            f"Another run of group {batch.group} has finished or undone the batch {batch.name} of {self._path}.",
            hint="Run one job per group. Started again, this one continues after the other's batch.",
        )

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        self._require_begun(batch)  # another run may have undone it since, and removed its files
        assert self._begun is not None, "begun"
        if self._mark_of(self._begun, STAGED) is None and self._catalogue.find(batch.name + DONE) is None:
            raise self._taken_over(batch)
        if self._mark_of(self._begun, LOST) is not None:
            raise Changed(
                f"Another run of group {batch.group} has given up the batch {batch.name} of {self._path}.",
                hint="Run one job per group. Started again, this one undoes the batch and plans it again.",
            )
        try:
            save()
        except Changed:
            # Its offsets were not saved, but another run may have saved the very same: the next run sees that.
            if self._is_begun(batch):
                self.abandon(batch)
            raise
        if self._is_begun(batch) and self._begun is not None:  # else another run has seen the offsets, and finished it
            self._finish(self._begun)

    # ------------------------------------------------------------ the steps after the offsets

    def _finish(self, entry: CatalogueEntry) -> None:
        staged = self._mark_of(entry, STAGED)
        # Nothing is staged where the batch counted before, or an earlier version of this product wrote its files.
        files = staged.files if staged is not None else tuple(self._files_of(entry.name))
        self._catalogue.put(entry.name + DONE, replace(entry, files=files))
        done = self._catalogue.find(entry.name + DONE)  # perhaps another run's
        if done is not None:
            for name in set(self._files_of(entry.name)) - set(done.files):
                self._opened().remove(name)
        self._forget(entry.name)

    def _undo(self, entry: CatalogueEntry) -> None:
        self._fence(entry)
        _log.warning("the batch %s of %s, which was under way, is undone", entry.name, self._path)
        self._catalogue.folder.remove(entry.name + STAGED)  # first, so that it never names files that are gone
        if not self._catalogue.has(entry.name + DONE):  # else it counted before, and its offsets were set back
            for name in self._files_of(entry.name):
                self._opened().remove(name)
        self._forget(entry.name)

    def _fence(self, entry: CatalogueEntry) -> None:
        """Rewrite the rows that the batch would replace, as they are: a run that still wants to save it is too late.

        Raises Changed if they are not those any more by which the batch is undone: perhaps it was saved just now.
        """
        replaced = (self._rows.get(part.range.at) for part in entry.parts if part.after is not None)
        changes = as_they_are(row for row in replaced if row is not None)
        if changes and self._store is not None:
            self._has_rewritten = True
            written = self._store.write(entry.group, changes, reason=f"undone: {entry.name}", now_ms=clock_ms())
            refuse_conflicts(written.conflicts, entry.group, self._store)

    def _forget(self, name: str) -> None:
        for aside in self._opened().names(WRITING, f"{name}-*"):  # of runs that were killed while they wrote
            self._opened().remove(f"{WRITING}/{aside}")
        for kind in (STAGED, LOST, BEGUN):
            self._catalogue.folder.remove(name + kind)

    def _files_of(self, name: str) -> list[str]:
        return self._opened().names(pattern=f"{name}-*.parquet")

    def _opened(self) -> Directory:
        assert self._directory is not None
        return self._directory


def _starts_alike(one: CatalogueEntry, other: CatalogueEntry) -> bool:
    """True for the same ranges, from the same stored offsets where the batch saves others; times do not matter."""
    saved = {part.range for part in one.parts if part.after is not None}
    (first, second) = [
        (
            each.name,
            each.group,
            [(part.range, part.before and part.before.offset if part.range in saved else None) for part in each.parts],
        )
        for each in (one, other)
    ]
    return first == second


def _ends(entry: CatalogueEntry) -> list[int | None]:
    """The offsets that will be stored after the batch, by part."""
    return [None if part.after is None else part.after.offset for part in entry.parts]
