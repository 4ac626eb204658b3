"""The job's own output: the columns that identify a row's record, and the rows as sightings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from reconciler.core.errors import ConfigError
from reconciler.spark.audit.naming import CONTENT, ID, NAMELESS, OFFSET, By, content_of, hashed
from reconciler.spark.audit.resumed_rows import ALL_PARTITIONS
from reconciler.spark.audit.sightings import DESTINATION_SIDES, SOURCE_SIDES, Places, small_table
from reconciler.spark.columns import WHOLE_NUMBERS, refuse_unknown, require_type

NOWHERE = -1
"""The number of a topic or partition that is not in the plan."""
FROM_SOURCE = "s"
"""``by`` of a row that names an offset of the source, if the source cannot be read."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The output's column for each field, by name; nested fields have dots. One of four identifies the record:

    ``id``: bytes, text or whole numbers, the very value that ``[jobs.identity] id`` reads. ``key`` and ``value``: the
    record's own bytes. ``fingerprint``: as in the formats, 32 hex digits or 16 bytes. ``offset`` with ``partition`` and
    ``topic``: where the job read it; the topic's name then shows the cluster.

    ``topic`` and ``partition`` are used with the others too, if given; ``topic_name`` is the topic if no column has it.
    ``order``: the output's order within a partition, of any type that sorts; rows with the same value have no order
    among them.
    """

    id: str | None = None
    key: str | None = None
    value: str | None = None
    fingerprint: str | None = None
    offset: str | None = None
    topic: str | None = None
    partition: str | None = None
    order: str | None = None
    topic_name: str | None = None

    def __post_init__(self) -> None:
        if (self.key is None) != (self.value is None):
            raise ConfigError("A record's content is its key and value, and only one of them has a column.")
        named = [self.id, self.value, self.fingerprint, self.offset]
        if sum(name is not None for name in named) != 1:
            raise ConfigError(
                "Rows of the output are identified by exactly one of: id, key and value, fingerprint, offset.",
                hint="For example: --column id=event_id",
            )
        if self.topic is not None and self.topic_name is not None:
            raise ConfigError("The topic comes from a column or from topic_name, not from both.")
        if self.offset is not None and (self.partition is None or (self.topic or self.topic_name) is None):
            raise ConfigError("An offset needs a partition and a topic.", hint="Name their columns too.")

    @classmethod
    def named(cls, given: Mapping[str, str]) -> Columns:
        """From FIELD: NAME texts. Raises ConfigError for an unknown field."""
        refuse_unknown(cls, given)
        return cls(**given)

    @property
    def by(self) -> By:
        if self.id is not None:
            return By.ID
        if self.offset is not None:
            return By.OFFSET
        return By.FINGERPRINT if self.fingerprint is not None else By.CONTENT


@dataclass(frozen=True)
class Output:
    """The rows that the job has written, and their columns."""

    frame: DataFrame
    columns: Columns

    def scoped(self, places: Places) -> Output:
        """The same, with the topic's name if the plan has only one topic."""
        columns = self.columns
        if columns.topic is None and columns.topic_name is None and len(places.topics) == 1:
            columns = replace(columns, topic_name=places.topics[0])
        if columns.partition is not None and (columns.topic or columns.topic_name) is None:
            raise ConfigError(
                f"The output has partitions, but no topic: it may be any of {', '.join(places.topics)}.",
                hint="Name the column with the topic: --column topic=NAME",
            )
        return Output(self.frame, columns)

    @property
    def scope(self) -> str | None:
        """The column within which rows and records are matched: their place, their topic, or none."""
        if self.columns.partition is not None:
            return "place"
        return "topic" if (self.columns.topic or self.columns.topic_name) is not None else None

    def rows(self, places: Places, seen: DataFrame, *, source_lives: bool) -> DataFrame:
        """``topic``, ``place``, ``by``, ``name`` of each row from the plan's topics, and ``seq``, its order.

        ``seen`` are the logs' sightings, in which a row's offset is looked up. Raises ConfigError for columns that do
        not exist or cannot be used.
        """
        columns = self.columns
        order = None if columns.order is None else self._column("order", columns.order, ())
        kept = self.frame.select(
            self._topic().alias("row_topic"),
            self._partition().alias("row_partition"),
            *(column.alias(name) for name, column in self._name_columns().items()),
            (f.lit(None).cast("int") if order is None else order).alias("seq"),
        )
        numbered = self._numbered(kept, places)
        if columns.by is By.OFFSET:
            return _found_by_offset(numbered, seen) if source_lives else _named_by_offset(numbered)
        by = f.when(f.col("name").isNull(), NAMELESS).otherwise(ID if columns.by is By.ID else CONTENT)
        named = numbered.withColumn("name", self._name())
        return named.select("topic", "place", by.alias("by"), f.coalesce("name", f.lit(b"")).alias("name"), "seq")

    def names(self, topics: Collection[str]) -> DataFrame:
        """``name`` of each row; null where a row does not identify its record. Rows of other topics are left out, where
        a column has the topic. Raises ConfigError for columns that do not exist or cannot be used.
        """
        rows = self.frame if self.columns.topic is None else self.frame.where(self._topic().isin(*topics))
        return rows.select(*(column.alias(name) for name, column in self._name_columns().items())).select(
            self._name().alias("name")
        )

    # ------------------------------------------------------------ columns

    def _topic(self) -> Column:
        if self.columns.topic is None:
            return f.lit(self.columns.topic_name).cast("string")
        return self._column("topic", self.columns.topic, ("string",))

    def _partition(self) -> Column:
        if self.columns.partition is None:
            return f.lit(None).cast("int")
        return self._column("partition", self.columns.partition, (*WHOLE_NUMBERS, "decimal")).cast("int")

    def _name_columns(self) -> dict[str, Column]:
        columns = self.columns
        if columns.id is not None:
            column = f.col(columns.id)
            is_binary = self._kind("id", columns.id, ("binary", "string", *WHOLE_NUMBERS)) == "binary"
            return {"id": column if is_binary else column.cast("string").cast("binary")}
        if columns.fingerprint is not None:
            column = f.col(columns.fingerprint)
            is_binary = self._kind("fingerprint", columns.fingerprint, ("binary", "string")) == "binary"
            return {"fingerprint": column if is_binary else f.unhex(column)}
        if columns.offset is not None:
            return {"offset": self._column("offset", columns.offset, (*WHOLE_NUMBERS, "decimal")).cast("bigint")}
        named = {"key": columns.key, "value": columns.value}
        return {
            field: self._column(field, str(name), ("binary", "string")).cast("binary") for field, name in named.items()
        }

    def _name(self) -> Column:
        if self.columns.by is By.ID:
            return hashed(f.col("id"))
        return f.col("fingerprint") if self.columns.by is By.FINGERPRINT else content_of("key", "value")

    def _column(self, field: str, name: str, kinds: tuple[str, ...]) -> Column:
        self._kind(field, name, kinds)
        return f.col(name)

    def _kind(self, field: str, name: str, kinds: tuple[str, ...]) -> str:
        return require_type(self.frame, field, name, kinds, hint=f"Name the right one: --column {field}=COLUMN")

    # ------------------------------------------------------------ places

    def _numbered(self, kept: DataFrame, places: Places) -> DataFrame:
        """The rows with the numbers of topic and place, and ``cluster``; rows of other topics are left out."""
        planned, spark = places.planned, kept.sparkSession
        if (self.columns.topic or self.columns.topic_name) is None:
            return kept.select("*", *(f.lit(NOWHERE).alias(name) for name in ("topic", "place")))
        both = sorted(set(planned.destinations) & set(planned.destinations.values()))
        if both and self.columns.by is By.OFFSET:
            raise ConfigError(
                f"{', '.join(both)} has the same name at both clusters, and an offset does not show which it is from.",
                hint="Identify the rows by id, key and value, or fingerprint.",
            )
        names = {name: planned.source_name(name) for name in (*planned.destinations, *planned.destinations.values())}
        topics = [
            (name, places.of_topics[of], "d" if name in planned.destinations else "s")
            for name, of in names.items()
            if of is not None
        ]
        of_topics = f.broadcast(small_table(spark, topics, "row_topic string, topic int, cluster string"))
        found = kept.join(of_topics, "row_topic")
        spread = [places.of_topics[place.topic] for place in places.all if place.partition == ALL_PARTITIONS]
        there = [(places.of_topics[place.topic], place.partition, number) for number, place in enumerate(places.all)]
        of_places = f.broadcast(small_table(spark, there, "topic int, at int, place int"))
        at = f.when(f.col("topic").isin(spread), ALL_PARTITIONS).otherwise(f.col("row_partition"))
        joined = found.withColumn("at", at).join(of_places, ["topic", "at"], "left")
        return joined.withColumn("place", f.coalesce("place", f.lit(NOWHERE)))


