"""One Spark driver for all queries and range batches of a soak: told by lines of JSON what to start and to stop.

It answers each line with one. A job is started from the file that its hook wrote, as a team's own program would be.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reconciler.spark.started import Job, job
from reconciler.state.start import load
from tests.failover.sinks.queries import DELTA
from tests.soak.clock import be_off
from tests.soak.estate import ID
from tests.spark.sessions import local_session

IDS = f"cast(filter(headers, h -> h.key = '{ID}')[0].value as string) as id"
PER_BATCH = "150"
READING = {
    "kafka.isolation.level": "read_committed",
    "kafkaConsumer.pollTimeoutMs": "10000",
    "kafka.request.timeout.ms": "9000",
    "kafka.default.api.timeout.ms": "10000",
}
"""Without the three times, a query or a batch whose cluster is dead ends minutes after it is stopped."""
SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
"""Batches of a hundred records are not worth a compiler's time."""


class Driver:
    """The running queries and loops, by the names of their jobs."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder = folder
        self._database = database
        self._spark = local_session("soak", **DELTA, **SMALL)
        for key, value in DELTA.items():
            if "_" in key:  # local_session writes a dot for it
                self._spark.conf.set(key, value)
        self._stop: dict[str, Callable[[], None]] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["do"] == "stop":
            with ThreadPoolExecutor() as pool:  # each waits for calls to a cluster that may be dead
                list(pool.map(lambda each: self._stop.pop(each, lambda: None)(), asked["jobs"]))
            return {}
        if asked["do"] == "set clock":
            be_off(asked["seconds"])
            return {}
        name = asked["job"]
        if name in ("files", "delta"):
            begin = functools.partial(self._into, "json" if name == "files" else name, self._folder / name)
        else:
            begin = {"rows": self._rows, "sums": self._sums, "ranges": self._ranges}[name]
        self._stop[name] = begin(job(start=load(Path(asked["start"]).read_text(), asked["start"])))
        return {}

    def _track(self, own: Job, writer: Any) -> Callable[[], None]:
        query = writer.option("checkpointLocation", own.checkpoint).trigger(processingTime="500 milliseconds").start()
        own.track(query)
        return query.stop  # type: ignore[no-any-return]

    def _ids(self, own: Job) -> Any:
        """The ids of a batch's records, in one task."""
        frame = own.read(self._spark, {**READING, "maxOffsetsPerTrigger": PER_BATCH})
        return frame.selectExpr(IDS).where("id is not null").coalesce(1)

    def _into(self, form: str, folder: Path, own: Job) -> Callable[[], None]:
        """Ids into Spark's file sink, or Delta."""
        frame = self._ids(own)
        return self._track(own, frame.writeStream.format(form).option("path", str(folder)))

    def _rows(self, own: Job) -> Callable[[], None]:
        """Ids into PostgreSQL, each batch in one transaction with its number."""

        def write(batch: Any, number: int) -> None:
            import psycopg

            ids = [row.id for row in batch.collect()]
            with psycopg.connect(self._database) as connection:
                new = connection.execute("INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING", (number,))
                if new.rowcount:
                    with connection.cursor() as cursor:
                        cursor.executemany(
                            "INSERT INTO rows VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = rows.n + 1",
                            [(each,) for each in ids],
                        )

        return self._track(own, self._ids(own).writeStream.foreachBatch(write))

    def _sums(self, own: Job) -> Callable[[], None]:
        """The ids of each thousand, in Spark's state: without its state, the newest list lacks the older ids."""
        ids = self._ids(own).selectExpr("id", "substring(id, 1, 5) as thousand")
        listed = ids.groupBy("thousand").agg({"id": "collect_list"}).toDF("thousand", "ids")

        def write(batch: Any, number: int) -> None:
            rows = {row["thousand"]: row["ids"] for row in batch.collect()}
            place = self._folder / "sums" / f"{number:08d}.json"
            place.parent.mkdir(exist_ok=True)
            whole = place.with_suffix(".new")
            whole.write_text(json.dumps(rows))
            whole.replace(place)

        return self._track(own, listed.writeStream.outputMode("update").foreachBatch(write))

    def _ranges(self, own: Job) -> Callable[[], None]:
        """Ids, range by range, at least once."""
        from reconciler.spark.batches.planning import Caps
        from reconciler.spark.batches.runner import RangeBatches, at_least_once

        ended = threading.Event()
        lines = self._folder / "ranges.txt"

        def write(frame: Any, _: object) -> None:
            ids = [row.id for row in frame.selectExpr(IDS).collect() if row.id is not None]
            with lines.open("a") as file:
                file.write("".join(f"{each}\n" for each in ids))

        def loop() -> None:
            batches = RangeBatches(
                self._spark,
                topics=list(own.start.topics),
                group="ranges",
                bootstrap_servers=own.start.bootstrap_servers,
                store=f"sqlite:///{self._folder}/ranges.db",
                caps=Caps(per_run=int(PER_BATCH)),
                options=READING,
                id=f"header:{ID}",
                job=own,
            )
            try:
                while not ended.is_set():
                    try:
                        found = batches.run_once(at_least_once(write))
                    except Exception as error:  # noqa: BLE001 a cluster or a store is away: a run is repeated
                        print(f"ranges: {error}", file=sys.stderr, flush=True)
                        found = None
                    if found is None:
                        ended.wait(0.3)
            finally:
                batches.close()

        thread = threading.Thread(target=loop, name="ranges")
        thread.start()

        def stop() -> None:
            ended.set()
            thread.join()

        return stop


if __name__ == "__main__":
    driver = Driver(Path(sys.argv[1]), sys.argv[2])
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            found = driver.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 the caller says which job it was
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)
