"""A whole failover by commands: check, plan, apply, check, rollback."""

from __future__ import annotations

import json

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import BASE, World, run_process, source_record

pytestmark = pytest.mark.system


@pytest.fixture
def settled(world: World) -> World:
    """Two partitions behind a failover: record 9 and record 3 were processed last."""
    world.deliver(20, 12)
    world.processed(9, 3)
    return world


def test_a_failover_from_the_first_check_to_the_rollback(settled: World) -> None:
    config, plan = settled.config(), settled.plan_file
    before = settled.rows()
    right = {0: settled.offset_of(9) + 1, 1: settled.offset_of(3, 1) + 1}

    first = settled.run("plan", "-c", config)
    assert first.code == 3
    assert "2 offsets need correcting, and can be" in first.out
    assert settled.rows() == before

    planned = settled.run("plan", "-c", config, "-o", plan)
    assert planned.code == 0
    assert f"reconciler apply {plan}" in planned.out
    assert settled.rows() == before

    dry = settled.run("apply", plan, "-c", config, "--dry-run")
    assert (dry.code, "2 offsets would be written, nothing was" in dry.out) == (0, True)
    assert settled.rows() == before

    applied = settled.run("apply", plan, "-c", config, "--yes")
    assert applied.code == 0
    assert "2 offsets written and read back" in applied.out
    assert settled.offsets() == right
    assert settled.offsets(settled.topic) == {0: BASE + 10, 1: BASE + 4}

    again = settled.run("plan", "-c", config, "--to", "b")
    assert again.code == 0
    assert "Every partition may start at its stored offset; 0 records will be read again." in again.out

    after = settled.rows()
    twice = settled.run("apply", plan, "-c", config, "--yes")
    assert (twice.code, "this plan was applied before" in twice.out) == (0, True)
    assert settled.rows() == after

    back = settled.run("rollback", "-c", config, "--job", "clicks", "--yes")
    assert (back.code, "lives on a, with the offsets that it had before" in back.out) == (0, True), back.output
    assert settled.offsets(settled.topic) == {0: BASE + 10, 1: BASE + 4}
    once_more = settled.run("rollback", "-c", config, "--job", "clicks", "--yes")
    assert (once_more.code, "nothing to give back" in once_more.out) == (0, True)


def test_check_and_apply_do_the_same_as_processes_of_their_own(settled: World) -> None:
    config, plan = settled.config(), settled.plan_file
    check = run_process("plan", "-c", config)
    assert (check.code, check.err) == (3, "")
    assert "2 offsets need correcting" in check.out
    assert run_process("plan", "-c", config, "-o", plan).code == 0
    unasked = run_process("apply", plan, "-c", config)
    assert unasked.code == 2
    assert "Add --yes. Nothing was written." in unasked.err
    assert settled.offsets() == {}
    assert run_process("--log-format", "json", "apply", plan, "-c", config, "--yes").code == 0
    assert run_process("plan", "-c", config, "--to", "b").code == 0


def test_neither_payloads_nor_raw_ids_are_in_a_plan(settled: World) -> None:
    settled.plan(settled.config())
    text = settled.plan_file.read_text()
    assert "value 9" not in text
    assert "key 9" not in text
    assert "0/9" not in text


# ---------------------------------------------------------------- offsets in Kafka itself


def test_offsets_in_a_kafka_group_are_corrected_where_a_plain_client_sees_them(world: World) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    world.address = "kafka-group:"
    world.deliver(20)
    where = world.offset_of(10)
    # As MirrorMaker leaves it: the destination's name, an offset it translated, and the metadata of the source.
    world.save({0: StoredOffset(1, source_record(10).anchor)}, topic=world.mirrored)
    config = world.config()

    def committed() -> tuple[int, str]:
        asked = [ConsumerGroupTopicPartitions(world.group)]
        (future,) = world.cluster.admin().list_consumer_group_offsets(asked).values()
        (row,) = future.result().topic_partitions
        return row.offset, row.metadata

    before = committed()
    assert before[0] == 1
    assert world.run("plan", "-c", config).code == 3
    world.plan(config)
    assert committed() == before
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 0, applied.output
    offset, metadata = committed()
    assert offset == where + 1
    assert json.loads(metadata)["a"]["o"] == where
    assert json.loads(metadata)["a"]["c"] == world.cluster.cluster_id
    assert world.run("plan", "-c", config, "--to", "b").code == 0
