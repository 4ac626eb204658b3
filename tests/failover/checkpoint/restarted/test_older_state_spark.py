"""Spark restarts on a copy without the state that it no longer reads: with every kind of state, after either stop.

And on one that repeats the killed batch without its record, which then comes in the next batch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.places.checkpoint.files import Tree, older_state, repeated_state
from tests import ROOT
from tests.spark.sessions import local_session

pytestmark = pytest.mark.system

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGES = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
SECOND = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
SNAPSHOTS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
KINDS: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocksdb": {PROVIDER: ROCKSDB},
    "rocksdb-changes": {PROVIDER: ROCKSDB, **CHANGES},
    "rocksdb-second": {PROVIDER: ROCKSDB, **CHANGES, **SECOND},
}
BEFORE, AFTER, KEYS = 7, 3, 3
FIRST = ("hdfs",)
STOPS = ("committed", "killed", "emptied")


@pytest.mark.parametrize(
    "kinds", [FIRST, pytest.param(tuple(set(KINDS) - set(FIRST)), marks=pytest.mark.thorough)], ids=["first", "others"]
)
def test_a_query_goes_on_with_what_a_copy_has(kinds: tuple[str, ...], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.failover.checkpoint.restarted.test_older_state_spark",
        str(tmp_path),
        *kinds,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = Counter(f"k{number % KEYS}" for number in range(BEFORE + AFTER))
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {f"{kind}-{stop}" for kind in kinds for stop in STOPS}
    for name, result in found.items():
        assert result["counts"] == dict(wanted), name
        assert result["older"] > 0, f"{name}: every file was kept, which proves nothing"
    for kind in kinds:
        left = {stop: found[f"{kind}-{stop}"]["repeated"] > 0 for stop in STOPS}
        has_both = kind in ("hdfs", "rocksdb-changes")  # a snapshot of the killed batch, and its changes
        assert left == {"committed": False, "killed": has_both, "emptied": has_both}, kind


# ---------------------------------------------------------------- the program that the test runs


def main(home: Path, kinds: list[str]) -> None:
    """Run each kind of query on small files, copy its checkpoint, and run it on the copies with some more."""
    from pyspark.errors import StreamingQueryException

    spark = local_session(
        "older-state",
        kafka=False,
        spark_sql_shuffle_partitions="1",
        spark_sql_streaming_stateStore_maintenanceInterval="50ms",
    )
    found = {}
    for kind in kinds:
        settings = {**KINDS[kind], SNAPSHOTS: "0"}
        for name, value in settings.items():
            spark.conf.set(name, value)
        original = home / kind / "checkpoint"
        _write(home / kind / "input", range(BEFORE))
        _run(spark, home / kind, original, {BEFORE - 1: partial(_await_snapshot, original)})
        for stop in STOPS:
            if stop == "killed":
                _remove(original / "commits", BEFORE - 1)
            found[f"{kind}-{stop}"] = _copy(original, home / kind / stop, BEFORE - (stop != "committed"))
        _empty(home / kind / "emptied", BEFORE - 1)
        spark.conf.set(SNAPSHOTS, "100")  # what the original left is not written over
        _write(home / kind / "input", range(BEFORE, BEFORE + AFTER))
        with suppress(StreamingQueryException):  # the next batch finds the state in the files
            _run(spark, home / kind, home / kind / "emptied", {BEFORE: _fail})
        for stop in STOPS:
            found[f"{kind}-{stop}"]["counts"] = _run(spark, home / kind, home / kind / stop)
        for name in settings:
            spark.conf.unset(name)
    (home / "found.json").write_text(json.dumps(found))
    spark.stop()


def _write(folder: Path, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{number:03}.txt").write_text(f"k{number % KEYS}")


def _run(
    spark: Any, home: Path, checkpoint: Path, after: Mapping[int, Callable[[], None]] = MappingProxyType({})
) -> dict[str, int]:
    """``after``: what to do in a batch that has run, by its number."""
    counts: dict[str, int] = {}

    def put(batch: Any, number: int) -> None:
        counts.update({row["value"]: row["count"] for row in batch.collect()})
        after.get(number, lambda: None)()

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(home / "input"))
    writer = lines.groupBy("value").count().writeStream.foreachBatch(put).outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return counts


def _await_snapshot(checkpoint: Path) -> None:
    """Spark makes it in the background."""
    until = time.monotonic() + 60
    while not any(list(checkpoint.glob(f"state/0/0/{BEFORE}*.{kind}")) for kind in ("snapshot", "zip")):
        assert time.monotonic() < until
        time.sleep(0.05)


def _fail() -> None:
    raise RuntimeError("killed")


def _remove(folder: Path, number: int) -> None:
    """A file of Hadoop's, with its checksum."""
    (folder / str(number)).unlink(missing_ok=True)
    (folder / f".{number}.crc").unlink(missing_ok=True)


def _empty(checkpoint: Path, batch: int) -> None:
    """End a batch where it begins."""
    last, before = ((checkpoint / "offsets" / str(number)).read_text() for number in (batch, batch - 1))
    _remove(checkpoint / "offsets", batch)
    text = last.rpartition("\n")[0] + "\n" + before.rpartition("\n")[2]
    (checkpoint / "offsets" / str(batch)).write_text(text)


def _copy(checkpoint: Path, to: Path, version: int) -> dict[str, Any]:
    """Copy what is needed, as soon as Spark uploads no more snapshots in the background."""
    tree = Tree(str(checkpoint))
    while True:
        listed = tree.listing()
        shutil.copytree(checkpoint, to)
        if tree.listing() == listed:
            break
        shutil.rmtree(to)
    repeated = repeated_state(listed.files, version)
    older = older_state(listed.files.keys() - repeated, version)
    for name in repeated | older:
        (to / name).unlink()
    return {"older": len(older), "repeated": len(repeated)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
