"""A whole failover by commands: check, plan, apply, check, rollback; and the exact format of the plan."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta

import pytest

import reconciler
from reconciler.core.anchors import StoredOffset
from tests.world import BASE, SOURCE_ID, World, run_process, source_record

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

    first = settled.run("check", "-c", config)
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

    again = settled.run("check", "-c", config)
    assert again.code == 0
    assert "Every partition may start as it is; 0 records will be read again." in again.out

    after = settled.rows()
    twice = settled.run("apply", plan, "-c", config, "--yes")
    assert (twice.code, "applied before: 2 offsets in place" in twice.out) == (0, True)
    assert settled.rows() == after

    back = settled.run("rollback", plan, "-c", config, "--yes")
    assert (back.code, "2 offsets put back" in back.out) == (0, True)
    assert [(row.key, row.stored) for row in settled.rows()] == [(row.key, row.stored) for row in before]

    once_more = settled.run("rollback", plan, "-c", config, "--yes")
    assert (once_more.code, "Nothing to put back" in once_more.out) == (0, True)

    third = settled.run("apply", plan, "-c", config, "--yes")
    assert (third.code, settled.offsets()) == (0, right)


def test_check_and_apply_do_the_same_as_processes_of_their_own(settled: World) -> None:
    config, plan = settled.config(), settled.plan_file
    check = run_process("check", "-c", config)
    assert (check.code, check.err) == (3, "")
    assert "2 moved" in check.out
    assert run_process("plan", "-c", config, "-o", plan).code == 0
    unasked = run_process("apply", plan, "-c", config)
    assert unasked.code == 2
    assert "Add --yes. Nothing was written." in unasked.err
    assert settled.offsets() == {}
    assert run_process("--log-format", "json", "apply", plan, "-c", config, "--yes").code == 0
    assert run_process("check", "-c", config).code == 0


def test_a_hook_before_every_start_changes_nothing_once_it_is_right(settled: World) -> None:
    config = settled.config()
    settled.plan(config)
    assert settled.run("apply", settled.plan_file, "-c", config, "--yes").code == 0
    after = settled.rows()
    for _ in range(2):
        assert settled.run("hook", "--to", "destination", "-c", config, "--plans", settled.folder / "plans").code == 0
        assert settled.rows() == after


# ---------------------------------------------------------------- the plan's format

PLAN = {"format", "tool_version", "created_at", "expires_at", "source", "destination", "jobs", "sha256"}
JOB = {"name", "group", "store", "verdict", "partitions"}
ROW = {
    *("source_topic", "topic", "topic_id", "partition", "position", "stored_offset", "anchor", "verdict"),
    *("resume_offset", "replay", "evidence", "detail", "set_by_hand", "skips"),
}


def independent_digest(plan: dict[str, object]) -> str:
    """As the contract says it: SHA-256 over the canonical JSON of all else."""
    rest = {key: value for key, value in plan.items() if key != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def test_the_plan_file_is_of_its_format_to_the_letter(world: World) -> None:
    world.deliver(12, 5)
    world.save({0: source_record(7).stored})
    plan = world.plan(world.config(extra="[policy]\nplan_expires = '2h'"))

    assert plan.keys() == PLAN
    assert plan["format"] == "reconciler.plan/1"
    assert plan["tool_version"] == reconciler.__version__
    created, expires = (datetime.fromisoformat(plan[key]) for key in ("created_at", "expires_at"))
    assert expires - created == timedelta(hours=2)
    assert plan["source"] == {"alias": "a", "cluster_id": SOURCE_ID}
    cluster_id = world.cluster.cluster_id
    assert plan["destination"] == {"bootstrap_servers": world.cluster.bootstrap, "cluster_id": cluster_id}
    assert plan["sha256"] == independent_digest(plan)

    (job,) = plan["jobs"]
    assert job.keys() == JOB
    assert (job["name"], job["group"], job["store"]) == ("clicks", world.group, world.address)
    assert job["verdict"] == "new"  # the worst of its rows
    moved, new = job["partitions"]
    for row in (moved, new):
        assert row.keys() == ROW
        assert row["replay"].keys() == {"at_most", "exact"}
        assert row["evidence"].keys() == {"matched_by", "record_offset", "probes", "rounds"}
        assert (row["source_topic"], row["topic"], row["position"]) == (world.topic, world.mirrored, "next")
        assert row["topic_id"]
        assert row["evidence"]["probes"] >= row["evidence"]["rounds"] >= 1

    record, offset = source_record(7), world.offset_of(7)
    assert moved["anchor"] == {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "fingerprint": record.anchor.fingerprint,
        "id_hash": hashlib.sha256(record.id).hexdigest()[:16],
    }
    assert (moved["verdict"], moved["stored_offset"], moved["resume_offset"]) == ("moved", BASE + 8, offset + 1)
    assert (moved["evidence"]["matched_by"], moved["evidence"]["record_offset"]) == ("id", offset)
    assert (moved["replay"], moved["set_by_hand"]) == ({"at_most": 0, "exact": 0}, False)
    assert (new["verdict"], new["stored_offset"], new["anchor"], new["resume_offset"]) == ("new", None, None, 0)
    assert (new["evidence"]["matched_by"], new["evidence"]["record_offset"]) == (None, None)


def test_neither_payloads_nor_raw_ids_are_in_a_plan(settled: World) -> None:
    settled.plan(settled.config())
    text = settled.plan_file.read_text()
    assert "value 9" not in text
    assert "key 9" not in text
    assert "0/9" not in text


def test_check_prints_the_same_plan_as_json_and_nothing_else(settled: World) -> None:
    config = settled.config()
    before = settled.rows()
    ended = run_process("check", "-c", config, "--format", "json")
    assert (ended.code, ended.err) == (3, "")
    printed = json.loads(ended.out)
    assert printed["sha256"] == independent_digest(printed)
    assert printed["jobs"] == settled.plan(config)["jobs"]
    assert settled.rows() == before


def test_the_same_inputs_give_the_same_plan(settled: World) -> None:
    config = settled.config()
    assert settled.plan(config)["jobs"] == settled.plan(config)["jobs"]


def test_a_plan_that_was_applied_is_not_overwritten(settled: World) -> None:
    config = settled.config()
    settled.plan(config)
    assert settled.run("apply", settled.plan_file, "-c", config, "--yes").code == 0
    kept = settled.plan_file.read_bytes()
    again = settled.run("plan", "-c", config, "-o", settled.plan_file)
    assert again.code == 2
    assert "only its snapshot can undo that" in again.err
    assert settled.plan_file.read_bytes() == kept


def test_a_job_without_anchors_by_id_is_found_by_content_alone(settled: World) -> None:
    rows = settled.checked(settled.config(settled.job(id="none")))
    assert {row["evidence"]["matched_by"] for row in rows.values()} == {"fingerprint"}
    assert [rows[p]["resume_offset"] for p in (0, 1)] == [settled.offset_of(9) + 1, settled.offset_of(3, 1) + 1]


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
    assert world.run("check", "-c", config).code == 3
    world.plan(config)
    assert committed() == before
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 0, applied.output
    offset, metadata = committed()
    assert offset == where + 1
    assert json.loads(metadata)["a"]["o"] == where
    assert json.loads(metadata)["a"]["c"] == world.cluster.cluster_id
    assert world.run("check", "-c", config).code == 0
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert committed()[0] == 1
    assert json.loads(committed()[1])["a"]["c"] == SOURCE_ID
