"""Several failovers on Spark: the pure function's figures, real tables and a real file sink, real clusters."""

from __future__ import annotations

import hashlib
import json
import os
import random
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, PlanAnchor
from reconciler.spark.audit import Columns, Output, audit
from reconciler.spark.audit.failovers import audit_stays
from reconciler.spark.audit.failovers.figures import FIGURES, Counts, judge
from reconciler.spark.audit.failovers.tally import KINDS, SCHEMA, SINK, tallied
from reconciler.spark.audit.findings import refuse_unwritable
from reconciler.spark.audit.sink_rows import sink_rows
from reconciler.spark.target import ClusterAccess
from tests.spark.audit.plain_numbers import Numbers
from tests.spark.audit.world import Record, on, record
from tests.spark.sent import Kafka

pytestmark = pytest.mark.system

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("unique", [True, False])
def test_spark_counts_as_the_pure_function_does(spark: Any, unique: bool) -> None:
    chance, seen, names = random.Random(unique), [], defaultdict(lambda: [[0, 0], 0, 0, 0])
    for _ in range(900):
        name = chance.randrange(300).to_bytes(4, "big")
        cluster = chance.choice([SINK, 0, 1])
        read, ahead = chance.choice([(0, 0), (1, 0), (2, 0), (0, cluster)]) if cluster != SINK else (0, 0)
        seen.append((name, cluster, read, ahead, None if cluster == SINK else len(seen)))
        counts = names[name]
        counts[1], counts[2], counts[3] = counts[1] + read, counts[2] + ahead, counts[3] + (cluster == SINK)
        if cluster != SINK:
            counts[0][cluster] += 1
    nameless = [(None, SINK, 0, 0, None)] * 3 + [(None, 1, 1, 0, 7)] * 2
    judged = {name: judge(Counts(*counts), unique=unique, use=Numbers()) for name, counts in names.items()}
    expected = sum((Counter(each) for each in judged.values()), Counter())
    with tallied(spark.createDataFrame(seen + nameless, SCHEMA), 2, unique=unique) as found:
        assert {name: found.sums[name] for name in FIGURES} == {name: expected[name] for name in FIGURES}
        sides = {"named": 3, "named0": 0, "named1": 1}
        assert {side: found.sums[side] for side in sides} == {
            side: sum(counts[3] if kind == 3 else counts[0][kind] for counts in names.values())
            for side, kind in sides.items()
        }
        assert (found.sums["nameless"], found.sums["nameless1"], found.sums["nameless0"]) == (3, 2, 0)
        kept = {bytes(row["name"]) for row in found.names.collect()}
        assert kept == {name for name, each in judged.items() if any(each[kind] for kind in KINDS)}


