"""Anchors from a job's own output: the last record of each partition, and nothing that the output does not show."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec
from reconciler.ports import TopicPartition
from reconciler.spark.derive import Columns, derive, topics_in
from reconciler.stores.registry import open_store
from tests.sizes import sampled
from tests.spark.sessions import set_for_now

pytestmark = pytest.mark.system

BASE_MS = 1_780_000_000_123
SCHEMA = (
    "topic string, partition int, offset bigint, at timestamp, event string, raw struct<key:binary,value:binary>, "
    "run bigint"
)


def rows(topic: str, partition: int, offsets: range, run: int) -> list[tuple[Any, ...]]:
    return [
        (
            topic,
            partition,
            n,
            datetime.fromtimestamp((BASE_MS + n) / 1000, UTC),
            f"e{n}",
            (b"k%d" % n, b'{"id":%d}' % n),
            run,
        )
        for n in offsets
    ]


@pytest.fixture(scope="module")
def output(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches of three partitions; the second one was cut off: it lacks partition 1's record 7."""
    path = tmp_path_factory.mktemp("output") / "clicks"
    first = [*rows("events", 0, range(10), 1), *rows("events", 1, range(5), 1), *rows("other", 0, range(3), 1)]
    second = [*rows("events", 0, range(10, 20), 2), *[row for row in rows("events", 1, range(5, 9), 2) if row[2] != 7]]
    spark.createDataFrame([*first, *second], SCHEMA).repartition(3).write.parquet(str(path))
    return path


def found(lines: list[Any]) -> dict[tuple[str, int], StoredOffset]:
    assert {line.group for line in lines} <= {"clicks"}
    return {(line.topic, line.partition): line.stored for line in lines}


def test_the_last_record_of_each_partition_with_the_given_columns(spark: Any, output: Path) -> None:
    frame = spark.read.parquet(str(output))
    bare = found(derive(frame, group="clicks"))
    assert bare[("events", 0)] == StoredOffset(20, Anchor(19))
    assert bare.keys() == {("events", 0), ("events", 1), ("other", 0)}
    named = found(derive(frame, group="clicks", columns=Columns(timestamp="at", id="event"), topics=["events"]))
    assert named == {
        ("events", 0): StoredOffset(20, Anchor(19, BASE_MS + 19, b"e19")),
        ("events", 1): StoredOffset(9, Anchor(8, BASE_MS + 8, b"e8")),
    }
    whole = Columns(timestamp="at", key="raw.key", value="raw.value")
    identity = identity_from_spec(id="json:$.id")
    lines = found(derive(frame, group="clicks", columns=whole, identity=identity, cluster_id="west"))
    expected = Anchor(19, BASE_MS + 19, b"19", fingerprint(b"k19", b'{"id":19}'), "west")
    assert lines[("events", 0)].anchor == expected


def test_the_newest_batch_is_left_out_where_a_column_names_it(spark: Any, output: Path) -> None:
    frame = spark.read.parquet(str(output))
    lines = found(derive(frame, group="clicks", columns=Columns(batch="run"), topics=["events"]))
    assert {at: stored.offset for at, stored in lines.items()} == {("events", 0): 10, ("events", 1): 5}


def batches(spark: Any, *names: str | None) -> Any:
    """Three records of partition 0 for each name, in this order."""
    values = [("events", 0, 3 * place + n, name) for place, name in enumerate(names) for n in range(3)]
    return spark.createDataFrame(values, "topic string, partition int, offset bigint, run string")


