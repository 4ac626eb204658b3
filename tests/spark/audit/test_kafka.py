"""Audits on two real clusters, compared with a plain Python count over the same records; and there and back."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Identity
from reconciler.core.verdicts import Verdict
from reconciler.plan.document import Plan
from reconciler.spark.audit import AuditResult, Columns, Output, audit
from tests.spark.audit import world as audit_world
from tests.spark.audit.plans import anchored, plan, row
from tests.spark.audit.world import History, Record, Worlds, on, output_frame, plan_of, record, write
from tests.spark.sent import BASE_MS, Kafka

pytestmark = pytest.mark.system

ID = "header:message-id"
WHERE = {"topic": "topic", "partition": "partition"}
BY_ID, BY_CONTENT = {"id": "event", **WHERE}, {"key": "key", "value": "value", **WHERE}


class World:
    """Histories on the run's two clusters, and audits of them."""

    def __init__(self, spark: Any, clusters: Any, name: str) -> None:
        self.spark = spark
        self.a, self.b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
        self.many, self.one = (f"{name}-{each}" for each in ("many", "one"))
        self.worlds = histories(self.many, self.one)
        write(self.worlds, self.a, self.b)
        self.plan = plan_of(self.worlds, self.a, self.b)
        self.frame = output_frame(spark, self.worlds).cache()

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

    resent = [record(n, 3) for n in (*range(30), *range(20, 40))]  # the mirror went back by ten records
    repeated = History([record(n, 3) for n in range(40)], 25, resent, 25).processed()
    return {(many, 0): faultless(), (many, 1): skipping, (many, 2): doubling, (one, 0): repeated}


@pytest.fixture(scope="module")
def world(spark: Any, clusters: Any) -> World:
    return World(spark, clusters, f"audit-{uuid.uuid4().hex[:8]}")


def figures(result: AuditResult, *names: str) -> dict[tuple[str | None, int | None], dict[str, int]]:
    return {(each.topic, each.partition): {name: each.figures[name] for name in names} for each in result.partitions}


@pytest.mark.parametrize(
    "columns", [BY_ID, pytest.param(BY_CONTENT, marks=pytest.mark.thorough)], ids=["id", "content"]
)
def test_against_a_dead_source_every_figure_is_that_of_a_plain_count_and_the_mirrors_part_is_in_doubt(
    world: World, columns: dict[str, str]
) -> None:
    by = "id" if columns is BY_ID else "content"
    result = world.audit(alive=False, output=world.output(**columns), id=ID if by == "id" else "none")
    found = figures(result, "lost", "possibly_lost", "doubled")
    for place, history in world.worlds.items():
        assert found[place] == audit_world.expected_without_source(history, by), place
    # Ten records were sent twice: the destination alone cannot know that the job's second reading was one too many.
    assert figures(result, "possibly_doubled")[(world.one, 0)] == {"possibly_doubled": 10}
    assert any("a mirror sent them twice" in said for said in result.notes)


def test_the_command_on_parquet_without_partitions_gives_figures_and_examples(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.frame.select("event").write.parquet(str(tmp_path / "out"))
    (tmp_path / "plan.json").write_text(world.plan.to_text())
    (tmp_path / "c.toml").write_text(
        f'[clusters.a]\nbootstrap_servers = "{world.a.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "{world.b.bootstrap}"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["{world.many}", "{world.one}"]\n'
        f'offsets = "memory:"\n[jobs.identity]\nid = "{ID}"\n'
    )
    file = tmp_path / "audit.json"
    command = ["audit", "-c", tmp_path / "c.toml", tmp_path / "plan.json", "--output", f"parquet:{tmp_path / 'out'}"]
    assert main([str(each) for each in [*command, "--column", "id=event", "--json", file]]) == 4
    content = json.loads(file.read_text())
    counted = {place: audit_world.expected_with_source(history, "id") for place, history in world.worlds.items()}
    for each in content["partitions"]:
        expected = counted[each["topic"], each["partition"]]
        assert {name: each["figures"][name] for name in expected} == expected
    lost = hashlib.sha256(b"1/10").hexdigest()[:16]
    assert [each["places"][0]["offset"] for each in content["examples"] if each["id_hash"] == lost] == [10]
    told = file.read_text() + capsys.readouterr().out
    assert '"1/10"' not in told
    assert "value 10 of 1" not in told


@pytest.mark.thorough
def test_unread_records_are_not_lost_and_remapped_topics_are_compared_as_a_whole(
    world: World,
) -> None:
    """Here the id is read in Python, as any function's; three records of each partition are older than ``since_ms``."""
    job = world.plan.jobs[0]
    rows = [
        replace(row, finding=Verdict.EARLY, spread=True) if row.source_topic == world.many else row
        for row in job.partitions
    ]
    remapped = replace(world.plan, jobs=(replace(job, partitions=tuple(rows)),))
    result = world.audit(
        remapped,
        output=Output(world.frame, Columns(**BY_ID)),
        id=python_identity(),
        since_ms=BASE_MS + 3,
    )
    assert figures(result, "lost", "doubled", "unknown_rows") == {
        (world.one, 0): {"lost": 0, "doubled": 10, "unknown_rows": 3},
        (world.many, None): {"lost": 7, "doubled": 7, "unknown_rows": 10},
    }
    places = [each.places[0] for each in result.examples if each.kind == "lost"]
    assert [(at.partition, at.offset) for at in places] == [(1, offset) for offset in (10, 25, 26, 27, 30, 35, 38)]
    assert any("do not correspond" in said for said in result.notes)


def python_identity() -> Identity:
    """One that Spark cannot read by itself, as a function's."""
    given = identity_from_spec(id=ID)
    return Identity(timestamp_of=given.timestamp_of, id_of=given.id_of)


# ---------------------------------------------------------------- there and back

LEADS = 3
"""The mirror began late: the destination lacks the first three records."""


def hop(day: int, ids: tuple[str, str], names: tuple[str, str], log: list[Record], stored: int, resume: int) -> Plan:
    """A failover of the one partition. ``log`` is that of the cluster that the job leaves."""
    anchor = anchored(stored - 1, log[stored - 1].key, log[stored - 1].value)
    return plan(day, *ids, row(names, 0, stored, resume, anchor=anchor))


def put_out(spark: Any, folder: Path, batches: list[list[str]]) -> None:
    """A query with the file sink: a batch for each list."""
    for number, ids in enumerate(batches):
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{number}.json").write_text("".join(json.dumps({"event": id}) + "\n" for id in ids))
        frame = spark.readStream.schema("event string").json(str(folder / "in"))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(folder / "out"))
        assert query.awaitTermination(120)