def test_a_delta_table_is_read_without_its_jars_and_a_missing_sink_has_no_rows(spark: Any, tmp_path: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    for number in range(3):
        deltalake.write_deltalake(
            tmp_path / "t", arrow.table({"event": [f"{number}/{n}" for n in range(4)]}), mode="append"
        )
    deltalake.DeltaTable(tmp_path / "t").delete("event = '0/1'")
    columns = Columns(id="event")
    rows = sink_rows(spark, f"delta:{tmp_path}/t", columns)
    assert sorted(row["event"] for row in rows.collect()) == sorted(
        f"{a}/{b}" for a in range(3) for b in range(4) if (a, b) != (0, 1)
    )
    for address in (f"delta:{tmp_path}/none", f"files:{tmp_path}/none"):
        assert sink_rows(spark, address, columns).count() == 0


@pytest.mark.parametrize(("folder", "why"), [("there", "findings exists already"), ("file/found", "file")])
def test_a_place_for_the_findings_is_tried_before_anything_is_read(
    spark: Any, tmp_path: Path, folder: str, why: str
) -> None:
    (tmp_path / "there" / "findings").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    parquet, output = str(tmp_path / folder), Output(spark.range(0), Columns(id="id"))
    clusters = {"destination": ClusterAccess(NOWHERE)}
    known = [hop(1, ("a", "b"), ("events", "a.events"), [record(1, 0)], 1, 1)]
    with pytest.raises(ConfigError, match=f"The findings cannot be written: .*{why}"):
        audit(spark, known, destination=NOWHERE, parquet=parquet)
    with pytest.raises(ConfigError, match=f"The findings cannot be written: .*{why}"):
        audit_stays(spark, known, clusters=clusters, output=output, id="header:id", parquet=parquet)
    assert sorted(os.listdir(tmp_path)) == ["file", "there"]


def test_trying_the_place_for_the_findings_leaves_no_file(spark: Any, tmp_path: Path) -> None:
    refuse_unwritable(spark, str(tmp_path / "found"), "findings")
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == []


# ---------------------------------------------------------------- there and back on real clusters

LEADS = 3
"""The mirror began late: the destination lacks the first three records."""


def hop(day: int, ids: tuple[str, str], names: tuple[str, str], log: list[Record], stored: int, resume: int) -> Plan:
    """A failover of the one partition. ``log`` is that of the cluster that the job leaves."""
    last = log[stored - 1]
    anchor = PlanAnchor(stored - 1, last.stamp, fingerprint(last.key, last.value), None)
    row = PartitionPlan(
        **{"source_topic": names[0], "topic": names[1], "topic_id": None, "partition": 0, "stored_offset": stored},
        **{"anchor": anchor, "verdict": Verdict.MOVED, "resume_offset": resume, "replay_at_most": 0},
        **{"replay_exact": 0, "matched_by": "id", "record_offset": resume - 1, "probes": 1, "rounds": 1, "detail": ""},
    )
    times = (f"2026-01-{day:02}T00:00:00Z", f"2026-02-{day:02}T00:00:00Z")
    return Plan(
        "0.1.0", *times, "a", ids[0], "anywhere:9092", ids[1], (JobPlan("clicks", "clicks", "memory:", (row,)),)
    )


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
        f'[source]\nalias = "a"\nbootstrap_servers = "{a.bootstrap}"\n'
        f'[destination]\nbootstrap_servers = "{b.bootstrap}"\n'
        f'[[jobs]]\nname = "clicks"\ngroup = "clicks"\ntopics = ["{topic}"]\nstore = "memory:"\n'
        f'sink = "files:{tmp_path}/out"\nsink_columns = {{ id = "event" }}\n'
        '[jobs.identity]\nid = "header:message-id"\nunique_ids = true\n'
    )
    (tmp_path / "c.toml").write_text(config)
    files = []
    for number, plan in enumerate(plans):
        files.append(str(tmp_path / f"{number}.json"))
        Path(files[-1]).write_text(plan.to_text())
    more = ["--json", str(tmp_path / "audit.json"), "--parquet", str(tmp_path / "found")]
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
    places = {each["kind"]: [at["offset"] for at in each["places"]] for each in content["examples"]}
    assert places == {"lost": [30, 30 - LEADS], "doubled": [51, 51 - LEADS], "unknown_rows": []}
    assert [(side["records"], len(side["read"])) for side in content["clusters"]] == [(60, 2), (57, 2)]
    findings = spark.read.parquet(str(tmp_path / "found" / "findings"))
    assert {row["kind"] for row in findings.collect()} == set(planted)
    assert "read by no stay" not in capsys.readouterr().out

    # The plan of the way back is missing: two plans of the same way are no chain.
    assert main(["audit", "-c", str(tmp_path / "c.toml"), files[0], files[2]]) == 2
    # A plan that resumed fifteen records too late: what no stay has read is told apart.
    Path(files[1]).write_text(hop(2, ids[::-1], back, on_b, 30 - LEADS, 45).to_text())
    assert main(["audit", "-c", str(tmp_path / "c.toml"), *files, "--json", str(tmp_path / "again.json")]) == 4
    assert json.loads((tmp_path / "again.json").read_text())["totals"]["lost_unread"] == 1
    # An empty sink shows nothing, and everything is lost.
    (tmp_path / "c.toml").write_text(config.replace(f"{tmp_path}/out", f"{tmp_path}/none"))
    assert main(["audit", "-c", str(tmp_path / "c.toml"), *files]) == 4
    assert "Nothing was read of files:" in capsys.readouterr().out