@pytest.mark.parametrize(
    ("older", "newer"),
    sampled(
        [
            ("9", "10"),
            ("batch-9", "batch-10"),
            ("31.12.2025", "01.01.2026"),
            ("2026-01-01T00:30:00+02:00", "2026-01-01T00:00:00Z"),
            ("2026-01-01T02:30:00+02:00", "2026-01-01T02:00:00+01:00"),
            ("2026-01-01 12:30 PM", "2026-01-01 01:30 PM"),
            ("12 PM", "01 PM"),
            ("-9", "-1"),
            ("run -9", "run -1"),
            ("5f0c", "a1b2"),
        ],
        keep=4,
    ),
)
def test_text_that_does_not_show_which_batch_is_the_newest_is_refused(spark: Any, older: str, newer: str) -> None:
    with pytest.raises(ConfigError, match="does not show which batch is the newest"):
        derive(batches(spark, older, newer), group="clicks", columns=Columns(batch="run"))


@pytest.mark.parametrize(
    ("older", "newer"),
    sampled(
        [
            ("09", "10"),
            ("b-009", "b-010"),
            ("2025-12-31", "2026-01-01"),
            ("2025-12-31 23:59:59Z", "2026-01-01 00:00:00Z"),
            ("2025-12-31T23:59:59.999 UTC", "2026-01-01T00:00:00.000 UTC"),
        ],
        keep=2,
    ),
)
def test_text_of_one_form_shows_which_batch_is_the_newest(spark: Any, older: str, newer: str) -> None:
    lines = found(derive(batches(spark, older, newer), group="clicks", columns=Columns(batch="run")))
    assert lines == {("events", 0): StoredOffset(3, Anchor(2))}


@pytest.mark.parametrize("partition", [0, 1], ids=["of the largest number", "of other numbers"])
def test_numbers_that_began_again_do_not_show_which_batch_is_the_newest(spark: Any, partition: int) -> None:
    """A new checkpoint counts from 0: here 1 is the newest batch, and may have been cut off."""
    first = [*rows("events", 0, range(10), 7), *rows("events", 1, range(5), 6)]
    again = rows("events", partition, range(10, 12), 0) + rows("events", partition, range(12, 14), 1)
    frame = spark.createDataFrame([*first, *again], SCHEMA)
    numbers = rf"events-{partition} \(offset 13\) is of batch 1, though the column 'run' also has {7 - partition} there"
    with pytest.raises(ConfigError, match=numbers):
        derive(frame, group="clicks", columns=Columns(batch="run"))
    times = frame.withColumn("run", f.when(f.col("run") < 2, f.col("run") + 10).otherwise(f.col("run")))
    assert found(derive(times, group="clicks", columns=Columns(batch="run")))[("events", partition)].offset == 12


def test_each_topic_has_a_newest_batch_of_its_own(spark: Any) -> None:
    """The mirrored topic is of a new checkpoint, whose batch 7 was cut off: no number of the other's tells that."""
    written = [*rows("events", 0, range(4), 499), *rows("events", 0, range(4, 6), 500)]
    mirrored = [*rows("a.events", 0, range(3), 6), *[row for row in rows("a.events", 0, range(3, 6), 7) if row[2] != 4]]
    frame = spark.createDataFrame([*written, *mirrored, *rows("once", 0, range(2), 3)], SCHEMA)
    lines = found(derive(frame, group="clicks", columns=Columns(batch="run")))
    assert {at: stored.offset for at, stored in lines.items()} == {("events", 0): 4, ("a.events", 0): 3}


def test_a_record_that_two_batches_wrote_is_of_the_later_one(spark: Any) -> None:
    written = [*rows("events", 0, range(4), 1), *rows("events", 0, range(2, 4), 2), *rows("events", 0, range(4, 6), 3)]
    frame = spark.createDataFrame(written, SCHEMA)
    assert found(derive(frame, group="clicks", columns=Columns(batch="run")))[("events", 0)].offset == 4


def test_an_attempt_that_was_cut_off_does_not_count_as_complete_once_its_repetition_was_cut_off_too(spark: Any) -> None:
    """Each attempt has a time of its own. Of eight tasks that take turns, the first ended two, the second three."""
    written = rows("events", 0, range(100), 4)
    for run, tasks in ((5, 2), (6, 3)):
        written += [row for row in rows("events", 0, range(100, 200), run) if row[2] % 8 < tasks]
    frame = spark.createDataFrame(written, SCHEMA)
    assert found(derive(frame, group="clicks", columns=Columns(batch="run"))) == {
        ("events", 0): StoredOffset(100, Anchor(99))
    }


