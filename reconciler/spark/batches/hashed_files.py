"""Exactly once, into files: a batch's folder is named by the hash of its ranges, and replaced if the batch is repeated.

    sink = HashNamedFiles("/srv/clicks")
    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="files:/srv/clicks/_offsets")
    job.run(exactly_once(lambda frame, ranges: frame.selectExpr("CAST(value AS STRING) AS text"), into=sink))
    spark.read.parquet("/srv/clicks")

Theory of operation. A batch's files are in ``PATH/batch=NAME``; NAME is ``planning.name_of`` its ranges. Its steps:

    1. ``PATH/_begun.json`` gets its ranges, and the stored rows before and after it
    2. its files are written aside, then renamed to its folder, which replaces an earlier one
    3. its offsets are saved (the store's compare-and-set)
    4. ``_begun.json`` is removed

A run that finds ``_begun.json`` asks the stored rows whether step 3 happened (``is_saved``):

- *It did*: the batch is done.
- *It did not*: the very same ranges are run again, and the folder is replaced. If that is not possible (the job reads
  another cluster now, a row was corrected, the log has lost some of the records), the folder is removed and the next
  batch begins at the stored rows.
- *The rows do not show it*: an operator decides (NeedsPerson). Keeping the folder could double its records, and
  removing it could lose them.

So each record is in one folder when no batch is under way. Offsets that were set back, and the replay of a failover,
are not covered: their records are in an earlier batch's folder and in a new one, whose ranges differ. For these, and
for readers during a batch, use ``PostgresTransaction``, or write to Delta or Iceberg.

``_begun.json`` also excludes a second run: only one can begin a batch, and a run that finds another's repeats it. A
file system has no lock, so two runs in the same moment may both write and double records; none is skipped.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, Refused, Unreachable
from reconciler.core.json_fields import FieldError
from reconciler.core.text import some
from reconciler.places.range_manifests import line_of, parse_range
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from reconciler.spark.batches.offsets import GroupOffsets, RangeBatch, RangeSink, require_atomic, rewrite
from reconciler.spark.batches.planning import LogEdges, OffsetRange, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

FORMAT = "reconciler.begun/1"
BEGUN, WRITING = "_begun.json", "_writing"
"""Spark and others do not read names that begin with an underscore."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch under way: its ranges, the stored rows that it replaces, and the rows that it saves.

    ``attempt`` differs for each run that begins it.
    """

    name: str
    group: str
    attempt: str
    ranges: tuple[OffsetRange, ...]
    before: Mapping[TopicPartition, StoredOffset]
    after: Mapping[TopicPartition, StoredOffset]


class HashNamedFiles(RangeSink):
    """A sink of Parquet files below ``path``, which belongs to one job and is on any file system that Spark knows."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")
        self._begun: Begun | None = None
        """The record that this run has last read or written."""

    def check(self, store: OffsetStore) -> None:
        """Raise Refused for a store that may write only some of a batch's rows."""
        require_atomic(store, "a restart could not decide whether a batch was saved")

    # ------------------------------------------------------------ before a batch

    def unfinished(
        self, spark: SparkSession, offsets: GroupOffsets, rows: Mapping[TopicPartition, Row], edges: LogEdges
    ) -> tuple[OffsetRange, ...] | None:
        """Finish, repeat or undo the batch that was begun, as ``RangeSink`` says.

        Raises NeedsPerson if the rows do not show which, and ConfigError if the path is another group's.
        """
        self._directory, self._offsets = Directory(spark, self._path), offsets
        self._begun = begun = self._recorded()
        if begun is None:
            return None
        if begun.group != offsets.group:
            raise ConfigError(
                f"{self._path} is the output of group {begun.group}, not of {offsets.group}.",
                hint="Give each job its own path.",
            )
        saved = is_saved(begun, {at: row.stored for at, row in rows.items()})
        if saved is None and offsets.read() != rows:
            return ()  # another run has saved a batch since they were read
        if saved is None:
            raise self._undecided(begun)
        self._directory.remove(WRITING)
        if saved:
            self._forget()
            return None
        if _is_repeatable(begun, rows, edges):
            return begun.ranges
        self._undo(begun, offsets, rows)
        return ()

    def abandon(self, batch: RangeBatch, offsets: GroupOffsets) -> None:
        if self._begun is not None:
            self._undo(self._begun, offsets, batch.rows)

    def _undo(self, begun: Begun, offsets: GroupOffsets, rows: Mapping[TopicPartition, Row]) -> None:
        """Remove the batch's folder. Its rows are written again first, so that no other run can still save it."""
        offsets.save(rewrite(rows[at] for at in begun.after if at in rows), f"undone: {begun.name}")
        log.warning("the batch %s of %s, which was under way, is undone", begun.name, self._path)
        self._directory.remove(_folder(begun.name))
        self._forget()

    def _forget(self) -> None:
        """Remove the record, unless another run has written its own since."""
        if self._is_own():
            self._directory.remove(BEGUN)
        self._begun = None

    def _undecided(self, begun: Begun) -> NeedsPerson:
        folder, record = f"{self._path}/{_folder(begun.name)}", f"{self._path}/{BEGUN}"
        return NeedsPerson(
            f"The batch in {folder} ({some(list(map(str, begun.ranges)))}) was under way when its run ended, and the "
            "stored offsets are neither the ones before it nor the ones after it.",
            hint=f"If the stored offsets are before its records, these will be read again: remove {folder} and "
            f"{record}. If they are behind them, remove only {record}. Then start the job again.",
        )

    # ------------------------------------------------------------ a batch

    def begin(self, batch: RangeBatch, changes: Sequence[Change]) -> None:
        is_repeated = self._begun is not None
        if is_repeated:
            self._require_own(batch)
        self._begun = Begun(
            batch.name,
            batch.group,
            secrets.token_hex(8),
            batch.ranges,
            {change.key: batch.rows[change.key].stored for change in changes if change.key in batch.rows},
            {change.key: change.new for change in changes},
        )
        if not self._directory.write(BEGUN, dumps(self._begun), replace=is_repeated):
            raise self._taken_over(batch)
        now = self._offsets.read()
        if any(now.get(change.key) != batch.rows.get(change.key) for change in changes):
            self._forget()  # another run has saved a batch since this one was planned
            raise self._taken_over(batch)

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the batch's folder, in place of an earlier one."""
        aside = f"{WRITING}/{secrets.token_hex(8)}"
        try:
            results.write.parquet(f"{self._path}/{aside}")
            self._require_own(batch)
            self._directory.replace(aside, _folder(batch.name))
        finally:
            self._directory.remove(aside)

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        self._require_own(batch)
        save()
        self._forget()

    def _recorded(self) -> Begun | None:
        text = self._directory.read(BEGUN)
        found = None if text is None else loads(text, f"{self._path}/{BEGUN}")
        if text is not None and found is None:
            self._directory.remove(BEGUN)  # its run was killed before it wrote anything else
        return found

    def _is_own(self) -> bool:
        """False if another run has finished, repeated or undone the batch meanwhile."""
        now = self._recorded()
        return now is not None and self._begun is not None and now.attempt == self._begun.attempt

    def _require_own(self, batch: RangeBatch) -> None:
        if not self._is_own():
            raise self._taken_over(batch)

    def _taken_over(self, batch: RangeBatch) -> Changed:
        return Changed(
            f"Another run of group {batch.group} writes to {self._path}. This run saved nothing of its batch.",
            hint="Run one job per group. Started again, this one continues after the other's batch.",
        )


