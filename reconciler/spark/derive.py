"""Anchors from a job's own output: no recording was needed, and the source cluster may be gone.

    from reconciler.spark.derive import Columns, derive

    output = spark.read.parquet("/srv/clicks/out")
    for line in derive(output, group="clicks", columns=Columns(timestamp="kafka_time", id="message_id")):
        print(dump_line(line))                              # reconciler.formats.anchor_lines

An output that keeps topic, partition and offset of its records shows how far the job has come: the anchor names the
last record of each partition. One aggregation over the output finds them, ``max_by`` by topic and partition.

Not known from an output:

- the offsets after the last record: transaction markers, and records that the job filtered out. The stored offset is
  ``last offset + 1``. Filtered records are read, and filtered, again;
- partitions of which no record reached the output. They have no line, and start as ``[policy] new`` says;
- what waits in the query's state (a join of two streams, an aggregation in append mode, arbitrary state), while later
  records are in the output: resuming after those would skip it. So derive only for a query that holds nothing back;
- whether the output is complete. A batch that was being written when the job died can have its last record in the
  output and lack others: resuming after it would skip those. Either the sink writes batches whole or not at all, or a
  column that names the batch (``batch``) shows which is each topic's newest: that one is left out, and read again.
  Another topic's shows nothing: it may be of another checkpoint, whose numbers had come further. The repetition of a
  batch that was cut off may have been cut off, too. If it has a number of its own, that shows only where both hold
  records of one partition (``_left_out_from``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from reconciler.core.anchors import Anchor, Identity, StoredOffset, TopicPartition, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.formats.anchor_lines import AnchorLine
from reconciler.formats.decimal_text import counted
from reconciler.identity import UNITS_PER_MS
from reconciler.spark.columns import WHOLE_NUMBERS, refuse_unknown, require_type
from reconciler.spark.identity_columns import OWN_ID, LastRecord, epoch_ms, last_record

log = logging.getLogger(__name__)

_NUMBERED = (
    r"^(?!([^0-9]*[^\p{L}0-9])?[-\u2212]\s*[0-9])"  # a sign: of -9 and -1, the larger text is the smaller number
    r"[^0-9]*[0-9]+(?!\s*[AaPp]\.?[Mm])[^0-9]*$"  # of 12 and 1 o'clock in one half of a day, 12 is the earlier one
)
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?)?( ?(Z|UTC))?)?$"
_IN_ORDER = f"{_NUMBERED}|{_TIME}"
"""Texts whose order is that of their numbers, if only digits differ: one number of fixed length, or an ISO time without
an offset from UTC, which may change between two batches."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The output's column for each field, by name; None if there is none. Nested fields have dots.

    ``topic_name`` is the topic where no column has it. ``timestamp``: a timestamp, or whole numbers in ``unit`` (s, ms,
    us, ns), of the same meaning as the job's ``[jobs.identity] timestamp``. ``id``: bytes, text or whole numbers, the
    very value that ``[jobs.identity] id`` reads from a record. ``key`` and ``value`` are the record's own bytes, and
    give the fingerprint. ``batch``: increases with each batch that the job wrote, over all checkpoints, and stays as it
    was when a batch is repeated; text only where its order shows that (``_require_comparable``).
    """

    topic: str | None = "topic"
    partition: str = "partition"
    offset: str = "offset"
    timestamp: str | None = None
    id: str | None = None
    key: str | None = None
    value: str | None = None
    batch: str | None = None
    topic_name: str | None = None
    unit: str = "ms"

    @classmethod
    def named(cls, given: Mapping[str, str]) -> Columns:
        """From FIELD: NAME texts. Raises ConfigError for an unknown field."""
        refuse_unknown(cls, given)
        topic = None if "topic_name" in given else "topic"
        return cls(**{"topic": topic, **given})  # type: ignore[arg-type]


def derive(
    output: DataFrame,
    *,
    group: str,
    columns: Columns | None = None,
    topics: Iterable[str] | None = None,
    identity: Identity | None = None,
    cluster_id: str | None = None,
) -> list[AnchorLine]:
    """Each partition's last record in ``output`` as an anchor line, by topic and partition. Runs one Spark job.

    ``topics`` are the topics to look at, if not all. ``identity`` reads the id from key and value where ``columns`` has
    no column for it. ``cluster_id`` is the cluster that the offsets are from, if known; without it they are taken to be
    from a cluster other than the destination.

    Raises ConfigError for a column that does not exist, is not of the right type, or does not show the newest batch.
    """
    chosen = columns or Columns()
    _check(chosen)
    rows = _last_rows(output, chosen, None if topics is None else sorted(set(topics)))
    return [_line(last_record(row, "ms"), group, identity, cluster_id) for row in rows]


def topics_in(output: DataFrame, columns: Columns | None = None) -> list[str]:
    """The topics that ``output`` has records of."""
    chosen = columns or Columns()
    if chosen.topic_name is not None:
        return [chosen.topic_name]
    rows = output.select(_typed(output, "topic", chosen.topic, ("string",))).distinct().collect()
    return sorted(row[0] for row in rows if row[0] is not None)


def _check(columns: Columns) -> None:
    if (columns.topic is None) == (columns.topic_name is None):
        raise ConfigError("Give either a column for the topic or topic_name: exactly one of them.")
    if columns.unit not in UNITS_PER_MS:
        raise ConfigError(f'unit = "{columns.unit}" is not known: use one of {", ".join(UNITS_PER_MS)}.')
    if (columns.key is None) != (columns.value is None):
        raise ConfigError(
            "A fingerprint is made of key and value, and only one of them has a column.",
            hint="Name both, or none.",
        )


def _last_rows(output: DataFrame, columns: Columns, topics: list[str] | None) -> list[dict[str, Any]]:
    time, unit = _time(output, columns)
    identified = "topic IS NOT NULL AND partition IS NOT NULL AND offset IS NOT NULL"
    selected = output.select(*_columns(output, columns), *time).where(identified)
    if topics is not None:
        selected = selected.where(f.col("topic").isin(topics))
    if columns.batch is not None:
        _require_comparable(selected, columns.batch)
        _require_in_order(selected, columns.batch)
        older = selected.join(f.broadcast(_left_out_from(selected)), "topic").where(f.col("batch") < f.col("first"))
        selected = older.drop("batch", "first")
    last = f.max_by(f.struct("*"), f.col("offset")).alias("last")
    ends = selected.groupBy("topic", "partition").agg(last).select("last.*")
    found = []
    for row in ends.collect():
        each = {"key": None, "value": None, "timestamp": None, **row.asDict()}
        each |= {"payload_known": columns.value is not None, "timestamp": epoch_ms(each["timestamp"], unit)}
        found.append(each)
    return sorted(found, key=lambda each: (each["topic"], each["partition"]))


def _require_comparable(selected: DataFrame, name: str) -> None:
    """Raise ConfigError for text whose order does not show which batch is the newest. Logs rows without a batch.

    Spark compares text by its bytes, and by those "9" is larger than "10": the newest batch would be taken for a
    complete one. So text must differ in nothing but the digits of one number, or of an ISO time.
    """
    batch = f.col("batch")
    text = batch.cast("string")
    form = f.regexp_replace(text, "[0-9]", "0")
    found = selected.agg(
        f.count_if(batch.isNull()),
        f.min(form),
        f.max(form),
        f.bool_and(text.rlike(_IN_ORDER)),
        f.max(text),
    ).first()
    assert found is not None
    without, least, most, in_order, example = found
    is_text = selected.schema["batch"].dataType.typeName() in ("string", "varchar", "char")
    if is_text and example is not None and (least != most or not in_order):
        raise ConfigError(
            f"The column {name!r} for the batch holds text such as {example!r}, whose order does not show which batch "
            'is the newest: as text, "9" is after "10".',
            hint="Name a column of numbers or times, or cast this one (in a view, or in the query option of jdbc). "
            "Text must be a number with leading zeros and no sign, or an ISO time in UTC, always in the same form.",
        )
    if without:
        log.warning(
            "%s without a value in the column %r for the batch: left out, because nothing shows that their batches are "
            "complete",
            counted(without, "row"),
            name,
        )


def _require_in_order(selected: DataFrame, name: str) -> None:
    """Raise ConfigError unless each partition's last record is of its newest batch.

    A new checkpoint counts its batches from 0 again. The largest number may then be of an older checkpoint, and the
    batch that was cut off would be taken for a complete one.
    """
    numbered = selected.where(f.col("batch").isNotNull())
    # Of a record that two batches wrote, the later one counts.
    last = f.max(f.struct("offset", "batch")).alias("last")
    partitions = numbered.groupBy("topic", "partition").agg(last, f.max("batch").alias("newest"))
    astray = partitions.where(f.col("last.batch") < f.col("newest")).orderBy("topic", "partition").first()
    if astray is not None:
        raise ConfigError(
            f"The last record of {TopicPartition(astray['topic'], astray['partition'])} (offset "
            f"{astray['last']['offset']}) is of batch {astray['last']['batch']}, though the column {name!r} also has "
            f"{astray['newest']} there: the batches' numbers began again, as they do with each new checkpoint, or "
            "records were read again. So the largest number is not the newest batch.",
            hint="Name a column that increases over all checkpoints, and that a repetition of the batch keeps, such as "
            "current_timestamp(), added to the stream before foreachBatch (in its function, each attempt has another "
            "time); or derive from the rows of the last checkpoint alone (a view, or the query option of jdbc).",
        )


def _left_out_from(selected: DataFrame) -> DataFrame:
    """The first of the batches that are left out, by topic: the newest, or an earlier one that it may repeat.

    A repetition of a batch holds the same records. So the first is the last batch before which everything is in order:
    in each partition, the offsets of all earlier batches lie before those of it and of later ones. Spark does all this,
    since there may be very many batches; after ``overlaps`` there are usually few.
    """
    place = ("topic", "partition")
    upward = Window.partitionBy(*place).orderBy("batch")
    downward = Window.partitionBy(*place).orderBy(f.desc("batch"))  # the other frame's end would cost n² in Spark
    numbered = selected.where(f.col("batch").isNotNull())
    ends = numbered.groupBy(*place, "batch").agg(f.min("offset").alias("least"), f.max("offset").alias("most"))
    newest = ends.groupBy("topic").agg(f.max("batch").alias("later"), f.max("batch").alias("earlier"))
    overlaps = ends.select(
        "topic",
        f.col("batch").alias("later"),
        f.lag("batch").over(upward).alias("earlier"),
        f.max("most").over(upward.rowsBetween(Window.unboundedPreceding, -1)).alias("until"),
        f.min("least").over(downward.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("since"),
    ).where(f.col("until") >= f.col("since"))
    # No batch after ``earlier``, up to ``later``, can be the first one: from the newest down, as far as they connect.
    steps = newest.union(overlaps.select("topic", "later", "earlier")).groupBy("topic", "later")
    down = Window.partitionBy("topic").orderBy(f.desc("later"))
    reached = f.min("earlier").over(down.rowsBetween(Window.unboundedPreceding, -1))
    joined = steps.agg(f.min("earlier").alias("earlier")).withColumn("reached", reached)
    is_apart = f.coalesce(f.col("later") < f.col("reached"), f.lit(False))
    apart = f.max(is_apart).over(down.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    connected = joined.withColumn("apart", apart).where(~f.col("apart"))
    return connected.groupBy("topic").agg(f.min("earlier").alias("first"))


def _columns(output: DataFrame, columns: Columns) -> list[Column]:
    topic = f.lit(columns.topic_name) if columns.topic_name is not None else None
    chosen = [topic.alias("topic") if topic is not None else _typed(output, "topic", columns.topic, ("string",))]
    for field, name, kind in (("partition", columns.partition, "int"), ("offset", columns.offset, "bigint")):
        chosen.append(_typed(output, field, name, (*WHOLE_NUMBERS, "decimal"), kind))
    if columns.id is not None:
        chosen.append(_typed(output, "id", columns.id, ("binary", "string", *WHOLE_NUMBERS)).alias(OWN_ID))
    for field, found in (("key", columns.key), ("value", columns.value)):
        if found is not None:
            chosen.append(_typed(output, field, found, ("binary", "string"), "binary"))
    if columns.batch is not None:
        chosen.append(f.col(columns.batch).alias("batch"))
        _require_type(output, "batch", columns.batch, (*WHOLE_NUMBERS, "decimal", "timestamp", "date", "string"))
    return chosen


def _time(output: DataFrame, columns: Columns) -> tuple[list[Column], str]:
    """The timestamp column, if there is one, and the unit of its numbers."""
    if columns.timestamp is None:
        return [], "ms"
    column = f.col(columns.timestamp)
    if _require_type(output, "timestamp", columns.timestamp, ("timestamp", *WHOLE_NUMBERS)) == "timestamp":
        return [f.unix_millis(column).alias("timestamp")], "ms"
    return [column.alias("timestamp")], columns.unit


def _typed(output: DataFrame, field: str, name: str | None, kinds: tuple[str, ...], cast: str | None = None) -> Column:
    _require_type(output, field, str(name), kinds)
    column = f.col(str(name))
    return (column.cast(cast) if cast else column).alias(field)


def _require_type(output: DataFrame, field: str, name: str, kinds: tuple[str, ...]) -> str:
    """As ``require_type``, and a decimal must have no fraction."""
    hint = f"Name the right one: {field}=COLUMN."
    found = require_type(output, field, name, kinds, hint=hint)
    if found.startswith("decimal") and not found.endswith(",0)"):
        raise ConfigError(f"The column {name!r} for the {field} is of type {found}, and not {' or '.join(kinds)}.")
    return found


def _line(last: LastRecord, group: str, identity: Identity | None, cluster_id: str | None) -> AnchorLine:
    id_bytes = last.own_id
    if id_bytes is None and last.payload_known and identity is not None and identity.id_of is not None:
        id_bytes = identity.id_of(last)
    anchor = Anchor(
        offset=last.offset,
        timestamp_ms=last.timestamp_ms,
        id=id_bytes,
        fingerprint=fingerprint(last.key, last.value) if last.payload_known else None,
        cluster_id=cluster_id,
    )
    return AnchorLine(group, last.at.topic, last.at.partition, StoredOffset(last.offset + 1, anchor))
