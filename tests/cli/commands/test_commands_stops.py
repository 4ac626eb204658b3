"""Reasons not to start: partitions that need a decision (4), changes since the plan (5), no answer (6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.formats.plan import digest
from tests.waiting import wait_until
from tests.world import BASE, World, free_port, source_record

pytestmark = pytest.mark.system


@contextmanager
def nothing_written(world: World) -> Iterator[None]:
    before = world.rows()
    yield
    assert world.rows() == before


# ---------------------------------------------------------------- 4: a person is needed


@pytest.fixture
def three_ills(world: World) -> World:
    """Partition 0 has lost records, 1 is fine, 2 is stored without an anchor, 3 is not at the destination."""
    world.deliver(20, 20, 20)
    world.cluster.delete_records(world.mirrored, 0, world.offset_of(15))
    world.save(
        {
            0: source_record(5).stored,
            1: source_record(5, 1).stored,
            2: StoredOffset(BASE + 6),
            3: StoredOffset(BASE + 6),
        }
    )
    return world


def test_each_partition_that_needs_a_person_says_why_and_what_to_do(three_ills: World) -> None:
    config = three_ills.config()
    with nothing_written(three_ills):
        ended = three_ills.run("check", "-c", config)
    assert ended.code == 4
    assert "Do not start: a partition needs a decision. Nothing was written." in ended.out
    assert f"{three_ills.mirrored}-2 must not start" in ended.out
    assert "choose an offset with --set TOPIC:PARTITION=OFFSET" in ended.out


def test_lost_missing_and_unresolved_stop_their_job_and_no_other(world: World) -> None:
    lost, fine, gone, bare = (f"{world.topic}-{kind}" for kind in ("lost", "fine", "gone", "bare"))
    for topic in (lost, fine, gone, bare):
        world.deliver(12, topic=f"a.{topic}")
        world.save({0: source_record(5).stored}, topic=topic)
    world.cluster.delete_records(f"a.{lost}", 0, world.offset_of(10, topic=f"a.{lost}"))
    world.save({1: source_record(5, 1).stored}, topic=gone)
    # Partition 1 has no time to go by, so nothing can be said about the topic but that it lacks a partition.
    world.save({1: replace(source_record(5, 1).stored, anchor=None)}, topic=gone)
    world.save({0: StoredOffset(BASE + 6)}, topic=bare)
    jobs = [world.job(topic, topic) for topic in (lost, fine, gone, bare)]
    config = world.config(*jobs)

    plan = world.plan(config)
    verdicts = {job["name"]: [row["verdict"] for row in job["partitions"]] for job in plan["jobs"]}
    assert verdicts == {lost: ["lost"], fine: ["moved"], gone: ["unresolved", "missing"], bare: ["unresolved"]}
    with nothing_written(world):
        dry = world.run("apply", world.plan_file, "-c", config, "--dry-run")
    assert dry.code == 4
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 4
    assert f"Not written for {lost}, {gone}, {bare}: a partition needs a decision." in applied.err
    assert f"a.{lost}-0 (lost) must not start" in applied.out
    assert world.offsets(f"a.{fine}") == {0: world.offset_of(5, topic=f"a.{fine}") + 1}
    assert [world.offsets(f"a.{topic}") for topic in (lost, gone, bare)] == [{}, {}, {}]
    again = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert again.code == 4


def test_a_plan_that_needs_a_person_is_still_written(three_ills: World) -> None:
    ended = three_ills.run("plan", "-c", three_ills.config(), "-o", three_ills.plan_file)
    assert ended.code == 4
    assert "apply refuses its job" in ended.out
    assert json.loads(three_ills.plan_file.read_text())["jobs"][0]["verdict"] == "unresolved"


def test_a_persons_word_lets_it_start_and_stays_in_the_plan(world: World) -> None:
    world.deliver(20, 20, 20)
    world.cluster.delete_records(world.mirrored, 0, world.offset_of(15))
    world.save({0: source_record(5).stored, 1: source_record(5, 1).stored, 2: StoredOffset(BASE + 6)})
    config, chosen = world.config(), world.offset_of(9, 2)
    word = ("--accept", "lost", "--set", f"{world.mirrored}:2={chosen}", "--accept", "skips")
    assert world.run("check", "-c", config).code == 4
    with nothing_written(world):
        assert world.run("check", "-c", config, *word).code == 3
        (job,) = world.plan(config, *word)["jobs"]
    lost, fine, by_hand = job["partitions"]
    assert [row["set_by_hand"] for row in job["partitions"]] == [True, False, True]
    assert (lost["verdict"], lost["detail"][:17]) == ("lost", "accepted by hand:")
    assert (by_hand["verdict"], by_hand["resume_offset"]) == ("unresolved", chosen)
    assert by_hand["detail"].startswith(f"set by hand to {chosen}; found: ")
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    start = world.cluster.start_offsets(world.mirrored)[0]
    assert world.offsets() == {0: start, 1: fine["resume_offset"], 2: chosen}
    assert world.run("check", "-c", config).code == 0


def test_a_persons_offset_by_the_sources_name_means_the_same_partition(world: World) -> None:
    world.deliver(9)
    world.processed(4)
    rows = world.checked(world.config(), "--set", f"{world.topic}:0=2")
    assert (rows[0]["resume_offset"], rows[0]["set_by_hand"]) == (2, True)


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("{there}:0=999999", "offset 999999 is outside the log [0, "),
        ("{there}:7=0", "the chosen jobs have no such partition on the destination"),
        ("elsewhere:0=0", "the chosen jobs have no such partition on the destination"),
        ("{there}:0=-1", "is not TOPIC:PARTITION=OFFSET"),
        ("{there}=5", "is not TOPIC:PARTITION=OFFSET"),
    ],
)
def test_a_persons_offset_must_be_one_that_is_there(world: World, word: str, answer: str) -> None:
    world.deliver(6)
    world.processed(3)
    ended = world.run("check", "-c", world.config(), "--set", word.format(there=world.mirrored))
    assert ended.code == 2
    assert answer in ended.err


def test_more_replay_than_allowed_stops_until_it_is_accepted(world: World) -> None:
    world.deliver(60)
    record = source_record(5)
    absent = Anchor(record.offset, record.timestamp_ms, b"never sent", "0" * 32, "the-source-cluster")
    world.save({0: StoredOffset(record.offset + 1, absent)})
    config = world.config(extra="[policy]\nmax_replay = 1")
    stopped = world.run("check", "-c", config)
    assert stopped.code == 4
    assert "more than max_replay = 1" in stopped.out
    accepted = world.run("check", "-c", config, "--accept", "bounded")
    assert accepted.code == 3
    assert "Next: reconciler plan with the same decisions (--set, --accept), then apply." in " ".join(
        accepted.out.split()
    )
    allowed = world.run("check", "-c", world.config())
    assert allowed.code == 3
    assert "Next: reconciler plan, then apply." in " ".join(allowed.out.split())


def test_segments_that_were_deleted_a_moment_ago_do_not_hide_the_records_behind_them(world: World) -> None:
    """A broker keeps a deleted segment for minutes, and until then answers many time lookups with "none"."""
    world.deliver(20, segment="1000")  # the first marker begins a second segment
    world.processed(5)
    first_left = world.offset_of(12)
    world.cluster.delete_records(world.mirrored, 0, first_left)
    (row,) = world.checked(world.config()).values()
    assert row["resume_offset"] <= first_left, "unprocessed records would be skipped"
    assert row["verdict"] == "lost"


# ---------------------------------------------------------------- 5: not what the plan saw


@pytest.fixture
def planned(world: World) -> World:
    world.deliver(20)
    world.processed(9)
    world.plan(world.config())
    return world


def refused_as_changed(world: World, *words: str, config: Path | None = None) -> None:
    with nothing_written(world):
        ended = world.run("apply", world.plan_file, "-c", config or world.config(), "--yes")
    assert ended.code == 5, ended.output
    for word in words:
        assert word in ended.err


def test_a_plan_edited_by_hand(planned: World) -> None:
    plan = json.loads(planned.plan_file.read_text())
    plan["jobs"][0]["partitions"][0]["resume_offset"] += 1
    planned.plan_file.write_text(json.dumps(plan))
    refused_as_changed(planned, "altered after it was made", "--set")
    assert planned.run("show", planned.plan_file).code == 5


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "The file is not a plan: it is empty."),
        ("{", "not JSON"),
        ("[]", "not a plan of format reconciler.plan/1"),
        ('{"format": "reconciler.plan/2"}', "it says 'reconciler.plan/2'"),
        ('{"format": "reconciler.plan/1", "note": "\\ud800"}', "altered after it was made"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(planned: World, text: str, answer: str) -> None:
    planned.plan_file.write_text(text)
    refused_as_changed(planned, answer)


def test_a_plan_that_has_expired_is_refused(world: World) -> None:
    world.deliver(5)
    world.processed(2)
    config = world.config(extra="[policy]\nplan_expires = '1s'")
    world.plan(config)
    wait_until(
        lambda: world.run("apply", world.plan_file, "-c", config, "--dry-run").code == 5,
        "a plan for a second ends",
    )
    refused_as_changed(world, "The plan expired at", "Make a new one", config=config)


def test_the_plan_of_a_job_that_went_on_since_is_refused(planned: World) -> None:
    planned.processed(10)
    refused_as_changed(planned, "has moved on since the plan", f"had offset {BASE + 10}, and has offset {BASE + 11}")


def test_a_plan_for_a_topic_recreated_since_is_refused(planned: World) -> None:
    admin = planned.cluster.admin()
    admin.delete_topics([planned.mirrored])[planned.mirrored].result(30)
    planned.deliver(20)
    refused_as_changed(planned, f'The topic "{planned.mirrored}" was deleted or recreated since the plan')


def test_a_plan_whose_record_retention_took_is_refused(planned: World) -> None:
    planned.cluster.delete_records(planned.mirrored, 0, planned.offset_of(15))
    refused_as_changed(planned, "does not hold the planned offset")


def test_a_plan_for_another_cluster_is_refused(planned: World) -> None:
    plan = json.loads(planned.plan_file.read_text())
    plan["destination"]["cluster_id"] = "another-cluster"
    planned.plan_file.write_text(json.dumps({**plan, "sha256": digest(plan)}))
    refused_as_changed(planned, "The plan is for cluster another-cluster, but [destination] is")


def test_a_plan_for_another_group_is_refused(planned: World) -> None:
    config = planned.config(planned.job().replace("readers of", "writers of"))
    refused_as_changed(planned, "in the configuration and", config=config)


def test_a_job_that_has_gone_on_is_not_rolled_back(planned: World) -> None:
    config = planned.config()
    assert planned.run("apply", planned.plan_file, "-c", config, "--yes").code == 0
    planned.save({0: StoredOffset(15, Anchor(14, cluster_id=planned.cluster.cluster_id))}, topic=planned.mirrored)
    with nothing_written(planned):
        ended = planned.run("rollback", planned.plan_file, "-c", config, "--yes")
    assert ended.code == 5
    assert "is no longer as apply left it: the job has gone on" in ended.err


# ---------------------------------------------------------------- 6: no answer, or a no


@pytest.mark.parametrize("command", ["check", "plan", "hook", "apply"])
def test_a_destination_that_is_down_is_named_and_nothing_is_written(planned: World, command: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    config = planned.config(bootstrap=address, extra="[search]\ndeadline = '1s'")
    other = planned.folder / "other.plan.json"
    arguments = {
        "check": ("-c", config),
        "plan": ("-c", config, "-o", other),
        "hook": ("--to", "destination", "-c", config, "--plans", planned.folder / "plans", "--", "true"),
        "apply": (planned.plan_file, "-c", config, "--yes"),
    }
    with nothing_written(planned):
        ended = planned.run(command, *arguments[command])
    assert ended.code == 6, ended.output
    assert address in ended.err
    assert "See that its brokers are up and reachable" in ended.err
    assert not other.exists()


def test_a_missing_store_is_named_and_not_created(world: World) -> None:
    world.deliver(5)
    ended = world.run("check", "-c", world.config())
    assert ended.code == 6
    assert str(world.folder / "offsets.db") in ended.err
    assert not (world.folder / "offsets.db").exists()


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
