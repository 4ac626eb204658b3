"""The keys and values of stores that need a server, as their codecs write them, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.golden import internals as of
from tests.golden.compare import Goldens
from tests.golden.internals import NOW_MS, Anchor, Names, StoredOffset, fingerprint

WHOLE = Anchor(41, 1_700_000_000_123, b"id-\xff", fingerprint(b"k", b"v"), "cluster-a", "topic-a")
ROWS: Mapping[str, StoredOffset] = {
    "whole": StoredOffset(42, WHOLE, NOW_MS),
    "time only": StoredOffset(42, Anchor(timestamp_ms=1_700_000_000_123), NOW_MS),
    "next": StoredOffset(42, Anchor(42, id=b"17", names=Names.NEXT), NOW_MS),
    "largest time": StoredOffset(42, Anchor(timestamp_ms=1_700_000_000_123, names=Names.MAX_TIME), None),
    "numbered": StoredOffset(0, Anchor(cluster_id="cluster-b", topic_id="topic-b"), NOW_MS),
    "without anchor": StoredOffset(42, None, NOW_MS),
    "sentinel": StoredOffset(-1, None, None),
}
GROUP, TOPIC = "clicks/é", "a.events"


def spelled(value: bytes | str) -> str:
    """Printable ASCII as it is; other bytes in hex."""
    data = value.encode() if isinstance(value, str) else value
    return data.decode() if data.isascii() and data.decode().isprintable() else f"hex:{data.hex()}"


def lines(values: Mapping[str, bytes | str]) -> str:
    return "".join(f"{name}: {spelled(value)}\n" for name, value in values.items())


def cells(values: Mapping[bytes, bytes]) -> str:
    return " ".join(f"{spelled(name)}={spelled(value)}" for name, value in values.items())


def test_commit_metadata_of_a_kafka_group(goldens: Goldens) -> None:
    long = StoredOffset(42, Anchor(41, 7, b"x" * 2_000, fingerprint(None, b""), "cluster-a", "topic-a"), NOW_MS)
    rows = {**ROWS, "an id too long to fit": long}
    goldens.check(
        "formats/stores/kafka-group.txt", lines({name: of.anchor_fields.encode(row) for name, row in rows.items()})
    )


def test_cells_of_hbase_in_layout_cloudera(goldens: Goldens) -> None:
    row = of.cloudera.row_key(TOPIC, GROUP, NOW_MS)
    written = of.cloudera.dense({0: of.cloudera.offset_text(42), 2: of.cloudera.offset_text(7)})
    values: dict[str, bytes | str] = {
        "row": row,
        "cells": cells(written),
    }
    goldens.check("formats/stores/hbase-cloudera.txt", lines(values))


def test_cells_of_hbase_in_cdaps_layouts(goldens: Goldens) -> None:
    codec, key = of.cdap, of.TopicPartition(TOPIC, 3)
    log_saver, metrics, flowlet = codec.LogSaver(200), codec.Metrics(), of.Flowlet(dict.fromkeys)
    current = {codec.MAX_EVENT_TIME: of.HBaseCell(codec.long(1_600_000_000_000), 1)}
    new = codec.NewRow(key, of.StoredOffset(42), {})
    values: dict[str, bytes | str] = {
        "log saver, row": log_saver.row_key(key),
        "metrics, row": metrics.row_key(key),
        "flowlet, row": flowlet.row_key(key),
        "flowlet, with id": cells(of.Flowlet(lambda _: {key: 17}).new_cells([new])[key]),
        "flowlet, without id": cells(flowlet.new_cells([new])[key]),
    }
    for name, stored in ROWS.items():
        row = codec.NewRow(key, stored, current)
        values[f"log saver, {name}"] = cells(log_saver.new_cells([row])[key])
        values[f"metrics, {name}"] = cells(metrics.new_cells([row])[key])
    goldens.check("formats/stores/hbase-cdap.txt", lines(values))


def test_znodes_of_zookeeper(goldens: Goldens) -> None:
    consumers, single = of.zookeeper_layouts.Consumers("/kafka", "clicks"), of.zookeeper_layouts.Single("/kafka")
    values: dict[str, bytes | str] = {
        "consumers, offset": consumers.offset(TOPIC, 3),
        "consumers, members": consumers.members,
        "single, offset": single.offset(TOPIC, 3),
        "single, text": of.zookeeper_layouts.edit_listing("0:7, 1 : 8", {1: 42, 2: 9}),
        "single, text of a new znode": of.zookeeper_layouts.edit_listing("", {1: 42}),
    }
    goldens.check("formats/stores/zookeeper.txt", lines(values))


def test_tables_and_rows_of_postgresql(goldens: Goldens) -> None:
    rows = {name: dict(zip(of.postgresql_types(), of.to_columns(stored), strict=True)) for name, stored in ROWS.items()}
    values = {name: json.dumps(row, default=lambda value: f"hex:{value.hex()}") for name, row in rows.items()}
    goldens.check("formats/stores/postgresql.txt", "\n".join([*of.postgresql_tables(), lines(values)]))
