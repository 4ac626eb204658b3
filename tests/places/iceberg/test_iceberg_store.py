"""Real Iceberg tables, written by pyiceberg, as stores of a job's offsets."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, NotCreated, Refused, Unreachable
from reconciler.failover.sinks.tables import IcebergSink
from reconciler.places.iceberg import table as opening
from reconciler.places.registry import open_store
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.waiting import wait_until
from tests.world import environment

pytest.importorskip("pyiceberg")
pytest.importorskip("pyarrow")

from tests.places.sink_job import ID, append_iceberg, arrow, iceberg_table

ROWS = [("events", 0, 4, "a"), ("events", 0, 5, "b"), ("events", 1, 9, "c"), ("it's", 0, 2, "d")]
SUMMARY, ALL = "layout=summary&number=next&property=offs", "layout=summary&number=next&property=offs&lists=all"
COLUMNS = "layout=columns&number=last&topic=topic&partition=partition&offset=offset"


def read(folder: Path, query: str, topics: Any = ("events",), group: str = "g") -> dict[tuple[str, int], int]:
    rows = open_store(f"iceberg:{folder}/{ID}?{query}").read(group, topics)
    assert [row.key for row in rows] == sorted(row.key for row in rows)
    return {tuple(row.key): row.stored.offset for row in rows}


def offs(offsets: Any) -> dict[str, str]:
    return {"offs": json.dumps(offsets)}


# ---------------------------------------------------------------- summaries


def test_the_newest_snapshot_of_the_job_has_its_offsets_and_their_time(tmp_path: Path) -> None:
    append_iceberg(tmp_path, ROWS, offs({"events": {"0": 3, "1": 4}}))
    append_iceberg(tmp_path, ROWS, offs({"events": {"0": 6, "1": 10}}))
    append_iceberg(tmp_path, ROWS)  # of another program
    assert read(tmp_path, SUMMARY) == read(tmp_path, ALL) == {("events", 0): 6, ("events", 1): 10}
    (first, _) = open_store(f"iceberg:{tmp_path}/{ID}?{SUMMARY}").read("g")
    at_ms = iceberg_table(tmp_path).snapshots()[1].timestamp_ms
    assert first.stored == StoredOffset(6, None, at_ms)
    assert read(tmp_path, SUMMARY.replace("next", "last")) == {("events", 0): 7, ("events", 1): 11}


def test_a_table_that_was_rolled_back_has_the_offsets_that_it_had(tmp_path: Path) -> None:
    append_iceberg(tmp_path, ROWS, offs({"events": {"0": 3, "1": 4}}))
    append_iceberg(tmp_path, ROWS, offs({"events": {"0": 6}}))
    assert read(tmp_path, SUMMARY) == {("events", 0): 6, ("events", 1): 4}
    with pytest.raises(Refused, match="Not every commit names all partitions in the snapshots' offs of iceberg:"):
        read(tmp_path, ALL)
    table = iceberg_table(tmp_path)
    table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "checked").commit()
    assert read(tmp_path, f"{SUMMARY}&branch=checked") == {("events", 0): 3, ("events", 1): 4}
    with pytest.raises(Refused, match=r"has no branch 'x'.*the table has: checked, main"):
        read(tmp_path, f"{SUMMARY}&branch=x")


@pytest.mark.parametrize("kind", ["*.parquet", "*-m0.avro"])
def test_a_damaged_file_of_the_table_is_no_fault_of_the_configuration(tmp_path: Path, kind: str) -> None:
    append_iceberg(tmp_path, ROWS)
    (file,) = tmp_path.rglob(kind)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(Refused, match=r"could not be read: .*that its files are whole"):
        read(tmp_path, COLUMNS)


def test_snapshots_that_have_expired_may_have_named_more(tmp_path: Path) -> None:
    table = Iceberg(tmp_path / ID)
    for number in range(5):
        table.add(offs({"events": {"0": number}}), expired=number)
    table.add({"operation": "replace", **offs({"events": {"0": 99}})}, expired=4)
    assert read(tmp_path, ALL) == {("events", 0): 4}, "a compaction does not count"
    with pytest.raises(
        Refused, match=r"may name partitions that the newer ones do not.*snapshots before those have expired"
    ):
        read(tmp_path, SUMMARY)
    with pytest.raises(Refused, match="No commit that is left names offsets in the snapshots' other of iceberg:"):
        read(tmp_path, ALL.replace("offs", "other"))
    with pytest.raises(Refused, match="walk=1 lets a read look at no more snapshots"):
        read(tmp_path, f"{ALL}&walk=1")


def test_the_control_topics_positions_of_kafka_connect_are_not_taken_for_offsets(tmp_path: Path) -> None:
    name = "kafka.connect.offsets.control-clicks.connect-clicks"
    with pytest.raises(ConfigError, match="counts the control topic of Iceberg's sink for Kafka Connect"):
        read(tmp_path, f"layout=summary&number=next&property={name}")
    append_iceberg(tmp_path, ROWS, {"copied": '{"0":17}'})
    with pytest.raises(Refused, match="is not offsets by topic and partition"):
        read(tmp_path, "layout=summary&number=next&property=copied")


# ---------------------------------------------------------------- columns


def test_files_of_a_partition_that_cannot_hold_a_larger_offset_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.io.pyarrow import ArrowScan

    opened: list[str] = []
    whole = ArrowScan.to_record_batches

    def counted(scan: Any, tasks: Any) -> Any:
        opened.extend(task.file.file_path for task in tasks)
        return whole(scan, tasks)

    monkeypatch.setattr(ArrowScan, "to_record_batches", counted)
    for first in range(0, 60, 10):
        for part in (0, 1):
            append_iceberg(tmp_path, [("events", part, first + n + part, str(n)) for n in range(10)])
    assert read(tmp_path, COLUMNS) == {("events", 0): 60, ("events", 1): 61}
    assert len(opened) == 2, "the last file of each partition"
    append_iceberg(tmp_path, [("events", 0, 5, "x"), ("events", 1, 6, "y")])
    opened.clear()
    assert read(tmp_path, COLUMNS) == {("events", 0): 60, ("events", 1): 61}
    assert len(opened) == 3, "one that holds both partitions may hold a third"


def test_a_statistic_is_a_bound_and_never_an_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFile

    append_iceberg(tmp_path, ROWS)
    bounds = DataFile.__dict__["upper_bounds"]

    def larger(file: Any) -> dict[int, bytes]:
        return {**bounds.__get__(file, DataFile), 3: (10**9).to_bytes(8, "little")}

    monkeypatch.setattr(DataFile, "upper_bounds", property(larger, bounds.__set__))
    assert read(tmp_path, COLUMNS) == {("events", 0): 6, ("events", 1): 10}


# ---------------------------------------------------------------- the store


def test_a_missing_an_empty_and_a_damaged_table_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotCreated, match=f"There is no Iceberg table iceberg:{tmp_path}/{ID}"):
        read(tmp_path, SUMMARY)
    iceberg_table(tmp_path)
    assert read(tmp_path, SUMMARY) == read(tmp_path, COLUMNS) == {}
    (file,) = (tmp_path / ID / "metadata").iterdir()
    file.write_text("not JSON")
    with pytest.raises((ConfigError, Unreachable), match=f"The table iceberg:{tmp_path}/{ID} could not be read"):
        read(tmp_path, SUMMARY)


@pytest.mark.parametrize("query", [SUMMARY, COLUMNS])
def test_a_metadata_file_that_was_never_committed_is_not_read(tmp_path: Path, query: str) -> None:
    """A catalog's writer that dies, or loses the race, leaves its file behind."""
    append_iceberg(tmp_path, [("events", 0, 5, "a")], offs({"events": {"0": 6}}))
    append_iceberg(tmp_path, [("events", 0, 99, "b")], offs({"events": {"0": 100}}))
    folder, uuid = tmp_path / ID / "metadata", "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    for file in folder.glob("v*.metadata.json"):
        file.rename(folder / f"0000{file.name[1]}-{uuid}.metadata.json")
    committed = folder / f"00002-{uuid}.metadata.json"
    with pytest.raises(Refused, match=r"does not say which of its metadata files.*by its catalog"):
        read(tmp_path, query)
    (row,) = open_store(f"iceberg:{committed}?{query}").read("g", ["events"])
    assert row.stored.offset == 6


