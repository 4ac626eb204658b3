"""Frames and their columns: kept while they are used; and those that a person names as FIELD=NAME, checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
"""Spark's short type names of integers."""


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what Spark computes of the frame on its executors' disks until the block ends."""
    from pyspark import StorageLevel

    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def as_bytes(value: Any) -> bytes | None:
    """A binary value of a row, which PySpark gives as a bytearray; None for null."""
    return None if value is None else bytes(value)


def refuse_unknown(kind: Any, given: Iterable[str]) -> None:
    """Raise ConfigError for names that are not fields of the dataclass ``kind``."""
    known = [field.name for field in fields(kind)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(f"There is no field {', '.join(unknown)}.", hint=f"Known here: {', '.join(known)}.")


def require_type(output: DataFrame, field: str, name: str, allowed: tuple[str, ...], *, hint: str = "") -> str:
    """The Spark type of the column ``name``, which the person named for ``field``.

    ``allowed`` are Spark's short type names, without a decimal's digits; empty: any type. Raises ConfigError if there
    is no such column, it is of another type, or the name is a star: to Spark all columns, or all fields of one.
    """
    from pyspark.errors import AnalysisException

    try:
        columns = output.select(name).dtypes
    except AnalysisException as error:
        raise ConfigError(
            f"The output has no column {name!r} for the {field}; it has: {', '.join(output.columns)}.", hint=hint
        ) from error
    if len(columns) != 1:
        raise ConfigError(f"{name!r} for the {field} is {len(columns)} columns, and must be one.", hint=hint)
    ((_, found),) = columns
    if allowed and found.partition("(")[0] not in allowed:
        raise ConfigError(f"The column {name!r} for the {field} is of type {found}, and not {' or '.join(allowed)}.")
    return str(found)
