"""A plain job that keeps its Kafka offsets in the transactions of its own table.

``python -m tests.places.sink_job KIND TABLE [LAST,LAST…]`` reads its topic by a plain consumer from where the hook says
it starts, up to record LAST of each partition (or to the end), and appends the ids in two transactions. With
``JOB_DIES`` in its environment it dies after the first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

ID = "db.clicks"
DIED = 9
"""The exit code of a job that is to die after its first transaction."""
KINDS: Mapping[str, str] = {
    "delta commit": "delta:{}?layout=commit&number=next&lists=all",
    "delta txn": "delta:{}?layout=txn&number=last&app_id={{group}}-{{topic}}-{{partition}}&partitions=2",
    "delta columns": "delta:{}?layout=columns&number=last&topic=topic&partition=partition&offset=offset",
    "iceberg summary": "iceberg:{}/db.clicks?layout=summary&number=next&property=kafka-offsets",
    "iceberg columns": "iceberg:{}/db.clicks?layout=columns&number=last&topic=topic&partition=partition&offset=offset",
}
"""The kinds of jobs, and their stores' addresses, with the folder left open."""

Rows = Sequence[tuple[str, int, int, str]]
"""Topic, partition, offset and id of each record of a batch."""


def arrow(rows: Rows) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "id": pa.string()}
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types.values(), strict=True)]
    return pa.table(arrays, names=list(types))


def spark_json(rows: Rows) -> dict[str, dict[str, int]]:
    """The next offset to read of each partition in the batch."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition, offset, _ in rows:
        at = found.setdefault(topic, {})
        at[str(partition)] = max(at.get(str(partition), 0), offset + 1)
    return found


def append_delta(
    folder: Path, rows: Rows, fields: Mapping[str, Any] | None = None, txns: Mapping[str, int] | None = None
) -> None:
    """One transaction of a Delta table, with fields of its commit and transaction versions."""
    from deltalake import CommitProperties, Transaction, write_deltalake

    made = [Transaction(app_id, version) for app_id, version in (txns or {}).items()]
    properties = CommitProperties(custom_metadata=dict(fields or {}), app_transactions=made)
    write_deltalake(folder, arrow(rows), mode="append", commit_properties=properties)


def iceberg_table(folder: Path) -> Any:
    """The table below a folder; made by the first call."""
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.schema import Schema
    from pyiceberg.types import IntegerType, LongType, NestedField, StringType

    from tests.places.iceberg.folder_catalog import FolderCatalog

    catalog = FolderCatalog("lab", warehouse=str(folder))
    try:
        return catalog.load_table(ID)
    except NoSuchTableError:
        kinds = {"topic": StringType(), "partition": IntegerType(), "offset": LongType(), "id": StringType()}
        fields = [NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(kinds.items(), 1)]
        return catalog.create_table(ID, Schema(*fields))


def append_iceberg(folder: Path, rows: Rows, summary: Mapping[str, str] | None = None) -> None:
    """One snapshot of an Iceberg table, with properties of its summary."""
    iceberg_table(folder).append(arrow(rows), snapshot_properties=dict(summary or {}))


def appender(kind: str, folder: Path, group: str) -> Callable[[Rows, Mapping[str, Mapping[str, int]]], None]:
    """Appends a batch with its offsets as a job of that kind does; the second argument are all of the job's offsets."""

    def append(rows: Rows, ends: Mapping[str, Mapping[str, int]]) -> None:
        if kind == "delta commit":
            append_delta(folder, rows, {"userMetadata": json.dumps(ends)})
        elif kind == "delta txn":
            txns = {
                f"{group}-{topic}-{part}": at - 1
                for topic, each in spark_json(rows).items()
                for part, at in each.items()
            }
            append_delta(folder, rows, txns=txns)
        elif kind == "delta columns":
            append_delta(folder, rows)
        elif kind == "iceberg summary":
            append_iceberg(folder, rows, {"kafka-offsets": json.dumps(spark_json(rows))})
        else:
            append_iceberg(folder, rows)

    return append


def ids_in(kind: str, folder: Path) -> list[str]:
    """The ids of all rows, sorted."""
    if kind.startswith("delta"):
        from deltalake import DeltaTable

        return sorted(DeltaTable(folder).to_pyarrow_table(columns=["id"])["id"].to_pylist())
    return sorted(iceberg_table(folder).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def records(bootstrap: str, topic: str, starts: Mapping[str, int], last: Sequence[int] | None) -> Iterable[Any]:
    """The records from there to the end, or to the record of that number, partition by partition."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "enable.partition.eof": True})
    try:
        for partition in sorted(consumer.list_topics(topic, 30).topics[topic].partitions):
            at = starts.get(str(partition), OFFSET_BEGINNING)
            consumer.assign([TopicPartition(topic, partition, at)])
            while True:
                message = consumer.poll(30)
                assert message is not None, "the log's end did not come"
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    break
                name = dict(message.headers())["message-id"].decode()
                if last is not None and int(name.partition("/")[2]) > last[partition]:
                    break
                yield topic, partition, message.offset(), name
    finally:
        consumer.close()


def main(kind: str, folder: str, last: str = "") -> None:
    from reconciler.state.start import OFFSETS_VARIABLE, START_VARIABLE, load

    start = load(Path(os.environ[START_VARIABLE]).read_text(), "the start")
    given = json.loads(Path(os.environ[OFFSETS_VARIABLE]).read_text())
    topic = os.environ["JOB_TOPIC_THERE" if start.cluster == "b" else "JOB_TOPIC"]
    assert set(given) <= {topic}
    ends = {topic: dict(given.get(topic, {}))}
    limits = [int(each) for each in last.split(",")] if last else None
    rows = list(records(start.bootstrap_servers, topic, ends[topic], limits))
    append = appender(kind, Path(folder), os.environ["JOB_GROUP"])
    half = len(rows) // 2
    for batch in filter(None, (rows[:half], rows[half:])):
        ends[topic] |= spark_json(batch)[topic]
        append(batch, ends)
        if "JOB_DIES" in os.environ:
            os._exit(DIED)


if __name__ == "__main__":
    main(*sys.argv[1:])
