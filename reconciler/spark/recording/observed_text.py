"""Each partition's last record of a batch as one text that Spark observes while the batch runs, and back.

The text is JSON, since reports in JSON lose nested values: an array with one object per partition that has records.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.identity_columns import OWN_ID, OWN_TIME, BatchIdentity, LastRecord, last_record

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PAYLOAD_BYTES = 64 * 1024
"""A key and value longer than this together are not observed: the record's anchor has no fingerprint."""


def fields_of(
    frame: DataFrame, identity: BatchIdentity, own: Mapping[str, Column], types: Mapping[str, str], *, payload: bool
) -> list[Column]:
    """What Spark observes of a record, without key and value if not ``payload``.

    ``own``: the identity's own columns of the frame, ``types``: their types, by name.
    """
    from pyspark.sql import functions as f

    fields = [f.col("topic"), f.col("partition"), f.col("offset"), f.unix_millis("timestamp").alias("timestamp")]
    if "timestampType" in frame.columns:
        fields.append(f.col("timestampType"))
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    fits = size <= PAYLOAD_BYTES if payload else f.lit(False)
    fields.append(fits.alias("payload_known"))
    key_is_id = isinstance(identity.id, str) and identity.id == "key"
    key = f.col("key") if key_is_id else f.when(fits, f.col("key"))
    fields += [key.alias("key"), f.when(fits, f.col("value")).alias("value")]
    if identity.needs_headers:
        fields.append(f.col("headers"))
    for name, column in own.items():
        column = f.unix_millis(column) if types[name] == "timestamp" else column
        kind = "bytes" if types[name] == "binary" else "value"
        fields.append(f.struct(column.alias(kind)).alias(name))
    return fields


def observed(places: Sequence[TopicPartition], fields: Sequence[Column]) -> Column:
    """All partitions' last records as one JSON text: reports in JSON lose nested values."""
    from pyspark.sql import functions as f

    last = []
    for at in places:
        here = (f.col("partition") == at.partition) & (f.col("topic") == at.topic)
        last.append(f.max_by(f.struct(*fields), f.when(here, f.col("offset"))))
    return f.to_json(f.array(*last)).alias("last_records")


def text_of(row: Any) -> str | None:
    """The observed text of a report's row, which has no other column.

    In Spark Connect's ``recentProgress`` the row has the fields ``values`` and ``schema`` instead (PySpark 4.0 to 4.3).
    In PySpark 3.5's reports it is an object of JSON.
    """
    if isinstance(row, Mapping):
        return next(iter(row.values()), None)
    names = getattr(row, "__fields__", ())
    text: str | None = row["values"][0] if list(names) == ["values", "schema"] else row[0]
    return text


def last_records(text: str | None, own_unit: str) -> list[LastRecord]:
    """The records in an observed text. Spark writes bytes as base64, and leaves null fields out."""
    return [last_record(_decoded(each), own_unit) for each in json.loads(text or "[]") if each]


def _decoded(each: dict[str, Any]) -> dict[str, Any]:
    def plain(value: str | None) -> bytes | None:
        return None if value is None else b64decode(value)

    fields = {name: each.get(name) for name in ("topic", "partition", "offset", "timestamp", "timestampType")}
    fields |= {name: plain(each.get(name)) for name in ("key", "value")}
    fields["headers"] = [{"key": h.get("key"), "value": plain(h.get("value"))} for h in each.get("headers") or ()]
    fields["payload_known"] = each["payload_known"]
    for name in (OWN_ID, OWN_TIME):
        own = each.get(name) or {}
        fields[name] = plain(own["bytes"]) if "bytes" in own else own.get("value")
    return fields


def require_id_without_payload(identity: BatchIdentity) -> None:
    """Raise ConfigError if the identity is read from keys and values, which are to be left out."""
    if isinstance(identity.id, str) and identity.id != "key" and not identity.id.startswith("header:"):
        raise ConfigError(
            f'fingerprint=False leaves keys and values out, and id = "{identity.id}" cannot be read without them.',
            hint='Give an id that is "key", "header:NAME" or a column; or leave fingerprint at True.',
        )
    if isinstance(identity.timestamp, str) and identity.timestamp.startswith("json:"):
        raise ConfigError(
            f'fingerprint=False leaves values out, and timestamp = "{identity.timestamp}" is read from them.',
            hint="Give a column for the timestamp, or leave fingerprint at True.",
        )
