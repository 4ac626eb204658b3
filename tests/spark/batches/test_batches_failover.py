"""A failover between two batches, corrected by the product's own commands: each record once, over both clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import NeedsPerson, Unreachable
from reconciler.places.files import FilesStore
from reconciler.spark.batches.hashed_files import HashNamedFiles
from reconciler.spark.batches.planning import Caps
from reconciler.spark.batches.postgresql import PostgresUpsert
from reconciler.spark.batches.runner import exactly_once
from reconciler.spark.batches.transactional import PostgresTransaction
from tests import ROOT
from tests.spark.batches.world import a_job, collected, id_results, ids, sent
from tests.spark.sent import Kafka
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.system

TABLE = '(id text {key}, topic text, partition integer, "offset" bigint)'


def command(*arguments: object) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "reconciler", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def apart(folder: Path, name: str, address: str) -> str:
    """A store's address in a file of its own, as a configuration wants it that holds a password."""
    path = folder / f"{name}.address"
    path.write_text(address)
    return json.dumps(f"file:{path}")


def configuration(folder: Path, destination: str, topic: str, stores: dict[str, str]) -> Path:
    text = f'[state]\nstore = "sqlite:///{folder}/state.db"\n[clusters.a]\n[clusters.b]\n'
    text += f'bootstrap_servers = "{destination}"\n'
    for group, store in stores.items():
        text += f'[[jobs]]\nhome = "a"\nname = "{group}"\ntopics = ["{topic}"]\n'
        text += f"offsets = {apart(folder, group, store)}\n"
        text += '[jobs.identity]\nid = "key"\n'
    path = folder / "reconciler.toml"
    path.write_text(text)
    return path


def test_exactly_once_holds_over_a_failover(
    spark: Any,
    kafka: Kafka,
    clusters: Any,
    topic_name: str,
    tmp_path: Path,
    psql: Any,
    database: str,
    monkeypatch: Any,
) -> None:
    there, out = f"a.{topic_name}", str(tmp_path / "out")
    psql.execute("CREATE TABLE clicks " + TABLE.format(key=""))
    psql.execute("CREATE TABLE kept " + TABLE.format(key="PRIMARY KEY"))
    stores = {
        "transaction": database,
        "upsert": f"sqlite:///{tmp_path}/offsets.db",
        "files": f"files:{tmp_path}/offsets",
    }
    sinks: dict[str, Any] = {
        "transaction": lambda: PostgresTransaction(database, "clicks"),
        "upsert": lambda: PostgresUpsert(database, "kept", key=["id"]),
        "files": lambda: HashNamedFiles(out),
    }

    def job(group: str, cluster: Kafka, topic: str, **how: Any) -> Any:
        store = None if group == "transaction" else stores[group]
        return a_job(spark, cluster, topic, group=group, store=store, **how)

    kafka.create(topic_name, 2)
    kafka.send(topic_name, sent(range(40)))
    for group, sink in sinks.items():
        assert job(group, kafka, topic_name, caps=Caps(per_run=30)).run(
            exactly_once(id_results, into=sink()), batches=1
        )

    # The last batch at the source got as far as its files: their offsets were never saved.
    def away(*_: object, **__: object) -> None:
        raise Unreachable("The store is away.")

    monkeypatch.setattr(FilesStore, "write", away)
    with pytest.raises(Unreachable):
        job("files", kafka, topic_name).run(exactly_once(id_results, into=sinks["files"]()))
    monkeypatch.undo()
    assert collected(spark.read.parquet(out)) == ids(range(40))

    # The mirror's numbers are others: each of its transactions ends with a marker that takes an offset.
    destination = Kafka(clusters.destination.bootstrap)
    destination.create(there, 2)
    for first in range(0, 40, 8):
        destination.send(there, sent(range(first, first + 8)), transaction=f"mirror-{topic_name}")
    destination.send(there, sent(range(40, 50)))

    for group, sink in sinks.items():
        with pytest.raises(NeedsPerson, match="it was not moved here"):
            job(group, destination, there).run(exactly_once(id_results, into=sink()))
    config = configuration(tmp_path, destination.bootstrap, topic_name, stores)
    command("init", "-c", config)
    command("plan", "-c", config, "-o", tmp_path / "plan.json")
    command("apply", tmp_path / "plan.json", "-c", config, "--yes")
    rows = [row for each in json.loads((tmp_path / "plan.json").read_text())["jobs"] for row in each["partitions"]]
    assert {(row["finding"], row["stored_offset"], row["replay"]["at_most"]) for row in rows} == {("exact", 15, 0)}
    assert all(row["resume_offset"] > 15 for row in rows)

    for group, sink in sinks.items():
        again = job(group, destination, there, caps=Caps(per_run=12))
        assert again.run(exactly_once(id_results, into=sink())) > 1
    for table in ("clicks", "kept"):
        found = psql.execute(f"SELECT id, count(*) FROM {table} GROUP BY 1").fetchall()
        assert dict(found) == ids(range(50)), table
    assert collected(spark.read.parquet(out)) == ids(range(50)), "what was begun at the source is undone"
