"""A record's name, computed on Spark: the job's message id if it has one, else a hash over key and value.

Names are only compared for equality. Spark itself reads ids that are a key or a header; the code of ``check`` reads the
others (JSON, a user's function).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from reconciler.config.identity import SpecifiedIdentity, identity_from_spec
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.columns import as_bytes
from reconciler.spark.last_records import LastRecord

NO_TIMESTAMP, APPEND_TIME = -1, 1
"""Kafka's ``TimestampType`` ids, as in the source's column ``timestampType``."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming of the job's records: by id, or by key and value.

    ``unique``: no two records that are compared share an id.
    """

    is_by_id: bool
    identity: Identity
    unique: bool = False

    @classmethod
    def of(cls, id: str | Identity, *, by_id: bool | None, unique: bool, apart: bool) -> Naming:
        """``by_id`` None: by id if there is one. ``apart``: names of two partitions are never compared, so that ids may
        begin again in each. Unique ids say nothing of records that are named by key and value. Raises ConfigError.
        """
        identity = identity_from_spec(id=id) if isinstance(id, str) else id
        has_id = identity.id_of is not None
        if by_id and not has_id:
            raise ConfigError(
                "The output has ids, but the job's identity reads none from a record.",
                hint="Set [jobs.identity] id, or name the output's key and value.",
            )
        is_by_id = has_id if by_id is None else by_id
        return cls(is_by_id, identity, is_by_id and (unique or (apart and identity.has_unique_ids)))

    @property
    def told_apart_by(self) -> str:
        return "id" if self.is_by_id else "key and value"

    @property
    def _spec(self) -> str:
        """The id as a text of the configuration, if Spark can read it by itself."""
        settings = self.identity.settings if isinstance(self.identity, SpecifiedIdentity) else None
        return "" if settings is None or settings.frame != "none" else settings.id

    @property
    def needs_headers(self) -> bool:
        return self.is_by_id and self._spec != "key"

    def named(self, log: DataFrame, *keep: str) -> DataFrame:
        """A log's columns ``keep``, with ``name``: null for a record without an id."""
        if not self.is_by_id:
            return log.select(*keep, content_of("key", "value").alias("name"))
        return log.select(*keep, self._id(log).alias("id")).select(*keep, hashed(f.col("id")).alias("name"))

    def _id(self, log: DataFrame) -> Column:
        if self._spec == "key":
            return f.col("key")
        if self._spec.startswith("header:"):
            name = self._spec.partition(":")[2]
            found = f.filter("headers", lambda header: header["key"] == f.lit(name))
            return f.try_element_at(found, f.lit(-1))["value"]
        columns = ["topic", "partition", "offset", "key", "value", "headers"]
        record = [f.unix_millis("timestamp"), f.col("timestampType"), *(log[name] for name in columns)]
        return _read_in_python(self.identity)(*record)


def hashed(column: Column) -> Column:
    """SHA-256 (32 bytes) of a column of bytes."""
    return f.unhex(f.sha2(column, 256))


def content_of(key: str, value: str) -> Column:
    """The name of key and value columns, of a log or of the output."""
    return hashed(f.concat(_part(key), _part(value)))


def _part(name: str) -> Column:
    """Null, or length and bytes, so that different pairs of key and value never give the same bytes."""
    column = f.col(name)
    length = f.unhex(f.lpad(f.hex(f.octet_length(column).cast("bigint")), 16, "0"))
    present = f.concat(f.lit(b"\x01"), length, column)
    return f.when(column.isNull(), f.lit(b"\x00")).otherwise(present)


def _read_in_python(identity: Identity) -> Any:
    """The job's own id function over a log's columns. ``config.identity`` makes sure that it never raises."""
    id_of = identity.id_of

    def read(stamp: int, kind: int, topic: str, partition: int, offset: int, key: Any, value: Any, headers: Any) -> Any:
        record = LastRecord(
            at=TopicPartition(topic, partition),
            offset=offset,
            timestamp_ms=None if kind == NO_TIMESTAMP or stamp is None or stamp < 0 else stamp,
            append_time=kind == APPEND_TIME,
            key=as_bytes(key),
            value=as_bytes(value),
            headers=tuple((header["key"], as_bytes(header["value"])) for header in headers or ()),
        )
        return id_of(record) if id_of is not None else None

    return f.udf(read, "binary", useArrow=False)