@pytest.mark.parametrize(
    "name",
    [
        "00003-abc.metadata.json",
        "v1-3f2504e0-4f89-41d3-9a0c-0305e82c3301.metadata.json",
        "v3.metadata.json.gz",
        "V3.metadata.json",
    ],
)
def test_a_folder_whose_metadata_has_other_names_is_not_called_empty(tmp_path: Path, name: str) -> None:
    """As a store it had no table, as a sink it had taken no batch: one that would be dropped was started again."""
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / name).write_text("{}")
    with pytest.raises(Refused, match="does not say which of its metadata files"):
        open_store(f"iceberg:{tmp_path}?{SUMMARY}").read("g", ["events"])
    with pytest.raises(Refused, match="does not say which of its metadata files"):
        IcebergSink(str(tmp_path)).last_taken("query")


def test_what_a_hadoop_catalog_leaves_beside_its_metadata_is_no_other_catalogs(tmp_path: Path) -> None:
    append_iceberg(tmp_path, [("events", 0, 5, "a")], offs({"events": {"0": 6}}))
    for name in (".v1.metadata.json.crc", "3f2504e0-4f89-41d3-9a0c-0305e82c3301.metadata.json"):
        (tmp_path / ID / "metadata" / name).write_text("{}")
    assert read(tmp_path, SUMMARY) == {("events", 0): 6}