def _named_by_offset(rows: DataFrame) -> DataFrame:
    """Rows named by the offset itself: in the destination's log, or in the source's, which cannot be read."""
    by = f.when(f.col("offset").isNull(), NAMELESS).when(f.col("cluster") == "s", FROM_SOURCE).otherwise(OFFSET)
    name = offset_name("row_partition", "offset")
    return rows.select("topic", "place", by.alias("by"), f.coalesce(name, f.lit(b"")).alias("name"), "seq")


def offset_name(partition: str, offset: str) -> Column:
    """The name of a record of which only the offset is known."""
    return f.encode(f.concat_ws(":", f.col(partition).cast("string"), f.col(offset).cast("string")), "UTF-8")


def _found_by_offset(rows: DataFrame, seen: DataFrame) -> DataFrame:
    """Rows with the names of the records that the logs hold at their offsets."""
    cluster = f.when(f.col("side").isin(*SOURCE_SIDES), "s").when(f.col("side").isin(*DESTINATION_SIDES), "d")
    log = seen.select("topic", cluster.alias("cluster"), "part", "pos", f.col("by").alias("is"), "name")
    at = rows.withColumnsRenamed({"row_partition": "part", "offset": "pos"})
    found = at.join(log, ["topic", "cluster", "part", "pos"], "left")
    own = f.concat_ws(":", "cluster", f.col("part").cast("string"), f.col("pos").cast("string"))
    by = f.when(f.col("pos").isNull(), NAMELESS).otherwise(f.coalesce("is", f.lit(OFFSET)))
    name = f.coalesce("name", f.encode(own, "UTF-8"))
    return found.select("topic", "place", by.alias("by"), f.coalesce(name, f.lit(b"")).alias("name"), "seq")
