"""An audit on two real clusters, compared with a plain Python count over the same records."""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import Plan, digest
from reconciler.identity import identity_from_spec
from reconciler.ports import TopicPartition
from reconciler.spark.audit import AuditResult, Columns, Output, audit, looking
from reconciler.spark.audit.resumed_rows import planned
from reconciler.spark.audit.run import _source as source_or_none
from reconciler.spark.target import ClusterAccess
from tests.spark.audit import world as audit_world
from tests.spark.audit.world import History, Worlds, output_frame, plan_of, record, write
from tests.spark.sent import BASE_MS, Kafka

pytestmark = pytest.mark.system

ID = "header:message-id"
WHERE = {"topic": "topic", "partition": "partition"}


class World:
    """Histories on the run's two clusters, and audits of them."""

    def __init__(self, spark: Any, clusters: Any, name: str) -> None:
        self.spark = spark
        self.a, self.b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
        self.many, self.one, self.clean = (f"{name}-{each}" for each in ("many", "one", "clean"))
        self.worlds = histories(self.many, self.one)
        self.good = {(self.clean, 0): faultless(), (self.clean, 1): faultless()}
        write({**self.worlds, **self.good}, self.a, self.b)
        self.plan = plan_of(self.worlds, self.a, self.b)
        self.good_plan = plan_of(self.good, self.a, self.b)
        self.frame = output_frame(spark, self.worlds).cache()
        self.good_frame = output_frame(spark, self.good).cache()

    def audit(self, plan: Plan | None = None, *, alive: bool = True, **more: Any) -> AuditResult:
        source = {"bootstrap.servers": self.a.bootstrap} if alive else None
        given = {"id": ID, "source": source, **more}
        return audit(self.spark, [plan or self.plan], destination={"bootstrap.servers": self.b.bootstrap}, **given)

    def output(self, **columns: str) -> Output:
        return Output(self.frame, Columns(**columns))


def faultless() -> History:
    """The mirror began late, so that offsets differ by three; nothing is wrong."""
    source = [record(n) for n in range(40)]
    return History(source, 25, source[3:], 22).processed()


def histories(many: str, one: str) -> Worlds:
    source = [record(n, 1) for n in range(40)]
    mirrored = [each for n, each in enumerate(source) if n not in (30, 38)]  # two were never delivered
    skipping = History(source, 25, mirrored, 28).processed()  # resumes three too late
    skipping.output = [row for row in skipping.output if row[0] not in (source[10], source[35])]  # and loses two

    # Records 5 to 8 are written twice at the source, legitimately; the job reads seven again, and the plan says five.
    twice = [record(n, 2) for n in (*range(10), *range(5, 9), *range(10, 30))]
    doubling = History(twice, 20, twice, 13, replay=5).processed()
    doubling.output.append(doubling.output[2])
    order = doubling.output
    order[-5], order[-9] = order[-9], order[-5]

    resent = [record(n, 3) for n in (*range(30), *range(20, 40))]  # the mirror went back by ten records
    repeated = History([record(n, 3) for n in range(40)], 25, resent, 25).processed()
    return {(many, 0): faultless(), (many, 1): skipping, (many, 2): doubling, (one, 0): repeated}


@pytest.fixture(scope="module")
def world(spark: Any, clusters: Any) -> World:
    return World(spark, clusters, f"audit-{uuid.uuid4().hex[:8]}")


@contextmanager
def jobs_of(spark: Any, name: str) -> Iterator[list[int]]:
    """Spark's jobs within the block: known when it has ended."""
    context, jobs = spark.sparkContext, list[int]()
    context.setJobGroup(name, name)
    try:
        yield jobs
        jobs += context.statusTracker().getJobIdsForGroup(name)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def figures(result: AuditResult, *names: str) -> dict[tuple[str, int | None], dict[str, int]]:
    return {(row.source_topic, row.partition): {name: row.figures[name] for name in names} for row in result.partitions}


