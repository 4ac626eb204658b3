"""Small tables of the driver's: made without Python on the executors, which ``createDataFrame`` of a list needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def small_table(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """``rows`` of numbers, texts and nulls. Spark folds the JSON to constant rows while it plans."""
    from pyspark.sql import functions as f

    names = [field.split()[0] for field in schema.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], separators=(",", ":"))
    fields = ",".join(f"{name}:{kind}" for name, kind in (field.split() for field in schema.split(", ")))
    parsed = f.from_json(f.lit(text), f"array<struct<{fields}>>")
    return spark.range(1).select(f.explode(parsed).alias("row")).select("row.*")