@pytest.mark.thorough
def test_there_and_back_a_missing_and_a_doubled_id_are_found_by_name(
    spark: Any, clusters: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
    topic = f"stays-{uuid.uuid4().hex[:8]}"
    there, back = (topic, f"a.{topic}"), (f"a.{topic}", topic)
    on_a = [record(n) for n in range(60)]
    on_b = on_a[LEADS:]
    for kafka, name, log in ((a, topic, on_a), (b, f"a.{topic}", on_b)):
        kafka.create(name)
        kafka.send(name, [on(each, 0) for each in log])
    ids = (a.cluster_id(), b.cluster_id())
    plans = [
        hop(1, ids, there, on_a, 25, 25 - LEADS),
        hop(2, ids[::-1], back, on_b, 45 - LEADS, 45),
        hop(3, ids, there, on_a, 55, 55 - LEADS),
    ]
    rows = [each.id.decode() for n, each in enumerate(on_a) if n != 30]
    put_out(spark, tmp_path, [rows[:25], [*rows[25:], rows[50], "of no record"]])
    # A file of a batch that was never finished is in the folder, and not in the sink's log.
    spark.createDataFrame([(rows[0],)], "event string").coalesce(1).write.parquet(str(tmp_path / "killed"))
    (left,) = (tmp_path / "killed").glob("*.parquet")
    left.rename(tmp_path / "out" / left.name)
    config = (
        f'[clusters.a]\nbootstrap_servers = "{a.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "{b.bootstrap}"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["{topic}"]\noffsets = "memory:"\n'
        f'sink = "files:{tmp_path}/out"\nsink_columns = {{ id = "event" }}\n'
        '[jobs.identity]\nid = "header:message-id"\nunique_ids = true\n'
    )
    (tmp_path / "c.toml").write_text(config)
    files = []
    for number, each in enumerate(plans):
        files.append(str(tmp_path / f"{number}.json"))
        Path(files[-1]).write_text(each.to_text())
    more = ["--json", str(tmp_path / "audit.json")]
    assert main(["audit", "-c", str(tmp_path / "c.toml"), *files, *more]) == 4
    content = json.loads((tmp_path / "audit.json").read_text())
    figures = ("lost", "lost_unread", "doubled", "doubled_beyond", "unknown_rows", "possibly_lost")
    assert {name: content["totals"][name] for name in figures} == {
        **{"lost": 1, "lost_unread": 0, "doubled": 1, "doubled_beyond": 1, "unknown_rows": 1, "possibly_lost": 0}
    }
    planted = {"lost": b"0/30", "doubled": rows[50].encode(), "unknown_rows": b"of no record"}
    assert {each["kind"]: each["id_hash"] for each in content["examples"]} == {
        kind: hashlib.sha256(id).hexdigest()[:16] for kind, id in planted.items()
    }
    places = {each["kind"]: [(at["offset"], at["stays"]) for at in each["places"]] for each in content["examples"]}
    assert places == {
        **{"lost": [(30, []), (30 - LEADS, [1])], "doubled": [(51, [2]), (51 - LEADS, [])], "unknown_rows": []}
    }
    assert [(side["compared"], len(side["read"])) for side in content["clusters"]] == [(60, 2), (57, 2)]
    assert "read by no stay" not in capsys.readouterr().out

    # A plan that resumed fifteen records too late: what no stay has read is told apart.
    Path(files[1]).write_text(hop(2, ids[::-1], back, on_b, 30 - LEADS, 45).to_text())
    assert main(["audit", "-c", str(tmp_path / "c.toml"), *files, "--json", str(tmp_path / "again.json")]) == 4
    assert json.loads((tmp_path / "again.json").read_text())["totals"]["lost_unread"] == 1