@pytest.mark.thorough  # in every run the command's figures are those of a plain count against a living source
@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("id", {"id": "event", **WHERE, "order": "seq"}),
        ("content", {"key": "key", "value": "value", **WHERE, "order": "seq"}),
        ("content", {"offset": "offset", **WHERE, "order": "seq"}),
    ],
    ids=["id", "content", "offset"],
)
def test_against_a_living_source_every_figure_is_that_of_a_plain_count(
    world: World, by: str, columns: dict[str, str]
) -> None:
    result = world.audit(output=world.output(**columns), id=ID if by == "id" else "none")
    found = figures(result, "lost", "doubled", "reordered", "possibly_lost", "possibly_doubled")
    for place, history in world.worlds.items():
        expected = audit_world.expected_with_source(history, by)
        rows = [each for each, _, _ in history.output]
        expected["reordered"] = audit_world.reordered(history.source, rows, by)
        assert found[place] == {**expected, "possibly_lost": 0, "possibly_doubled": 0}, place
    assert result.exit_code is ExitCode.NEEDS_PERSON


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("id", {"id": "event", **WHERE, "order": "seq"}),
        pytest.param("content", {"fingerprint": "fp", **WHERE}, marks=pytest.mark.thorough),
    ],
    ids=["id", "fingerprint"],
)
def test_against_a_dead_source_every_figure_is_that_of_a_plain_count_and_the_mirrors_part_is_in_doubt(
    world: World, by: str, columns: dict[str, str]
) -> None:
    with jobs_of(world.spark, f"audit by {by}") as jobs:
        result = world.audit(alive=False, output=world.output(**columns), id=ID if by == "id" else "none")
    assert 0 < len(jobs) <= 20, "each figure is computed once: it took 36 jobs when findings were computed again"
    found = figures(result, "lost", "possibly_lost", "doubled", "reordered", "possibly_doubled")
    # Ten records were sent twice: the destination alone cannot know that the job's second reading was one too many.
    assert found[(world.one, 0)]["possibly_doubled"] == 10
    for place, history in world.worlds.items():
        expected = audit_world.expected_without_source(history, by)
        rows = [each for each, _, _ in history.output]
        in_order = audit_world.reordered(history.destination, rows, by) if "order" in columns else 0
        assert {**found[place], "possibly_doubled": 0} == {**expected, "reordered": in_order, "possibly_doubled": 0}, (
            place
        )
    assert not result.to_json()["source"]["alive"]
    assert any("the mirror has sent twice" in said for said in result.unknown)


@pytest.mark.thorough
def test_offsets_alone_show_lost_and_doubled_records_of_the_destination(world: World) -> None:
    columns = {"offset": "offset", **WHERE}
    found = figures(result := world.audit(alive=False, output=world.output(**columns)), "lost", "doubled")
    for place, history in world.worlds.items():
        read = [(cluster, offset) for _, cluster, offset in history.output]
        due = {("destination", n) for n in range(history.resume, len(history.destination))}
        assert found[place] == {"lost": len(due - set(read)), "doubled": len(read) - len(set(read))}, place
    assert any("offsets do not show it" in said for said in result.unknown)


@pytest.mark.thorough
def test_without_an_output_the_logs_show_skipped_repeated_and_undelivered_records(world: World) -> None:
    result = world.audit()
    names = ("lost_in_front_of_resume", "lost_not_at_destination", "doubled", "doubled_as_announced", "reordered")
    found = {place: tuple(each.values()) for place, each in figures(result, *names).items()}
    assert found[(world.many, 0)] == (0, 0, 0, 0, 0)
    assert found[(world.many, 1)] == (3, 2, 0, 0, 0)
    assert found[(world.many, 2)] == (0, 0, 7, 5, 0)
    assert found[(world.one, 0)] == (0, 0, 10, 0, 0), "the mirror's second copies, which no plan announced"
    skipped = [(e.source_offset, e.destination_offset) for e in result.examples if e.kind == "lost"]
    assert skipped == [(25, 25), (26, 26), (27, 27), (30, None), (38, None)]


@pytest.mark.thorough
def test_the_destination_alone_shows_no_loss_and_is_not_clean(world: World) -> None:
    result = world.audit(world.good_plan, alive=False)
    assert (result.verdict, result.exit_code) == ("unknown", ExitCode.NEEDS_PERSON)
    assert any("Whether anything was lost" in said for said in result.unknown)
    found = figures(world.audit(alive=False, unique=True), "doubled", "possibly_doubled")
    assert found[(world.one, 0)] == {"doubled": 10, "possibly_doubled": 0}, "unique ids: a copy is a copy"


@pytest.mark.thorough
def test_a_clean_failover_is_clean_and_its_result_is_the_same_again(world: World) -> None:
    output = Output(world.good_frame, Columns(id="event", **WHERE, order="seq"))
    texts = set()
    for _ in range(2):
        result = world.audit(world.good_plan, output=output, semantics="exactly-once", now_ms=0)
        assert (result.verdict, result.exit_code, result.examples) == ("clean", ExitCode.OK, ())
        assert not any(result.totals.values())
        assert result.unknown == ()
        texts.add(result.to_text())
    (text,) = texts
    content = json.loads(text)
    assert content["format"] == "reconciler.audit/1"
    assert content["sha256"] == digest(content)