def _folder(name: str) -> str:
    return f"batch={name}"


def _is_repeatable(begun: Begun, rows: Mapping[TopicPartition, Row], edges: LogEdges) -> bool:
    """True if the same ranges can be read here, and be saved over the rows that they began from."""
    is_held = all(
        each.from_offset >= edges.starts.get(each.at, 0) and each.until_offset <= edges.ends.get(each.at, 0)
        for each in begun.ranges
    )
    offsets_now = {at: rows[at].stored.offset for at in begun.after if at in rows}
    offsets_then = {at: begun.before[at].offset for at in begun.after if at in begun.before}
    return is_held and offsets_now == offsets_then and name_of(begun.ranges, edges.cluster) == begun.name


# ---------------------------------------------------------------- whether the batch was saved


def is_saved(begun: Begun, rows: Mapping[TopicPartition, StoredOffset]) -> bool | None:
    """Whether the stored offsets are those after the begun batch: True, False, or None if the rows do not show it.

    One partition is enough, since all were saved in one step. If a failover has replaced rows by others in another
    numbering, the anchors decide: a corrected row names the same record as the row that it replaces.
    """
    answers = set()
    for at, after in begun.after.items():
        is_after, is_before = _same(rows.get(at), after), _same(rows.get(at), begun.before.get(at))
        if is_after != is_before:
            answers.add(is_after)
    return answers.pop() if len(answers) == 1 else None


