"""Where a sink's rows are: the format of a file sink's files, and the files that a table lists now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Refused
from reconciler.failover.sinks.files import FileSink
from reconciler.failover.sinks.tables import DeltaSink, IcebergSink
from tests.failover.sinks.tables.iceberg_table import Iceberg


@pytest.mark.parametrize(
    ("names", "formats"),
    [
        ([], set()),
        (["part-00000-1f2e.c000.snappy.parquet"], {"parquet"}),
        (["part-00000-1f2e.c000.json.gz", "part-1.c000.json"], {"json"}),
        (["part-00000-1f2e.c000.txt"], {"text"}),
        (["day=2026.01.31/part-0.c000.csv", "part-0.orc"], {"csv", "orc"}),
    ],
)
def test_the_file_sinks_log_names_its_files(names: list[str], formats: set[str], tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for number, name in enumerate(names):
        entry = {"path": f"file://{tmp_path}/{name}", "size": 9, "isDir": False, "action": "add"}
        (log / str(number)).write_text(f"v1\n{json.dumps(entry)}")
    assert FileSink(str(tmp_path)).formats() == formats


# ---------------------------------------------------------------- Delta


def test_a_delta_table_lists_the_files_that_it_has_now(tmp_path: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    assert DeltaSink(str(tmp_path / "none"), None).data_files() == ()
    for number in range(2):
        deltalake.write_deltalake(tmp_path / "t", arrow.table({"id": [number]}), mode="append")
    before = DeltaSink(str(tmp_path / "t"), None).data_files()
    deltalake.DeltaTable(tmp_path / "t").delete("id = 0")
    after = DeltaSink(str(tmp_path / "t"), None).data_files()
    assert len(before) == 2
    assert len(after) == 1
    assert set(after) < set(before), "the deleted row's file is in the folder, and not in the table"


@pytest.mark.parametrize(
    ("configuration", "features", "why"),
    [
        ({"delta.enableDeletionVectors": "true"}, ["deletionVectors"], "may have deleted rows"),
        ({"delta.columnMapping.mode": "name"}, ["columnMapping"], "has renamed columns"),
    ],
)
def test_a_delta_table_whose_files_do_not_show_its_rows_is_refused(
    configuration: dict[str, str], features: list[str], why: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    field: dict[str, Any] = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    if features == ["columnMapping"]:
        field["metadata"] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
        configuration["delta.columnMapping.maxColumnId"] = "1"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    schema = json.dumps({"type": "struct", "fields": [field]})
    metadata = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    metadata |= {"partitionColumns": [], "configuration": configuration, "createdTime": 1}
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text(f"{json.dumps({'protocol': protocol})}\n{json.dumps({'metaData': metadata})}\n")
    with pytest.raises(Refused, match=why):
        DeltaSink(str(tmp_path / "t"), None).data_files()


# ---------------------------------------------------------------- Iceberg


class IcebergFiles(Iceberg):
    """The same with manifests, which name data files and files of deleted rows."""

    def add_files(self, *names: str, deleted: str | None = None) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.manifest import ManifestContent, write_manifest, write_manifest_list
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
        from pyiceberg.schema import Schema
        from pyiceberg.types import IntegerType, NestedField

        self.add({})
        number, io = len(self.snapshots), PyArrowFileIO()
        spec, schema = UNPARTITIONED_PARTITION_SPEC, Schema(NestedField(1, "id", IntegerType(), required=False))
        manifests = []
        for content, files in ((ManifestContent.DATA, names), (ManifestContent.DELETES, (deleted,) if deleted else ())):
            if not files:
                continue
            output = io.new_output(f"{self.folder}/{content.name}-{number}.avro")
            with write_manifest(2, spec, schema, output, number, "null") as writer:
                writer.content = lambda content=content: content  # type: ignore[method-assign]
                for name in files:
                    writer.add_entry(entry(name, content, number))
            manifests.append(writer.to_manifest_file())
        output = io.new_output(f"{self.folder}/{number}.avro")
        with write_manifest_list(2, output, number, None, number, "null") as listed:
            listed.add_manifests(manifests)


def entry(name: str, content: Any, snapshot: int) -> Any:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry
    from pyiceberg.manifest import ManifestEntryStatus as Status
    from pyiceberg.typedef import Record

    is_data = content is ManifestContent.DATA
    file = DataFile.from_args(
        content=DataFileContent.DATA if is_data else DataFileContent.POSITION_DELETES,
        file_path=name,
        file_format=FileFormat.AVRO if name.endswith(".avro") else FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=9,
    )
    return ManifestEntry.from_args(status=Status.ADDED, snapshot_id=snapshot, data_file=file)


def test_an_iceberg_table_lists_its_files(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    assert IcebergSink(f"{tmp_path}/none").data_files() == ()
    table = IcebergFiles(tmp_path / "t")
    table.add_files("/data/a.parquet", "/data/b.parquet")
    assert sorted(IcebergSink(f"{tmp_path}/t").data_files()) == ["/data/a.parquet", "/data/b.parquet"]


@pytest.mark.parametrize(
    ("files", "deleted", "why"),
    [(["/a.parquet", "/b.avro"], None, "not Parquet"), (["/a.parquet"], "/d.parquet", "has deleted rows")],
)
def test_an_iceberg_table_whose_files_do_not_show_its_rows_is_refused(
    files: list[str], deleted: str | None, why: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyiceberg")
    IcebergFiles(tmp_path / "t").add_files(*files, deleted=deleted)
    with pytest.raises(Refused, match=why):
        IcebergSink(f"{tmp_path}/t").data_files()