def test_an_attempt_is_left_out_also_where_only_its_repetition_shares_records_with_the_newest(spark: Any) -> None:
    first = [*rows("events", 0, range(10), 4), *rows("events", 1, range(10), 4), *rows("events", 0, range(10, 14), 5)]
    second = [*rows("events", 0, range(10, 14), 6), *rows("events", 1, range(10, 12), 6)]
    frame = spark.createDataFrame([*first, *second, *rows("events", 1, range(10, 13), 7)], SCHEMA)
    lines = found(derive(frame, group="clicks", columns=Columns(batch="run")))
    assert {at: stored.offset for at, stored in lines.items()} == {("events", 0): 10, ("events", 1): 10}


def test_rows_without_a_batch_are_left_out_and_counted(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    frame = batches(spark, "1", "2", None).withColumn("run", f.col("run").cast("bigint"))
    lines = found(derive(frame, group="clicks", columns=Columns(batch="run")))
    assert lines == {("events", 0): StoredOffset(3, Anchor(2))}
    assert "3 rows without a value in the column 'run'" in caplog.text


def test_rows_that_are_of_no_topic_are_left_out(spark: Any) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('events', 0, 4L), (NULL, 0, 9L) AS t(topic, partition, offset)")
    assert found(derive(frame, group="clicks")) == {("events", 0): StoredOffset(5, Anchor(4))}


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "America/St_Johns"])
def test_times_know_no_time_zone(spark: Any, output: Path, zone: str) -> None:
    with set_for_now(spark, {"spark.sql.session.timeZone": zone}):
        lines = found(derive(spark.read.parquet(str(output)), group="clicks", columns=Columns(timestamp="at")))
    assert lines[("other", 0)].anchor.timestamp_ms == BASE_MS + 2


