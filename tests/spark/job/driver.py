"""A driver with two tracked jobs, a stateful query and one with ``foreachBatch``, for tests that kill it.

As a program: ``python -m tests.spark.job.driver START START``. It reports when both queries have ended.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

WORK_S = 0.4
"""The work of a batch, in which it can be killed."""


def main(*paths: str) -> None:
    from reconciler.spark import job
    from reconciler.state.start import load
    from tests.spark.sessions import local_session

    logging.basicConfig(level=logging.WARNING)
    spark = local_session("driver", spark_sql_shuffle_partitions="1")
    counts, batches = (job(start=load(Path(path).read_text(), path)) for path in paths)

    def work(batch: Any, number: int) -> None:
        batch.count()
        time.sleep(WORK_S)

    stateful = counts.read(spark).groupBy("key").count().writeStream.outputMode("update").format("noop")
    writers = {counts: stateful, batches: batches.read(spark).writeStream.foreachBatch(work)}
    tracked = []
    for each, writer in writers.items():
        query = writer.option("checkpointLocation", each.checkpoint).trigger(processingTime="1 second").start()
        tracked.append((query, each.track(query)))
    for query, tracking in tracked:
        query.awaitTermination()
        tracking.close()
        print(json.dumps([tracking.job, tracking.state, str(tracking.trouble)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
