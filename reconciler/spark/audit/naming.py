"""A record's name, computed on Spark: the job's message id if it has one, else a hash over key and value.

Names are only compared for equality, so Spark's own SHA-256 is enough for key and value; the fingerprint of the
formats, which Spark lacks, is computed in Python, and only if the output has fingerprints. Spark itself reads ids that
are a key or a header; the code of ``check`` reads the others (JSON, a user's function).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from reconciler.core.anchors import Identity
from reconciler.core.anchors import fingerprint as core_fingerprint
from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec
from reconciler.ports import TopicPartition
from reconciler.spark.columns import as_bytes
from reconciler.spark.identity_columns import APPEND_TIME, NO_TIMESTAMP, LastRecord

Unique = bool | Literal["partition"] | None
"""Whether no two records share an id: of the whole job (True), or of one source partition; None: as the identity says,
which speaks of one partition."""
PARTITION: Literal["partition"] = "partition"

ID, CONTENT, OFFSET, NAMELESS = "i", "f", "o", "n"
"""The kind of a name (column ``by``). NAMELESS: a row of the output without a value in the column."""


class By(Enum):
    """The property by which an audit distinguishes records."""

    ID = "id"
    CONTENT = "key and value"
    FINGERPRINT = "fingerprint"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming of the job's records. ``spec`` is a text as in ``[jobs.identity] id``, None for a function.

    ``unique``: no two records that are compared share an id. ``unique_apart``: no two of one partition do, and those of
    several are compared.
    """

    by: By
    spec: str | None
    identity: Identity
    unique: bool = False
    unique_apart: bool = False

    @classmethod
    def of(cls, id: str | Identity, by: By | None, unique: Unique, *, by_partition: bool) -> Naming:
        """``by`` None: by id if there is one. ``by_partition``: names of two partitions are never compared.

        Raises ConfigError. Unique ids say nothing of records that are distinguished by something else: two may have one
        key and value.
        """
        identity = identity_from_spec(id=id) if isinstance(id, str) else id
        has_id = identity.id_of is not None
        chosen = by or (By.ID if has_id else By.CONTENT)
        if unique is None and identity.has_unique_ids:
            unique = PARTITION
        if chosen is By.ID and not has_id:
            raise ConfigError(
                "The output has ids, but the job's identity reads none from a record.",
                hint="Set [jobs.identity] id, or name the output's key and value.",
            )
        in_each = chosen is By.ID and unique == PARTITION
        is_unique = (chosen is By.ID and unique is True) or (in_each and by_partition)
        return cls(chosen, id if isinstance(id, str) else None, identity, is_unique, in_each and not by_partition)

    @property
    def needs_headers(self) -> bool:
        return self.by is By.ID and self.spec not in ("key", "none")

    def named(self, log: DataFrame, *keep: str) -> DataFrame:
        """A log's columns ``keep``, with ``by`` and ``name``."""
        if self.by is By.FINGERPRINT:
            return log.select(*keep, f.lit(CONTENT).alias("by"), _blake2(log).alias("name"))
        content = hashed(f.concat(_part("key"), _part("value")))
        if self.by is not By.ID or self.identity.id_of is None:
            return log.select(*keep, f.lit(CONTENT).alias("by"), content.alias("name"))
        with_id = log.select(*keep, "key", "value", self._id(log).alias("id"))
        return with_id.select(
            *keep,
            f.when(f.col("id").isNull(), CONTENT).otherwise(ID).alias("by"),
            f.when(f.col("id").isNull(), content).otherwise(hashed(f.col("id"))).alias("name"),
        )

    def _id(self, log: DataFrame) -> Column:
        if self.spec == "key":
            return f.col("key")
        if self.spec is not None and self.spec.startswith("header:"):
            name = self.spec.partition(":")[2]
            found = f.filter("headers", lambda header: header["key"] == f.lit(name))
            return f.try_element_at(found, f.lit(-1))["value"]
        return _read_in_python(self.identity)(*_record_columns())


def hashed(column: Column) -> Column:
    """SHA-256 (32 bytes) of a column of bytes."""
    return f.unhex(f.sha2(column, 256))


def content_of(key: str, value: str) -> Column:
    """The name of key and value columns, as ``Naming`` makes it for a log."""
    return hashed(f.concat(_part(key), _part(value)))


def _part(name: str) -> Column:
    """Null, or length and bytes, so that different pairs of key and value never give the same bytes."""
    column = f.col(name)
    length = f.unhex(f.lpad(f.hex(f.octet_length(column).cast("bigint")), 16, "0"))
    present = f.concat(f.lit(b"\x01"), length, column)
    return f.when(column.isNull(), f.lit(b"\x00")).otherwise(present)


def _blake2(log: DataFrame) -> Column:
    def name(key: Any, value: Any) -> bytes:
        return bytes.fromhex(core_fingerprint(as_bytes(key), as_bytes(value)))

    return f.udf(name, "binary", useArrow=False)(log["key"], log["value"])


def _record_columns() -> list[Column]:
    names = ["topic", "partition", "offset", "key", "value", "headers"]
    return [f.unix_millis("timestamp"), f.col("timestampType"), *(f.col(name) for name in names)]


def _read_in_python(identity: Identity) -> Any:
    """The job's own id function over a log's columns. ``reconciler.identity`` makes sure that it never raises."""
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
