"""Commands with a job whose ids are in Avro: found under a registry's schema, and stopped without one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset, fingerprint
from reconciler.core.errors import ExitCode
from tests.config.registry import SchemaRegistry, framed, in_avro
from tests.golden.corpus import HEAD, OFFSETS, WRITTEN, content, deliver, job, stored
from tests.golden.world import World
from tests.starting import with_state

pytest.importorskip("confluent_kafka.schema_registry")
PLAN = ("plan", "-c", "reconciler.toml")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both jobs stored 704, after record 3. The mirror put another schema id in front of the values of ``orders``."""
    made = World(tmp_path, monkeypatch)
    made.destination.create("a.orders", 1)
    for number in range(10):
        value = framed(7, in_avro(order_id=f"id-{number}"))
        made.destination.partition("a.orders", 0).append(content(number)[0], b"k", value)
    row = stored(3, topic="orders")
    assert row.anchor is not None
    anchor = replace(row.anchor, fingerprint=fingerprint(b"k", in_avro(order_id="id-3")))
    made.store(OFFSETS, "orders", {("orders", 0): replace(row, anchor=anchor)})
    deliver(made, "a.clicks", range(10))
    made.store(OFFSETS, "clicks", {("clicks", 0): stored(3, topic="clicks")})
    return made


def configured(world: World, url: str) -> None:
    jobs = job("orders", ["orders"], id="avro:$.order_id") + 'frame = "confluent"\n' + job("clicks", ["clicks"])
    world.file(
        "reconciler.toml", f'{HEAD}\n[registry]\nurl = "{url}"\n"max.retries" = 0\n[search]\ndeadline = "1s"\n{jobs}'
    )
    with_state(world.folder / "reconciler.toml")


def test_an_anchor_is_found_by_an_id_in_avro(world: World) -> None:
    with SchemaRegistry() as registry:
        configured(world, registry.url)
        planned = world.run(*PLAN)
    assert planned.code == ExitCode.CORRECTABLE
    assert re.search(r"orders-0 +exact +704 +4 +0 ", planned.out), planned.out


def test_without_the_registry_only_the_jobs_with_avro_are_not_judged(world: World) -> None:
    configured(world, "http://127.0.0.1:1")
    alone = world.run(*PLAN, "--job", "orders")
    said = " ".join(alone.err.split())
    assert alone.code == ExitCode.UNREACHABLE
    assert "The schema registry http://127.0.0.1:1 did not answer (ConnectError" in said
    assert "name another one in [registry] url" in said
    both = world.run(*PLAN)
    assert both.code == ExitCode.UNREACHABLE
    assert re.search(r"clicks-0 +exact +704 +4 +0 ", both.out), both.out
    assert "orders-0" not in both.out


def test_watch_and_track_leave_out_only_the_jobs_with_avro(world: World) -> None:
    configured(world, "http://127.0.0.1:1")
    watched = world.run("watch", "-c", "reconciler.toml", "--once").out
    assert re.search(r'reconciler_up{.*job="orders".*} 0.0', watched)
    assert re.search(r'reconciler_up{.*job="clicks".*} 1.0', watched)
    for topic, group in (("orders", "orders"), ("clicks", "clicks")):
        world.source.create(topic, 1)
        for record in world.destination.partition(f"a.{topic}", 0).records:
            world.source.partition(topic, 0).append(record.timestamp_ms, record.key, record.value, record.headers)
        world.store(OFFSETS, group, {(topic, 0): StoredOffset(4, None, WRITTEN)})
    tracked = world.run("track", "-c", "reconciler.toml", "--once")
    assert tracked.code == ExitCode.UNREACHABLE
    assert "The schema registry http://127.0.0.1:1 did not answer" in tracked.err
    assert re.search(r"clicks +1 +1 +0 +0 +1 ", tracked.out), tracked.transcript
