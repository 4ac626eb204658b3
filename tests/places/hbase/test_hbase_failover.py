"""Failovers of jobs that keep their offsets in HBase: a plain client writes rows, the commands correct them, and the
plain client reads them back byte for byte."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.places.bare_jobs import PATIENT
from tests.places.hbase.jobs import (
    DONE,
    PARTITIONS,
    RIGHT,
    STORED,
    config,
    deliver,
    ends,
    event_ms,
    fails_over,
    job,
    longs,
)
from tests.world import World

pytestmark = pytest.mark.system


class Table:
    """One test's table, with a plain client of it and the address of the store in it."""

    def __init__(self, hbase: Any, happy: Any, families: dict[str, dict[str, int]]) -> None:
        self.name = f"job_{uuid.uuid4().hex[:12]}"
        self._server = hbase.address
        self._happy = happy
        happy.create_table(self.name, families)
        self.plain = happy.table(self.name)

    def address(self, query: str) -> str:
        return f"hbase://{self._server}/{self.name}?layout={query}&{PATIENT}"


@pytest.fixture
def table(hbase, happy) -> Callable[..., Table]:
    return lambda **families: Table(hbase, happy, {name: options or {} for name, options in families.items()})


# ---------------------------------------------------------------- byte for byte


def log_saver_row(topic: str, partition: int, prefix: int = 100) -> bytes:
    return prefix.to_bytes(4, "big") + topic.encode() + partition.to_bytes(4, "big")


def log_saver_cells(partition: int, offset: int) -> dict[bytes, bytes]:
    return {b"d:nextOffset": longs(offset), b"d:maxEventTime": longs(event_ms(DONE[partition]))}


@pytest.mark.parametrize(("prefix", "other"), [(100, 101), (101, 100)], ids=["log writer", "log metrics"])
def test_the_log_savers_rows_fail_over(world: World, table, prefix: int, other: int) -> None:
    """The event time comes from the payload; several records may have the largest one."""
    made = table(d=None)
    stamp = 1_000_000 * max(map(event_ms, DONE.values()))
    never = {b"d:nextOffset": b"\xff" * 8, b"d:maxEventTime": b"\xff" * 8}
    untouched = {log_saver_row(world.topic, n, other): log_saver_cells(n, 4_000 + n) for n in PARTITIONS}
    untouched |= {log_saver_row(world.topic, 2, each): never for each in (prefix, other)}
    rows = {log_saver_row(world.topic, n, prefix): log_saver_cells(n, STORED[n]) for n in PARTITIONS}
    for row, cells in (rows | untouched).items():
        made.plain.put(row, cells, timestamp=stamp)
    deliver(world, world.topic, partitions=3)
    file = config(world, job(world, made.address(f"cdap-logsaver&prefix={prefix}")), identity_policy=True)
    assert {n: row["finding"] for n, row in world.checked(file).items()} == {0: "early", 1: "early", 2: "new"}
    after = {log_saver_row(world.topic, n, prefix): log_saver_cells(n, RIGHT[n] - 1) for n in PARTITIONS}
    after[log_saver_row(world.topic, 2, prefix)] = {b"d:nextOffset": longs(0), b"d:maxEventTime": longs(-1)}
    fails_over(world, file, made.plain, untouched | after)


HOOKS = "cdap-flowlet&id_of=python:flowlet_hooks:message_id"


@pytest.mark.parametrize("own", [False, True], ids=["CDAP's keys", "the developer's own"])
def test_a_flowlets_rows_are_corrected(world: World, table, own: bool) -> None:
    """The value names the record *at* the offset, also after the correction; a row of the old form names none."""
    made = table(d=None)
    prefix = "_Tracker:" if own else ""
    query = HOOKS + ("&key_of=python:flowlet_hooks:store_key&find=python:flowlet_hooks:find" if own else "")

    def rows(topic: str, offsets: dict[int, int]) -> dict[bytes, dict[bytes, bytes]]:
        return {f"{prefix}{topic}:{n}".encode(): {b"d:c": longs(offset, DONE[n] + 1)} for n, offset in offsets.items()}

    deliver(world, world.mirrored)
    identity = {"id": "python:flowlet_hooks:message_id", "id_order": "increasing", "timestamp": "record"}
    file = config(world, job(world, made.address(query), **identity))
    made.plain.put(f"{prefix}{world.topic}:0".encode(), {b"d:c": longs(STORED[0])})
    assert world.checked(file)[0]["finding"] == "unresolved"
    for row, cells in rows(world.topic, STORED).items():
        made.plain.put(row, cells)
    found = world.checked(file)
    assert {n: (row["finding"], row["replay"]["exact"]) for n, row in found.items()} == {
        0: ("exact", 0),
        1: ("exact", 0),
    }
    fails_over(world, file, made.plain, rows(world.topic, STORED) | rows(world.mirrored, RIGHT))


def test_a_flowlet_at_the_end_of_the_log_has_no_record_to_name(world: World, table) -> None:
    made = table(d=None)
    deliver(world, world.mirrored)
    file = config(world, job(world, made.address(HOOKS), id="python:flowlet_hooks:message_id", timestamp="record"))
    end = world.cluster.end_offsets(world.mirrored)[0]
    for n in PARTITIONS:
        made.plain.put(f"{world.topic}:{n}".encode(), {b"d:c": longs(STORED[n], DONE[n] + 1)})
    world.plan(file, "--set", f"{world.mirrored}:0={end}", "--accept", "skips")
    ends(world.run("apply", world.plan_file, "-c", file, "--yes"), 0)
    assert made.plain.row(f"{world.mirrored}:0".encode()) == {b"d:c": longs(end)}
    ends(world.run("plan", "-c", file, "--to", "b"), 0)