def _same(now: StoredOffset | None, then: StoredOffset | None) -> bool:
    if now is None or then is None or now.is_unread or then.is_unread:
        return all(each is None or each.is_unread for each in (now, then))
    one, other = now.anchor, then.anchor
    if one is None or other is None:
        return (now.offset, one) == (then.offset, other)
    if (one.cluster_id, one.topic_id) == (other.cluster_id, other.topic_id):
        return now.offset == then.offset
    return one.fingerprint is not None and _record(one) == _record(other)


def _record(anchor: Anchor) -> tuple[object, ...]:
    return anchor.fingerprint, anchor.id, anchor.timestamp_ms


# ---------------------------------------------------------------- the record's text


def dumps(begun: Begun) -> str:
    def lines(rows: Mapping[TopicPartition, StoredOffset]) -> list[str]:
        return [line_of(at.topic, at.partition, stored) for at, stored in rows.items()]

    ranges = [[each.topic, each.partition, each.from_offset, each.until_offset] for each in begun.ranges]
    content = {"format": FORMAT, "name": begun.name, "group": begun.group, "attempt": begun.attempt, "ranges": ranges}
    return json.dumps({**content, "before": lines(begun.before), "after": lines(begun.after)})


def loads(text: str, shown: str) -> Begun | None:
    """None for a text that was not written to its end. Raises Refused for another format."""

    def rows(lines: list[str]) -> dict[TopicPartition, StoredOffset]:
        found = [parse_range(line, None) for line in lines]
        return {each.key: each.stored for each in found if each.stored is not None}

    try:
        content = json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise Refused(f"{shown} cannot be read: {error}.", hint="Find out which program wrote it.") from error
    try:
        if content["format"] != FORMAT:
            raise FieldError("format", f"is not {FORMAT}")
        ranges = tuple(OffsetRange(*each) for each in content["ranges"])
        before, after = rows(content["before"]), rows(content["after"])
        return Begun(content["name"], content["group"], content["attempt"], ranges, before, after)
    except (FieldError, KeyError, TypeError) as error:
        raise Refused(f"{shown} cannot be read: {error}.", hint="Find out which program wrote it.") from error


# ---------------------------------------------------------------- files


class Directory:
    """A directory on any file system that Spark knows, through Hadoop in Spark's JVM. Names are relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm, self.path = jvm, path
        self._fs = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def read(self, name: str) -> str | None:
        """A file's text; None if it does not exist."""
        if not self._exists(name):
            return None
        stream = self._fs.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str, *, replace: bool) -> bool:
        """Write a file; False if it exists and is not to be replaced."""
        if not replace and not self._fs.createNewFile(self._at(name)):
            return False
        stream = self._fs.create(self._at(name), True)
        stream.write(text.encode())
        stream.close()
        return True

    def replace(self, name: str, to: str) -> None:
        """Rename a directory, in place of the one that has the new name.

        Each step leaves whole directories only, even if another run does the same meanwhile.
        """
        old, inside = f"{name}-old", f"{to}/{name.rpartition('/')[2]}"
        if self._exists(to) and not self._rename(to, old):
            raise self._disturbed(to)
        if not self._rename(name, to):
            if not self._exists(to):
                self._rename(old, to)
            raise self._disturbed(to)
        if self._exists(inside):  # Hadoop moves a directory into an existing one: another run's
            self.remove(inside)
            raise self._disturbed(to)
        self.remove(old)

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its content; no error if it does not exist."""
        self._fs.delete(self._at(name), True)

    def _exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._at(name)))

    def _rename(self, name: str, to: str) -> bool:
        return bool(self._fs.rename(self._at(name), self._at(to)))

    def _disturbed(self, to: str) -> Unreachable:
        return Unreachable(
            f"{self.path}/{to} could not be replaced: another program renamed or removed files there.",
            hint="Run one job per group, then run this again.",
        )

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