def test_numbers_of_other_types_and_units_are_derived_without_a_column_for_the_topic(spark: Any) -> None:
    frame = spark.sql("SELECT 3L AS part, CAST(41 AS DECIMAL(20,0)) AS pos, 1780000000L AS seconds, 7 AS number")
    names = {"partition": "part", "offset": "pos", "timestamp": "seconds", "id": "number", "topic_name": "events"}
    columns = Columns.named({**names, "unit": "s"})
    assert found(derive(frame, group="clicks", columns=columns)) == {
        ("events", 3): StoredOffset(42, Anchor(41, 1_780_000_000_000, b"7"))
    }
    assert topics_in(frame, columns) == ["events"]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (Columns(offset="position"), "no column 'position' for the offset"),
        (Columns(timestamp="event"), "'event' for the timestamp is of type string"),
        (Columns(topic="offset"), "'offset' for the topic is of type bigint"),
        (Columns(id="*"), r"'\*' for the id is 7 columns"),
        (Columns(id="raw.*"), r"'raw\.\*' for the id is 2 columns"),
        (Columns(key="raw.key"), "only one of them has a column"),
        (Columns(topic=None), "exactly one of them"),
        (Columns(unit="h"), 'unit = "h" is not known'),
    ],
)
def test_columns_that_cannot_be_used(spark: Any, output: Path, columns: Columns, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        derive(spark.read.parquet(str(output)), group="clicks", columns=columns)


# ---------------------------------------------------------------- the command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "reconciler.toml"
    path.write_text(
        '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "nowhere:1"\n[[jobs]]\nname = "clicks"\n'
        f'group = "clicks"\ntopics = ["events"]\nstore = "sqlite:///{tmp_path / "offsets.db"}"\n'
    )
    return path


COLUMNS = ["--column", "timestamp=at", "--column", "id=event"]


def test_the_command_prints_lines_or_fills_the_jobs_store(
    output: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["anchors", "derive", "-c", str(config), "--from", str(output), *COLUMNS, "--whole"]
    assert main(command) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [(line["topic"], line["partition"], line["stored_offset"]) for line in lines] == [
        ("events", 0, 20),
        ("events", 1, 9),
    ]
    assert "Topics of other jobs were left out: other" in printed.err
    assert "Partitions without a record in the output have no line" in printed.err
    assert main([*command, "--into-store"]) == 0
    (first, _) = open_store(f"sqlite:///{tmp_path / 'offsets.db'}").read("clicks")
    assert (first.key, first.stored.offset, first.stored.anchor.id) == (TopicPartition("events", 0), 20, b"e19")
    assert main([*command[:-1], "--column", "batch=run", "--into-store"]) == 5, "other rows are there"
    assert main([*command[:-1], "--column", "batch=run", "--into-store", "--replace"]) == 0
    assert main([*command, str(tmp_path / "lines.jsonl")]) == 0
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 2


def test_anchors_are_derived_from_a_table_that_spark_reads_by_jdbc(
    config: Path, spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = {"url": f"jdbc:derby:memory:{tmp_path.name};create=true", "dbtable": "RESULTS"}
    written = spark.createDataFrame([*rows("events", 0, range(4), 1), *rows("events", 0, range(4, 6), 2)], SCHEMA)
    named = written.selectExpr(
        "topic AS SRC", "partition AS PART", "CAST(offset AS DECIMAL(20,0)) AS POS", "event", "run"
    )
    named.write.format("jdbc").options(**table, createTableColumnTypes="SRC VARCHAR(64)").save()
    command = ["anchors", "derive", "-c", str(config), "--format", "jdbc"]
    for name, value in table.items():
        command += ["--option", f"{name}={value}"]
    for name, column in {"topic": "SRC", "partition": "PART", "offset": "POS", "id": "event", "batch": "run"}.items():
        command += ["--column", f"{name}={column}"]
    assert main(command) == 0
    (line,) = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert (line["stored_offset"], line["anchor"]["offset"]) == (4, 3)
    assert main([part.replace("RESULTS", "NOTHING") for part in command]) == 6
    assert "Spark could not read the output" in capsys.readouterr().err


def test_an_output_that_may_be_incomplete_needs_confirmation(
    output: Path, config: Path, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["anchors", "derive", "-c", str(config), "--from"]
    assert main([*command, str(output), *COLUMNS]) == 2
    assert "may end within a batch" in capsys.readouterr().err

    # The file sink's own list of whole batches is such a word: what is not on it is not read.
    whole, checkpoint = tmp_path / "whole", tmp_path / "checkpoint"
    stream = spark.readStream.schema(SCHEMA).parquet(str(output)).writeStream.format("parquet")
    stream = stream.option("path", str(whole)).option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.createDataFrame(rows("events", 0, range(20, 25), 3), SCHEMA).coalesce(1).write.parquet(str(tmp_path / "torn"))
    (torn,) = (tmp_path / "torn").glob("part-*.parquet")
    torn.rename(whole / torn.name)
    assert main([*command, str(whole), *COLUMNS]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["stored_offset"] == 20


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--whole", "--column", "topic_name=else"], "no record of events"),
        (["--whole", "--column", "offest=x"], "no field offest"),
        (["--whole", "--column", "offset"], "not NAME=VALUE"),
        (["--whole", "--into-store", "lines.jsonl"], "Leave out --into-store or PATH"),
    ],
)
def test_the_command_refuses_invalid_arguments(
    output: Path, config: Path, more: list[str], why: str, capsys: pytest.CaptureFixture[str], spark: Any
) -> None:
    assert main(["anchors", "derive", "-c", str(config), "--from", str(output), *more]) == 2
    assert why in capsys.readouterr().err


def test_a_missing_output_is_refused(config: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["anchors", "derive", "-c", str(config), "--from", "/nowhere", "--whole"]) == 2
    assert "cannot be read" in capsys.readouterr().err
