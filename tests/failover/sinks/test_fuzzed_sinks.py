"""What sinks keep of their batches, whatever is in their files: read, or a start is refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from reconciler.core.errors import ExitCode, Refused
from reconciler.failover.sinks.files import LOG, FileSink
from reconciler.failover.sinks.iceberg import IcebergSink
from tests.failover.checkpoint.checkpoint_files import QUERY
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.fuzz import attempt, documents, fuzz, lines, sized

REFUSALS = (ExitCode.UNREACHABLE, ExitCode.USAGE)


def put(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


@sized
def test_any_log_of_a_file_sink_is_read_or_refused_with_a_sentence(tmp_path: Path, runs: int) -> None:
    uris = [f"file://{tmp_path}/part-0.parquet", "file:///[x/a.parquet", "file://[x.parquet", "file:/a%00b.parquet"]
    files = [{"path": uri, "size": 7, "isDir": False, "action": "add"} for uri in uris]
    put(tmp_path / "part-0.parquet", "PAR1")

    def claim(drawn: tuple[str, bytes]) -> None:
        name, data = drawn
        put(tmp_path / LOG / "9.compact", b"v1\n" + data)
        put(tmp_path / LOG / name, b"v1\n" + data)
        taken = attempt(lambda: FileSink(str(tmp_path)).last_taken(None), *REFUSALS)
        assert taken is None or taken.batch == max(9, int(name) if name.isdecimal() else 0)
        (tmp_path / LOG / name).unlink()

    fuzz(runs, st.tuples(st.sampled_from(["10", "12", "9" * 19, "8", "x", ".10.crc"]), lines(files)), claim)


@sized
def test_any_metadata_of_an_iceberg_table_is_read_or_refused_with_a_sentence(tmp_path: Path, runs: int) -> None:
    pytest.importorskip("pyiceberg")
    table = Iceberg(tmp_path)
    for epoch in range(3):
        table.batch(epoch, "another" if epoch else QUERY)
    file = tmp_path / "metadata" / "v3.metadata.json"
    original = json.loads(file.read_text())

    def claim(data: bytes) -> None:
        file.write_bytes(data)
        attempt(lambda: IcebergSink(str(tmp_path)).last_taken(QUERY), *REFUSALS, longest=100_000)

    fuzz(runs, documents([original]), claim)


def test_snapshots_that_are_each_others_parents_are_no_history(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    table = Iceberg(tmp_path)
    for epoch in range(2):
        table.batch(epoch, "another")
    file = tmp_path / "metadata" / "v2.metadata.json"
    content = json.loads(file.read_text())
    content["snapshots"][0]["parent-snapshot-id"] = 2
    file.write_text(json.dumps(content))
    with pytest.raises(Refused, match="its snapshots are each other's parents"):
        IcebergSink(str(tmp_path)).last_taken(QUERY)
