"""Names counted and judged on Spark, the output's rows, and the place for the findings."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from reconciler.config.identity import IdentitySettings, identity_from_settings
from reconciler.core.errors import ConfigError
from reconciler.spark.audit import Columns, Output
from reconciler.spark.audit.output import sink_rows
from reconciler.spark.audit.result import FIGURES, Counts, Rules, judge
from reconciler.spark.audit.stays import find_stays
from reconciler.spark.audit.tally import KINDS, OUTPUT, SCHEMA, Naming, tally
from reconciler.spark.session import spark_message
from tests.config.registry import WHOLE, framed, in_avro
from tests.spark.audit.plans import THERE, plan, row
from tests.spark.audit.test_stays import Numbers

pytestmark = pytest.mark.system

UNITS = 3
HEADER = "struct<key: string, value: binary>"
Names = dict[tuple[int, bytes], list[int]]


def sample(seed: int) -> tuple[list[Any], Names]:
    """Sightings, and each name's counts: held by either cluster, read, ahead, rows."""
    chance, seen, names = random.Random(seed), list[Any](), defaultdict[Any, list[int]](lambda: [0] * 5)
    for turn in range(900):
        number = chance.randrange(300)
        unit, name = number % UNITS, number.to_bytes(4, "big")
        cluster = chance.choice([OUTPUT, 0, 1])
        read, ahead = chance.choice([(0, 0), (1, 0), (2, 0), (0, cluster)])
        if cluster == OUTPUT:
            read = ahead = 0
        seen.append((0, name, cluster, unit, read, ahead, None if cluster == OUTPUT else turn))
        counts = names[unit, name]
        counts[cluster if cluster != OUTPUT else 4] += 1
        counts[2], counts[3] = counts[2] + read, counts[3] + ahead
    return seen, names


@pytest.mark.parametrize("rules", [Rules(unique=True), Rules(from_first=True, all_read=False)])
def test_spark_counts_by_partition_as_the_pure_function_does(spark: Any, rules: Rules) -> None:
    seen, names = sample(1)
    nameless = [(2, None, OUTPUT, 2, 0, 0, None)] * 3 + [(1, None, 1, 1, 1, 0, 7)] * 2
    judged = {key: judge(Counts(each[:2], *each[2:]), rules, Numbers()) for key, each in names.items()}
    with tally(spark.createDataFrame(seen + nameless, SCHEMA), 2, rules) as found:
        for unit in range(UNITS):
            own = {key: each for key, each in names.items() if key[0] == unit}
            expected = sum((Counter(judged[key]) for key in own), Counter())
            assert {name: found.sums[unit][name] for name in FIGURES} == {name: expected[name] for name in FIGURES}
            for name, place in {"held0": 0, "held1": 1, "rows": 4}.items():
                assert found.sums[unit][name] == sum(each[place] for each in own.values())
        assert [found.sums[n]["nameless"] for n in range(UNITS)] == [0, 0, 3]
        assert [found.sums[n]["nameless1"] for n in range(UNITS)] == [0, 2, 0]
        kept = {bytes(row["name"]) for row in found.names.collect()}
        assert kept == {name for (_, name), each in judged.items() if any(each[kind] for kind in KINDS)}


def test_without_an_output_what_the_stays_read_is_taken_for_it_and_nothing_is_sorted(spark: Any) -> None:
    seen, names = sample(2)
    seen = [each for each in seen if each[2] != OUTPUT]
    judged = [judge(Counts(each[:2], each[2], each[3], rows=each[2]), Rules(), Numbers()) for each in names.values()]
    with tally(spark.createDataFrame(seen, SCHEMA), 2, Rules(), has_output=False) as found:
        for name in ("lost", "doubled", "unknown_rows"):
            assert found.total(name) == sum(each[name] for each in judged)
        steps = found.names._jdf.queryExecution().executedPlan().toString()
    assert "HashAggregate" in steps
    for step in ("SinglePartition", "collect_list", "collect_set", "SortAggregate", "CartesianProduct"):
        assert step not in steps


def test_rows_with_topic_and_partition_belong_to_that_partition_and_other_topics_are_left_out(spark: Any) -> None:
    found = find_stays([plan(1, "A", "B", row(THERE, 0, 1, 1), row(THERE, 1, 1, 1))])
    rows = [("events", 0), ("a.events", 1), ("a.events", 7), ("events", None), ("other", 0)]
    frame = spark.createDataFrame([(*each, "id") for each in rows], "topic string, partition bigint, event string")
    columns = Columns(id="event", topic="topic", partition="partition")
    assert sorted(each["unit"] for each in Output(frame, columns).rows(found).collect()) == [-1, -1, 0, 1]
    plain = Output(frame, replace(columns, partition=None)).rows(found)
    assert [each["unit"] for each in plain.collect()] == [None] * 4
    with pytest.raises(ConfigError, match="no column 'nothing'"):
        Output(frame, Columns(id="nothing")).rows(found)


def test_ids_in_avro_are_read_in_tasks_and_what_they_lack_is_said(spark: Any) -> None:
    pytest.importorskip("fastavro")
    columns = "timestamp timestamp, timestampType int, topic string, partition int, offset bigint, key binary, "
    value = bytearray(framed(7, in_avro()))
    log = spark.createDataFrame(
        [(None, 0, "orders", 0, 3, None, value, None)], f"{columns} value binary, headers array<{HEADER}>"
    )
    settings = IdentitySettings(id="avro:$.order_id", schema=json.dumps(WHOLE), frame="confluent")
    (found,) = named_by(settings, log).collect()
    assert bytes(found["name"]) == hashlib.sha256(b"o-17").digest()
    without = IdentitySettings(id="avro:$.order_id", registry=(("url", "http://127.0.0.1:1"), ("max.retries", "0")))
    with pytest.raises(PySparkException) as caught:
        named_by(without, log).collect()
    said = "The schema registry http://127.0.0.1:1 did not answer|.registry. needs confluent-kafka's client"
    assert re.match(said, spark_message(caught.value))


def named_by(settings: IdentitySettings, log: Any) -> Any:
    naming = Naming.of(identity_from_settings(settings), by_id=None, unique=False, apart=False)
    return naming.named(log, "offset")


def test_a_delta_table_is_read_without_its_jars_and_a_missing_sink_is_refused(spark: Any, tmp_path: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    for number in range(3):
        deltalake.write_deltalake(
            tmp_path / "t", arrow.table({"event": [f"{number}/{n}" for n in range(4)]}), mode="append"
        )
    deltalake.DeltaTable(tmp_path / "t").delete("event = '0/1'")
    rows = sink_rows(spark, f"delta:{tmp_path}/t")
    assert sorted(row["event"] for row in rows.collect()) == sorted(
        f"{a}/{b}" for a in range(3) for b in range(4) if (a, b) != (0, 1)
    )
    for address in (f"delta:{tmp_path}/none", f"files:{tmp_path}/none"):
        with pytest.raises(ConfigError, match="has no rows yet"):
            sink_rows(spark, address)
