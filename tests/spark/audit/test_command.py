"""The command's arguments: which rows, which columns, which position. No Spark."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from reconciler.cli.commands.audit import stored_until
from reconciler.cli.main import main
from reconciler.config.addresses import SINK_COLUMNS
from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.spark.audit import Columns
from tests.spark.audit.plans import BACK, SAME, THERE, plan, row


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "by either id, or key and value"),
        ({"id": "x", "key": "y", "value": "z"}, "by either id, or key and value"),
        ({"key": "x"}, "by either id, or key and value"),
        ({"id": "x", "partition": "y"}, "needs its topic"),
        ({"idd": "x"}, "no field idd"),
    ],
)
def test_columns_that_do_not_identify_a_record_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Columns.named(given)


def configured(folder: Path, job: str = "", store: str = "memory:") -> Path:
    path = folder / "c.toml"
    path.write_text(
        '[clusters.a]\n[clusters.b]\nbootstrap_servers = "localhost:1"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "{store}"\n{job}'
    )
    return path


SINK = 'sink = "files:/out"\n'


@pytest.mark.parametrize(
    ("job", "more", "why"),
    [
        ("", ["--since", "yesterday"], "is not a time"),
        ("", ["--column", "id=x"], "none is given"),
        ("", ["--conf", "x"], "--conf x is not NAME=VALUE"),
        ("", ["--json", "/nowhere/at/all.json"], "all.json cannot be written: No such file or directory"),
        ("", ["--job", "sums"], 'no job "sums"'),
        ("", ["--output", "parquet:/out"], "by either id, or key and value"),
        ('sink = ["files:/a", "delta:/b"]\nsink_columns = { id = "e" }\n', [], "Which sink? The job has files:/a"),
        (f'{SINK}sink_columns = {{ idd = "e" }}\n', [], "has no idd"),
        ('sink_columns = { id = "e" }\n', [], "there is none"),
        ('sink = "python:m:f"\n[policy]\npython = ["m"]\n', ["--column", "id=e"], "none is given"),
    ],
)
def test_invalid_arguments_are_reported_before_spark_starts(
    job: str,
    more: list[str],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "reconciler.cli.commands.audit.own_session", lambda *args, **more: pytest.fail("Spark was started")
    )
    (tmp_path / "p.json").write_text(plan(1, "A", "B", row(THERE, 0, 7, 5)).to_text())
    assert main(["audit", "-c", str(configured(tmp_path, job)), str(tmp_path / "p.json"), *more]) == 2
    assert why in capsys.readouterr().err


def test_the_configuration_knows_every_field_of_the_columns(tmp_path: Path) -> None:
    assert {*SINK_COLUMNS} == {each.name for each in fields(Columns)}
    (job,) = load_config(configured(tmp_path, f'{SINK}sink_columns = {{ id = "event_id" }}\n')).jobs
    assert job.sink_columns == {"id": "event_id"}


def stored(folder: Path, rows: dict[tuple[str, int], StoredOffset]) -> Config:
    address = f"sqlite:///{folder / 'offsets.db'}"
    with closing(open_store(address, kafka_client={})) as store:
        store.create()
        changes = [Change(TopicPartition(*key), None, stored) for key, stored in rows.items()]
        store.write("clicks", changes, reason="test", now_ms=1)
    return load_config(configured(folder, store=address))


def test_a_jobs_position_is_read_from_its_store_in_destination_offsets(tmp_path: Path) -> None:
    """A row under the mirrored topic's name is such a one; under a name that both clusters have, its anchor says so."""
    here, there = Anchor(8, 1, cluster_id="A"), Anchor(8, 1, cluster_id="B")
    rows = {
        ("a.events", 0): StoredOffset(9, here),
        ("events", 0): StoredOffset(9, here),
        ("events", 1): StoredOffset(9, there),
    }
    config = stored(tmp_path, rows)
    planned = [row(names, number, 7, 5) for names in (THERE, SAME) for number in range(2)]
    until = stored_until(config, config.jobs[0], [plan(1, "A", "B", *planned)])
    assert {(at.topic, at.partition): offset for at, offset in until.items()} == {
        ("a.events", 0): 9,
        ("a.events", 1): None,
        ("events", 0): None,
        ("events", 1): 9,
    }


def test_a_stored_offset_before_the_last_resume_offset_is_no_position(tmp_path: Path) -> None:
    """A query that came back goes on in a copy: the configured checkpoint, or row, is of the older stay."""
    config = stored(tmp_path, {("events", n): StoredOffset(6 + n, None) for n in range(3)})
    there, back = row(THERE, 0, 3, 3), [row(BACK, n, 7, 9 if n == 2 else 7) for n in range(3)]
    plans = [plan(2, "B", "A", *back), plan(1, "A", "B", there)]
    until = stored_until(config, config.jobs[0], plans)
    assert {at.partition: offset for at, offset in until.items()} == {0: None, 1: 7, 2: None}
