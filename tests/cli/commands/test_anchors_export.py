"""``anchors export`` over several jobs: a store that cannot be read hides no other job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ExitCode
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition

Groups = list[tuple[str, int]]
EARLIER = '{"format": "reconciler.anchors/1", "group": "earlier"}\n'


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., ExitCode]:
    """Exports jobs: each name is a job, a group and its store's address; stores but ``missing`` ones hold two rows."""

    def run(*jobs: tuple[str, str], path: Path | None = None) -> ExitCode:
        text = '[clusters.a]\n[clusters.b]\nbootstrap_servers = "localhost:1"\n[topics]\npolicy = "identity"\n'
        for name, address in jobs:
            text += f'[[jobs]]\nhome = "a"\nname = "{name}"\ntopics = ["events"]\noffsets = "{address}"\n'
            if "missing" not in address and address.startswith("sqlite:"):
                store = open_store(address)
                store.create()
                rows = [Change(TopicPartition("events", n), None, StoredOffset(n + 1, Anchor(n))) for n in range(2)]
                store.write(name, rows, reason="test", now_ms=0)
                store.close()
        (tmp_path / "jobs.toml").write_text(text)
        return ExitCode(main(["anchors", "export", "-c", str(tmp_path / "jobs.toml"), *([str(path)] if path else [])]))

    return run


def exported(text: str) -> Groups:
    return [(line["group"], line["partition"]) for line in map(json.loads, text.splitlines())]


def test_a_store_that_cannot_be_read_hides_no_other_job(
    export: Callable[..., ExitCode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, gone = f"sqlite:///{tmp_path}/offsets.db", f"sqlite:///{tmp_path}/missing.db"
    assert export(("first", good), ("second", gone), ("third", good)) == ExitCode.UNREACHABLE
    ended = capsys.readouterr()
    assert exported(ended.out) == [("first", 0), ("first", 1), ("third", 0), ("third", 1)]
    (said,) = [line for line in ended.err.splitlines() if line.startswith("not exported")]
    assert 'job "second"' in said
    assert "missing.db" in said


def test_the_exit_code_is_the_worst_of_all_jobs(
    export: Callable[..., ExitCode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, gone = f"sqlite:///{tmp_path}/offsets.db", f"sqlite:///{tmp_path}/missing.db"
    (tmp_path / "offsets").mkdir()
    unusable = f"files:{tmp_path}/offsets?layout=nonsense"
    assert export(("first", good), ("second", gone), ("third", unusable)) == ExitCode.USAGE
    ended = capsys.readouterr()
    assert exported(ended.out) == [("first", 0), ("first", 1)]
    assert ended.err.count("not exported") == 2


def test_where_no_store_can_be_read_the_file_keeps_what_it_holds(
    export: Callable[..., ExitCode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, path = f"sqlite:///{tmp_path}/missing.db", tmp_path / "out.jsonl"
    path.write_text(EARLIER)
    assert export(("first", gone), ("second", gone), path=path) == ExitCode.UNREACHABLE
    assert path.read_text() == EARLIER
    assert capsys.readouterr().err.count("not exported") == 2
    assert export(("first", gone), path=path) == ExitCode.UNREACHABLE
    assert path.read_text() == EARLIER
    said = capsys.readouterr().err
    assert "not exported" not in said
    assert "missing.db" in said


def test_a_part_goes_beside_the_earlier_export(
    export: Callable[..., ExitCode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, gone = f"sqlite:///{tmp_path}/offsets.db", f"sqlite:///{tmp_path}/missing.db"
    path, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    assert export(("first", good), ("second", gone), path=path) == ExitCode.UNREACHABLE
    assert f"2 lines written to {part}: not all could be read, so {path} was not written" in capsys.readouterr().err
    assert not path.exists()
    path.write_text(EARLIER)
    assert export(("third", good), ("second", gone), path=path) == ExitCode.UNREACHABLE
    assert path.read_text() == EARLIER
    assert exported(part.read_text()) == [("third", 0), ("third", 1)]
    assert f"so {path} keeps the earlier export" in capsys.readouterr().err
    assert export(("fourth", good), path=path) == ExitCode.OK
    assert exported(path.read_text()) == [("fourth", 0), ("fourth", 1)]
    assert not part.exists()


def test_a_row_that_cannot_be_read_makes_a_part(export: Callable[..., ExitCode], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert export(("first", f"sqlite:///{tmp_path}/offsets.db"), path=path) == ExitCode.OK
    whole = path.read_text()
    with sqlite3.connect(tmp_path / "offsets.db") as db:
        db.execute("UPDATE reconciler_offsets SET stored_offset = 'x' WHERE partition = 1")
    config = str(tmp_path / "jobs.toml")
    assert main(["anchors", "export", "-c", config, str(path)]) == ExitCode.NEEDS_PERSON
    assert path.read_text() == whole
    assert exported((tmp_path / "out.jsonl.partial").read_text()) == [("first", 0)]


def test_a_job_of_which_there_is_nothing_is_named(
    export: Callable[..., ExitCode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prerequisite of a failover is that every line has an anchor. Of no line that is true, too."""
    address = f"sqlite:///{tmp_path}/offsets.db"
    assert export(("first", address)) == ExitCode.OK
    assert "nothing to export" not in capsys.readouterr().err
    config = tmp_path / "jobs.toml"
    misspelt = config.read_text().replace('name = "first"', 'name = "first"\ngroup = "frist"')
    config.write_text(misspelt)
    assert main(["anchors", "export", "-c", str(config)]) == ExitCode.OK
    ended = capsys.readouterr()
    assert ended.out == ""
    said = 'nothing to export of job "first": no rows of "events" for group "frist"; this store has "first"'
    assert said in ended.err
    config.write_text(misspelt.replace('topics = ["events"]', 'topics = ["events"]\nnew = "earliest"'))
    assert main(["anchors", "export", "-c", str(config)]) == ExitCode.OK
    assert capsys.readouterr().err == ""
