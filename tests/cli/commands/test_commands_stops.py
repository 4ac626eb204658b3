"""Reasons to stop that only a real broker and client show: segments, a recreated topic, members, no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import World, free_port, source_record

pytestmark = pytest.mark.system


@contextmanager
def nothing_written(world: World) -> Iterator[None]:
    before = world.rows()
    yield
    assert world.rows() == before


def test_segments_that_were_deleted_a_moment_ago_do_not_hide_the_records_behind_them(world: World) -> None:
    """A broker keeps a deleted segment for minutes, and until then answers many time lookups with "none"."""
    world.deliver(20, segment="1000")  # the first marker begins a second segment
    world.processed(5)
    first_left = world.offset_of(12)
    world.cluster.delete_records(world.mirrored, 0, first_left)
    (row,) = world.checked(world.config()).values()
    assert row["resume_offset"] <= first_left, "unprocessed records would be skipped"
    assert row["finding"] == "lost"


@pytest.fixture
def planned(world: World) -> World:
    world.deliver(20)
    world.processed(9)
    world.plan(world.config())
    return world


def test_a_plan_for_a_topic_recreated_since_is_refused(planned: World) -> None:
    admin = planned.cluster.admin()
    admin.delete_topics([planned.mirrored])[planned.mirrored].result(30)
    planned.deliver(20)
    with nothing_written(planned):
        ended = planned.run("apply", planned.plan_file, "-c", planned.config(), "--yes")
    assert ended.code == 5, ended.output
    assert f'The topic "{planned.mirrored}" was deleted or recreated since the plan' in ended.err


@pytest.mark.parametrize("command", ["plan", "hook", "apply"])
def test_a_destination_that_is_down_is_named_and_nothing_is_written(planned: World, command: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    config = planned.config(bootstrap=address, extra="[search]\ndeadline = '1s'", to="b")
    other = planned.folder / "other.plan.json"
    arguments = {
        "plan": ("-c", config, "-o", other),
        "hook": ("-c", config, "--plans", planned.folder / "plans", "--", "true"),
        "apply": (planned.plan_file, "-c", config, "--yes"),
    }
    with nothing_written(planned):
        ended = planned.run(command, *arguments[command])
    assert ended.code == 6, ended.output
    assert address in ended.err
    assert "See that its brokers are up and reachable" in ended.err
    assert not other.exists()


def test_a_group_with_live_members_is_not_written_to(world: World) -> None:
    from confluent_kafka import Consumer

    world.address = "kafka-group:"
    world.deliver(20)
    world.save({0: StoredOffset(1, source_record(10).anchor)}, topic=world.mirrored)
    config = world.config()
    world.plan(config)
    settings = {"bootstrap.servers": world.cluster.bootstrap, "group.id": world.group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "client.id": "the-old-job", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([world.mirrored])
        assert consumer.consume(1, 30), "the consumer did not join its group"
        with nothing_written(world):
            ended = world.run("apply", world.plan_file, "-c", config, "--yes")
    finally:
        consumer.close()
    assert ended.code == 6
    assert "live member" in ended.err
    assert "the-old-job" in ended.err
    assert not world.plan_file.with_name(world.plan_file.name + ".applied.json").exists()
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0


@pytest.mark.parametrize(
    "line", ['"securty.protocol" = "SSL"', '"security.protocol" = "NONE"', '"socket.timeout.ms" = "soon"']
)
def test_a_client_property_that_the_client_refuses_is_a_usage_error(planned: World, line: str) -> None:
    ended = planned.run("plan", "-c", planned.config(extra=f"[clusters.b.client]\n{line}"))
    assert (ended.code, ended.out) == (2, "")
    assert "Correct [clusters.NAME.client]" in ended.err
