"""What merging the small files of range batches costs, beside Spark merging the same files with no catalogue.

    python -m tests.bench.stores.compaction [--rows 100000000] [--files 1000] [--memory 6g] [--target-mb 256]

Generates rows with an id of 16 bytes in so many Parquet files, each a finished batch of ``HashNamedFiles``, and in one
Spark process of two threads with so much memory: ``plain`` reads and writes all of them; ``compact`` merges them;
``again`` is a second compaction, with a tenth as many new files, and only these should be written again. Prints
seconds, the process's peak memory and the bytes that were written. Fails unless the catalogue has the same rows after
each. Generating the files is not timed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.folder import open_folder
from reconciler.spark.ranges import output
from reconciler.spark.ranges.compaction import compact
from reconciler.spark.ranges.output import Catalogue, CatalogueEntry
from tests.bench.common import cpu_s, peak_mb, print_json
from tests.spark.sessions import SMALL

SHOWN = ("rows", "files", "files_after", "mb", "written_mb", "wall_s", "cpu_s", "peak_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--memory", default="6g", help="the heap of Spark's one process")
    parser.add_argument("--target-mb", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="compaction-"))
    try:
        rows = measured(options.rows, options.files, options.memory, options.target_mb << 20, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{'':10}" + "".join(f"{name:>13}" for name in SHOWN))
    for row in rows:
        print(f"{row['kind']:10}" + "".join(f"{row[name]:>13,}" for name in SHOWN))
    print_json("stores.compaction", vars(options), rows, options.json)


def measured(rows: int, files: int, memory: str, target_bytes: int, place: Path) -> list[dict[str, Any]]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("compaction")
    for key, value in {**SMALL, "spark.driver.memory": memory, "spark.local.dir": str(place / "spark")}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    process = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    out, found = place / "out", []

    def timed(kind: str, work: Callable[[], object], written_to: Path) -> None:
        before, files_before, there = size_of(written_to), output.files(str(out)), size_of(out)
        used, began = cpu_s(process) + time.process_time(), time.perf_counter()
        work()
        wall, cpu = time.perf_counter() - began, cpu_s(process) + time.process_time() - used
        found.append(
            {
                "kind": kind,
                "rows": rows,
                "files": len(files_before),
                "files_after": len(output.files(str(out))),
                "mb": there >> 20,
                "written_mb": (size_of(written_to) - before) >> 20,
                "wall_s": round(wall, 1),
                "cpu_s": round(cpu, 1),
                "peak_mb": peak_mb(process),
            }
        )

    try:
        batches(spark, out, 0, rows, files)
        merged = max(1, size_of(out) // target_bytes)
        timed("plain", lambda: plain(spark, out, place / "plain", merged), place / "plain")
        shutil.rmtree(place / "plain")
        timed("compact", lambda: compact(spark, str(out), target_bytes=target_bytes), out / "_compacted")
        check(spark, out, rows)
        batches(spark, out, rows, rows // 10, files // 10)
        timed("again", lambda: compact(spark, str(out), target_bytes=target_bytes), out / "_compacted")
        check(spark, out, rows + rows // 10)
        return found
    finally:
        spark.stop()


def batches(spark: Any, out: Path, first: int, rows: int, files: int) -> None:
    """Finished batches, one file each."""
    ids = spark.range(first, first + rows, 1, files).selectExpr(
        "unhex(md5(cast(id AS string))) AS event_id", "id", "id % 1000 AS amount"
    )
    aside = out / "_writing"
    ids.write.parquet(str(aside))
    catalogue = Catalogue(open_folder(str(out / "_batches")))
    if not catalogue.folder.exists():
        catalogue.folder.make()
    for number, file in enumerate(sorted(aside.glob("*.parquet"))):
        name = f"{first + number:032x}"
        file.rename(out / f"{name}-00000.parquet")
        catalogue.put(f"{name}.json", CatalogueEntry(name, "clicks", (f"{name}-00000.parquet",)))
    shutil.rmtree(aside)


def plain(spark: Any, out: Path, to: Path, files: int) -> None:
    spark.read.parquet(str(out)).coalesce(files).write.parquet(str(to))


def check(spark: Any, out: Path, rows: int) -> None:
    """Raise SystemExit unless each row is there once."""
    whole = "sum(if(event_id = unhex(md5(cast(id AS string))), 1, 0))"
    (found,) = output.read(spark, str(out)).selectExpr("count(*)", "min(id)", "max(id)", "sum(id)", whole).collect()
    if tuple(found) != (rows, 0, rows - 1, rows * (rows - 1) // 2, rows):
        raise SystemExit(f"not the rows that were written: {tuple(found)}")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


if __name__ == "__main__":
    main()
