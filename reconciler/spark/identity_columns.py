"""The last record of every partition in a batch, found by Spark; its identity, read in plain Python.

One aggregation, ``max_by(record, offset)`` by topic and partition, returns one record per partition: Spark has no
BLAKE2b, and ids and times must be read by the very code that will look for them at the other cluster. Spark plans
``max_by`` over binary columns as a sort within each task; on 400,000 records of 300 bytes that cost 0.1 s more than a
plain ``max(offset)``, and less than half of finding the maxima first and fetching their records with a join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from reconciler.core.anchors import Anchor, Identity, Record
from reconciler.core.errors import ConfigError
from reconciler.identity import UNITS_PER_MS, identity_from_spec, json_text
from reconciler.ports import TopicPartition
from reconciler.spark.columns import WHOLE_NUMBERS, as_bytes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
}
"""The Kafka source's columns that an anchor needs, with Spark's short type names."""
OPTIONAL_COLUMNS = ("timestampType", "headers")
NO_TIMESTAMP, APPEND_TIME = -1, 1
"""Kafka's ``TimestampType`` ids, as in the source's column ``timestampType``."""

OWN_ID, OWN_TIME = "__reconciler_id", "__reconciler_time"

ColumnSpec = Union[str, "Column", "Callable[[DataFrame], Column]"]
"""A text as in ``[jobs.identity]``, a Spark column, or a function from the Kafka source's DataFrame to one."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A batch's last record of one partition; satisfies ``core.anchors.Record``.

    ``own_id`` and ``own_time_ms`` are the values of the user's columns for it, if the user gave columns.
    """

    at: TopicPartition
    offset: int
    timestamp_ms: int | None
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    own_id: bytes | None = None
    own_time_ms: int | None = None
    payload_known: bool = True
    """False where key and value were left out (too long, or not wanted): no fingerprint can be made then."""

    @classmethod
    def of(cls, at: TopicPartition, record: Record) -> LastRecord:
        """A record that was read from the log."""
        return cls(
            at=at,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            append_time=record.append_time,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )


@dataclass(frozen=True)
class BatchIdentity:
    """How to find a batch's last records and identify them: texts as in ``[jobs.identity]``, or Spark columns.

    ``id``: ``none``, ``key``, ``header:NAME``, ``json:$.path``, ``python:module:function``, or a column of bytes, text
    or whole numbers. ``timestamp``: ``record``, ``json:$.path``, ``header:NAME``, a timestamp column, or a column of
    whole numbers in ``unit`` (s, ms, us, ns). A column may come as a function of the DataFrame.

    ``config_id`` and ``config_timestamp`` are the texts that ``[jobs.identity]`` has in place of a column: each last
    record is read by them too, and where the two differ nothing is stored. ``frame`` as there: ``none`` or
    ``confluent``. Raises ConfigError for any other text.
    """

    timestamp: ColumnSpec = "record"
    id: ColumnSpec = "none"
    unit: str = "ms"
    config_id: str | None = None
    config_timestamp: str | None = None
    frame: str = "none"

    def __post_init__(self) -> None:
        _ = self.texts  # finds a wrong text now, not in the first batch
        for name, spec in (("id", self.id), ("timestamp", self.timestamp)):
            if isinstance(spec, str) and getattr(self, f"config_{name}") is not None:
                raise ConfigError(
                    f"config_{name} stands for a column in [jobs.identity], and {name} is a text already.",
                    hint=f"Leave config_{name} out.",
                )

    @cached_property
    def texts(self) -> Identity:
        """The identity that the texts describe. A column is replaced by its configuration text, else by the default."""
        return identity_from_spec(
            timestamp=self.timestamp if isinstance(self.timestamp, str) else self.config_timestamp or "record",
            id=self.id if isinstance(self.id, str) else self.config_id or "none",
            unit=self.unit,
            frame=self.frame,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "texts"}

    @property
    def has_columns(self) -> bool:
        """True if only Spark can read the id or the timestamp."""
        return not (isinstance(self.id, str) and isinstance(self.timestamp, str))

    @property
    def needs_headers(self) -> bool:
        specs = (self.timestamp, self.id, self.config_id, self.config_timestamp)
        return any(isinstance(spec, str) and spec.startswith("header:") for spec in specs)

    def own_columns(self, frame: DataFrame) -> dict[str, Column]:
        """The user's columns over ``frame``, by their names in the batch."""
        from pyspark.sql import Column

        specs = {OWN_ID: self.id, OWN_TIME: self.timestamp}
        own = {name: spec for name, spec in specs.items() if not isinstance(spec, str)}
        return {name: spec if isinstance(spec, Column) else spec(frame) for name, spec in own.items()}

    def require_types(self, types: Mapping[str, str]) -> None:
        """Raise ConfigError unless the user's columns have Spark types that can be read."""
        _require_type("id", types.get(OWN_ID), ("binary", "string", *WHOLE_NUMBERS), "bytes, text or whole numbers")
        _require_type("timestamp", types.get(OWN_TIME), ("timestamp", *WHOLE_NUMBERS), "a timestamp or whole numbers")

    def check(self, batch: DataFrame) -> None:
        """Raise ConfigError unless the batch still has the Kafka source's own columns."""
        types = dict(batch.dtypes)
        absent = [name for name in SOURCE_COLUMNS if name not in types]
        if absent:
            raise ConfigError(
                f"The batch has no column {', '.join(absent)}: without the Kafka source's columns "
                f"{', '.join(SOURCE_COLUMNS)} the last record cannot be identified.",
                hint="Keep them up to foreachBatch (add columns with withColumn rather than select), and project "
                "inside the function.",
            )
        changed = [f"{name} is {types[name]}" for name, kind in SOURCE_COLUMNS.items() if types[name] != kind]
        if changed:
            raise ConfigError(
                f"The batch's columns are not as the Kafka source gave them: {', '.join(changed)}.",
                hint="Keep the original columns as they are, and give converted ones other names.",
            )
        if self.needs_headers and "headers" not in types:
            raise ConfigError(
                "The batch has no column headers, and the id or timestamp is read from it.",
                hint='Read with .option("includeHeaders", "true").',
            )

    def last_records(self, batch: DataFrame) -> list[LastRecord]:
        """Each partition's record with the largest offset, by topic and partition. Runs one Spark job."""
        ends = self._aggregated(batch)
        types = dict(ends.dtypes)
        self.require_types(types)
        own_unit = self.unit
        if types.get(OWN_TIME) == "timestamp":
            ends, own_unit = _in_ms(ends, OWN_TIME), "ms"
        # The session's time zone would bend a timestamp brought to Python; milliseconds since 1970 have none.
        rows = _in_ms(ends, "timestamp").collect()
        return sorted((last_record(row.asDict(), own_unit) for row in rows), key=lambda last: last.at)

    def anchor_of(self, last: LastRecord, *, cluster_id: str | None, topic_id: str | None) -> Anchor:
        """The anchor that names ``last``; a value that cannot be read from it (a tombstone's id) is None."""
        anchor = self.texts.anchor_of(last, cluster_id=cluster_id, topic_id=topic_id)
        if not isinstance(self.id, str):
            _require_same("id", self.config_id, last, last.own_id, anchor.id)
            anchor = replace(anchor, id=last.own_id)
        if not isinstance(self.timestamp, str):
            _require_same("timestamp", self.config_timestamp, last, last.own_time_ms, anchor.timestamp_ms)
            anchor = replace(anchor, timestamp_ms=last.own_time_ms)
        if not last.payload_known:
            anchor = replace(anchor, fingerprint=None)
        return anchor

    def _aggregated(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        names = [name for name in (*SOURCE_COLUMNS, *OPTIONAL_COLUMNS) if name in batch.columns]
        # The user's columns may build on any of the batch's, and are computed only for the last records.
        carried = batch.columns if self.has_columns else names
        last = f.max_by(f.struct(*(_quoted(name) for name in carried)), f.col("offset")).alias("last")
        ends = batch.groupBy("topic", "partition").agg(last).select("last.*")
        own = self.own_columns(ends)
        return ends.select(*(_quoted(name) for name in names), *(column.alias(name) for name, column in own.items()))


def _require_same(field: str, spec: str | None, last: LastRecord, own: object, configured: object) -> None:
    """Raise ConfigError unless the configuration's text reads the column's value: only that is searched for later."""
    if spec is None or own == configured or not last.payload_known:
        return
    raise ConfigError(
        f"The {field} column gives {own!r} for offset {last.offset} of {last.at}, and "
        f"{field} = {spec!r} reads {configured!r} from the same record: the reconciler could not find it again.",
        hint=f"Make both give the same, or correct config_{field} and the job's [jobs.identity].",
    )


def _require_type(field: str, found: str | None, allowed: tuple[str, ...], wanted: str) -> None:
    if found is not None and found not in allowed:
        raise ConfigError(f"The {field} column is of type {found}.", hint=f"Give {wanted}.")


def _in_ms(ends: DataFrame, name: str) -> DataFrame:
    """The timestamp column as whole epoch ms, rounded down."""
    from pyspark.sql import functions as f

    return ends.withColumn(name, f.unix_millis(name))


def epoch_ms(number: int | None, unit: str) -> int | None:
    """A number of ``unit`` since 1970 as ms, rounded down."""
    if number is None:
        return None
    return number * 1000 if unit == "s" else number // int(UNITS_PER_MS[unit])


def _quoted(name: str) -> str:
    """A column's name in quotes, so that dots in it are not taken for a path."""
    return "`" + name.replace("`", "``") + "`"


def last_record(fields: Mapping[str, Any], own_unit: str) -> LastRecord:
    """From a row's fields: the source's columns, ``timestamp`` in epoch ms, and the user's columns."""
    kind = fields.get("timestampType")
    stamp = fields["timestamp"]
    own_id = fields.get(OWN_ID)
    return LastRecord(
        at=TopicPartition(fields["topic"], fields["partition"]),
        offset=fields["offset"],
        timestamp_ms=None if kind == NO_TIMESTAMP or stamp is None or stamp < 0 else stamp,
        append_time=kind == APPEND_TIME,
        key=as_bytes(fields["key"]),
        value=as_bytes(fields["value"]),
        headers=tuple((header["key"], as_bytes(header["value"])) for header in fields.get("headers") or ()),
        own_id=as_bytes(own_id) if isinstance(own_id, bytearray | bytes) else json_text(own_id),
        own_time_ms=epoch_ms(fields.get(OWN_TIME), own_unit),
        payload_known=fields.get("payload_known", True),
    )