def test_a_hadoop_table_may_compress_its_metadata(tmp_path: Path) -> None:
    append_iceberg(tmp_path, [("events", 0, 5, "a")], offs({"events": {"0": 6}}))
    append_iceberg(tmp_path, [("events", 0, 6, "b")], offs({"events": {"0": 7}}))
    newest = tmp_path / ID / "metadata" / "v3.metadata.json"
    newest.with_name("v3.gz.metadata.json").write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()
    assert read(tmp_path, SUMMARY) == {("events", 0): 7}


def test_a_table_is_found_through_its_catalog(tmp_path: Path) -> None:
    append_iceberg(tmp_path, ROWS, offs({"events": {"0": 6}}))
    program = (
        "import pyiceberg.catalog as catalogs\n"
        "from reconciler.places.registry import open_store\n"
        "from tests.places.iceberg.folder_catalog import FolderCatalog\n"
        "catalogs.AVAILABLE_CATALOGS[catalogs.CatalogType.SQL] = lambda name, conf: FolderCatalog(name, **conf)\n"
        f"print([row.stored.offset for row in open_store('iceberg:lab/{ID}?{SUMMARY}').read('g')])\n"
        f"open_store('iceberg:lab/db.none?{SUMMARY}').read('g')"
    )
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  lab:\n    type: sql\n    uri: unused\n    warehouse: {tmp_path}\n"
    )
    names = environment(PYICEBERG_HOME=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=names, check=False)
    assert done.stdout.strip() == "[6]", done.stderr
    assert "There is no Iceberg table iceberg:lab/db.none." in done.stderr
    from tests.places.iceberg.folder_catalog import FolderCatalog  # pyiceberg takes a second to load

    table = FolderCatalog("lab", warehouse=str(tmp_path)).load_table(ID)
    assert table.scan().to_arrow().to_pylist() == arrow(ROWS).to_pylist()


def test_a_catalog_that_never_answers_fails_its_own_tables_in_time_and_leaves_no_request_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "ANSWER_S", 0.5)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PYICEBERG_CATALOG__SILENT__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__SILENT__URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        store, sink = open_store(f"iceberg:silent/{ID}?{SUMMARY}"), IcebergSink(f"silent/{ID}")
        reads: list[Callable[[], object]] = [lambda: store.read("g"), lambda: sink.last_taken("query"), sink.data_files]
        for read_it in reads:
            with pytest.raises(Unreachable, match=rf"iceberg:silent/{ID} could not be read: no answer in 0\.5 s"):
                read_it()
        wait_until(lambda: set(threading.enumerate()) <= before, "the requests that were given up have ended")


@pytest.mark.parametrize("more", [{"TYPE": "rest"}, {"TYPE": "REST", "CREDENTIAL": "user:secret"}, {}])
def test_a_rest_catalogs_token_configuration_and_table_are_asked_for_with_a_time_limit(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    for name, value in {"URI": "http://none:1", "OAUTH2_SERVER_URI": "http://none:1/tokens", **more}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__ASKED__{name}", value)
    asked: dict[str, object] = {}

    def request(_: object, method: str, url: str, timeout: object = None, **__: object) -> requests.Response:
        asked[url.rpartition("/")[2]] = timeout
        answer = requests.Response()
        answer.status_code = 404 if "tables" in url else 200
        answer._content = b'{"defaults":{},"overrides":{},"access_token":"t","token_type":"bearer"}'
        answer.url = url
        return answer

    monkeypatch.setattr(requests.Session, "request", request)
    with pytest.raises(NotCreated, match="There is no Iceberg table"):
        open_store(f"iceberg:asked/{ID}?{SUMMARY}").read("g")
    assert asked == dict.fromkeys([*(["tokens"] if "CREDENTIAL" in more else []), "config", "clicks"], 60.0)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("iceberg:lab", "names no table"),
        ("iceberg:lab/db.t", "it has no layout="),
        ("iceberg:lab/db.t?layout=txn&number=next", "layout='txn' is not one of summary, columns"),
        ("iceberg:lab/db.t?layout=summary&number=next", "property= is missing"),
        ("iceberg:lab/db.t?layout=summary&number=next&property=", "property= is empty"),
    ],
)
def test_an_address_that_leaves_a_question_open_is_refused(address: str, why: str) -> None:
    address = address if "?" in address or "/" in address else f"{address}?{SUMMARY}"
    with pytest.raises(ConfigError, match=why):
        open_store(address)
