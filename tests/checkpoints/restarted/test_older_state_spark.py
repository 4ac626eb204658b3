"""Spark restarts on a copy without the state that it no longer reads: with every kind of state, after either stop."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reconciler.checkpoints.files import Tree
from reconciler.checkpoints.needed import older_state
from tests import ROOT
from tests.spark.sessions import local_session

pytestmark = pytest.mark.system

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGES = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
SECOND = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
KINDS: dict[str, dict[str, str]] = {
    "hdfs": {},
    "rocksdb": {PROVIDER: ROCKSDB},
    "rocksdb-changes": {PROVIDER: ROCKSDB, **CHANGES},
    "rocksdb-second": {PROVIDER: ROCKSDB, **CHANGES, **SECOND},
}
BEFORE, AFTER, KEYS = 7, 3, 3
FIRST = ("hdfs",)


@pytest.mark.parametrize(
    "kinds", [FIRST, pytest.param(tuple(set(KINDS) - set(FIRST)), marks=pytest.mark.thorough)], ids=["first", "others"]
)
def test_a_query_goes_on_with_what_a_copy_has(kinds: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.checkpoints.restarted.test_older_state_spark", str(tmp_path), *kinds]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = Counter(f"k{number % KEYS}" for number in range(BEFORE + AFTER))
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {f"{kind}-{stop}" for kind in kinds for stop in ("committed", "killed")}
    for name, result in found.items():
        assert result["counts"] == dict(wanted), name
        assert result["older"] > 0, f"{name}: every file was kept, which proves nothing"


# ---------------------------------------------------------------- the program that the test runs


def main(home: Path, kinds: list[str]) -> None:
    """Run each kind of query on small files, copy its checkpoint, and run it on the copies with some more."""
    spark = local_session(
        "older-state",
        kafka=False,
        spark_sql_shuffle_partitions="1",
        spark_sql_streaming_stateStore_minDeltasForSnapshot="2",
        spark_sql_streaming_stateStore_maintenanceInterval="50ms",
    )
    found = {}
    for kind in kinds:
        settings = KINDS[kind]
        for name, value in settings.items():
            spark.conf.set(name, value)
        _write(home / kind / "input", range(BEFORE))
        _run(spark, home / kind, home / kind / "checkpoint")
        for stop in ("committed", "killed"):
            if stop == "killed":
                for each in ("", "."):
                    crc = ".crc" if each else ""
                    (home / kind / "checkpoint/commits" / f"{each}{BEFORE - 1}{crc}").unlink(missing_ok=True)
            older = _copy(home / kind / "checkpoint", home / kind / stop, BEFORE - (stop == "killed"))
            found[f"{kind}-{stop}"] = {"older": older}
        _write(home / kind / "input", range(BEFORE, BEFORE + AFTER))
        for stop in ("committed", "killed"):
            found[f"{kind}-{stop}"]["counts"] = _run(spark, home / kind, home / kind / stop)
        for name in settings:
            spark.conf.unset(name)
    (home / "found.json").write_text(json.dumps(found))
    spark.stop()


def _write(folder: Path, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{number:03}.txt").write_text(f"k{number % KEYS}")


def _run(spark: object, home: Path, checkpoint: Path) -> dict[str, int]:
    counts: dict[str, int] = {}

    def put(batch: object, _: int) -> None:
        counts.update({row["value"]: row["count"] for row in batch.collect()})  # type: ignore[attr-defined]

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(home / "input"))  # type: ignore[attr-defined]
    writer = lines.groupBy("value").count().writeStream.foreachBatch(put).outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return counts


def _copy(checkpoint: Path, to: Path, version: int) -> int:
    """Copy what is needed, as soon as Spark uploads no more snapshots in the background."""
    tree = Tree(str(checkpoint))
    while True:
        listed = tree.listing()
        shutil.copytree(checkpoint, to)
        if tree.listing() == listed:
            break
        shutil.rmtree(to)
    older = older_state(listed.files, version, tree.read_all)
    for name in older:
        (to / name).unlink()
    return len(older)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
