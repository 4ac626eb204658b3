"""The command's arguments: which rows, which columns, which position. No Spark."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.config.addresses import SINK_COLUMNS
from reconciler.config.file import load_config
from reconciler.core.errors import ConfigError
from reconciler.spark.audit import Columns
from tests.spark.audit.plans import THERE, plan, row


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