def test_the_command_on_parquet_without_partitions_gives_figures_and_all_findings(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.frame.select("event").write.parquet(str(tmp_path / "out"))
    (tmp_path / "plan.json").write_text(world.plan.to_text())
    (tmp_path / "c.toml").write_text(
        f'[source]\nalias = "a"\nbootstrap_servers = "{world.a.bootstrap}"\n'
        f'[destination]\nbootstrap_servers = "{world.b.bootstrap}"\n'
        f'[[jobs]]\nname = "clicks"\ngroup = "clicks"\ntopics = ["{world.many}", "{world.one}"]\n'
        f'store = "memory:"\n[jobs.identity]\nid = "{ID}"\n'
    )
    file = tmp_path / "audit.json"
    command = ["audit", "-c", tmp_path / "c.toml", tmp_path / "plan.json", "--output", f"parquet:{tmp_path / 'out'}"]
    results = ["--json", file, "--parquet", tmp_path / "found", "--examples", "2"]
    assert main([str(each) for each in [*command, "--column", "id=event", *results]]) == 4
    content = json.loads(file.read_text())
    counted = {place: audit_world.expected_with_source(history, "id") for place, history in world.worlds.items()}
    for row in content["partitions"]:
        expected = counted[row["source_topic"], row["partition"]]
        assert {name: row["figures"][name] for name in expected} == expected
    lost = [e["source_offset"] for e in content["examples"] if e["kind"] == "lost"]
    assert lost == [10, 25], "the first two of seven"
    findings = world.spark.read.parquet(str(tmp_path / "found" / "findings"))
    sums = {row["kind"]: row["n"] for row in findings.groupBy("kind").agg({"count": "sum"}).toDF("kind", "n").collect()}
    assert sums == {kind: sum(each[kind] for each in counted.values()) for kind in ("lost", "doubled")}
    hashes = {row["id_hash"] for row in findings.collect()}
    assert hashlib.sha256(b"1/10").hexdigest()[:16] in hashes
    told = file.read_text() + capsys.readouterr().out
    assert '"1/10"' not in told
    assert "value 10 of 1" not in told
    assert main([str(each) for each in [*command, "--column", "id=nothing"]]) == 2
    assert "no column 'nothing'" in capsys.readouterr().err


@pytest.mark.thorough
def test_unread_records_are_not_lost_and_remapped_topics_are_compared_as_a_whole(
    world: World,
) -> None:
    """Here the id is read in Python, as any function's; three records of each partition are older than ``since_ms``."""
    job = world.plan.jobs[0]
    rows = [replace(row, verdict=Verdict.REMAPPED) if row.source_topic == world.many else row for row in job.partitions]
    plan = replace(world.plan, jobs=(replace(job, partitions=tuple(rows)),))
    until = {TopicPartition(f"a.{world.one}", 0): 25}
    frame = world.frame.where(f"NOT (topic = 'a.{world.one}' AND offset >= 25)")
    result = world.audit(
        plan,
        until=until,
        output=Output(frame, Columns(id="event", **WHERE)),
        id=identity_from_spec(id=ID),
        since_ms=BASE_MS + 3,
    )
    assert figures(result, "lost", "doubled", "output_unknown") == {
        (world.one, 0): {"lost": 0, "doubled": 0, "output_unknown": 3},
        (world.many, None): {"lost": 7, "doubled": 7, "output_unknown": 10},
    }
    examples = [(e.source_partition, e.source_offset) for e in result.examples if e.kind == "lost"]
    assert examples == [(1, 10), (1, 25), (1, 26), (1, 27), (1, 30), (1, 35), (1, 38)]
    assert any("do not correspond" in said for said in result.unknown)


def test_another_log_at_the_source_is_refused_and_a_source_that_does_not_answer_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, anchor=replace(row.anchor, offset=3)) for row in world.good_plan.jobs[0].partitions]
    shifted = replace(world.good_plan, jobs=(replace(world.good_plan.jobs[0], partitions=tuple(rows)),))
    with pytest.raises(Changed, match="not the log that the job has read"):
        world.audit(shifted)
    with pytest.raises(Changed, match="is for cluster elsewhere"):
        world.audit(replace(world.good_plan, cluster_id="elsewhere"))
    anew = [replace(row, topic_id="another") for row in world.good_plan.jobs[0].partitions]
    with pytest.raises(Changed, match="recreated"):
        world.audit(replace(world.good_plan, jobs=(replace(world.good_plan.jobs[0], partitions=tuple(anew)),)))
    with pytest.raises(ConfigError, match="identity reads none"):
        world.audit(output=world.output(id="event"), id="none")
    monkeypatch.setattr(looking, "TIMEOUT_S", 1.0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        client = {"bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}"}
        log, why = source_or_none(planned([world.good_plan]), ClusterAccess(client), None)
    assert log is None
    assert why.startswith("The source did not answer, and was taken for dead")
