"""A catalog of real Iceberg tables in a folder: pyiceberg writes everything, and each commit a metadata file.

pyiceberg's own catalogs need a server or SQLAlchemy. Metadata files are named as Hadoop's catalog names them: the one
with the largest number is the table's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class FolderCatalog(NoopCatalog):
    """Tables below the folder in the property ``warehouse``: one folder each, called as the table."""

    def _folder(self, identifier: Any) -> Path:
        name = identifier if isinstance(identifier, str) else ".".join(identifier)
        return Path(self.properties["warehouse"]) / name

    def create_table(self, identifier: Any, schema: Any, *_: Any, **more: Any) -> Table:
        properties = {"write.metadata.compression-codec": "none", **more.get("properties", {})}
        spec = more.get("partition_spec", UNPARTITIONED_PARTITION_SPEC)
        location = str(self._folder(identifier))
        self._write(location, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location, properties), 1)
        return self.load_table(identifier)

    def load_table(self, identifier: Any) -> Table:
        folder = self._folder(identifier) / "metadata"
        files = sorted(folder.glob("v*.metadata.json"), key=_number) if folder.is_dir() else []
        if not files:
            raise NoSuchTableError(f"no table {identifier}")
        io = load_file_io({}, str(files[-1]))
        metadata = FromInputFile.table_metadata(io.new_input(str(files[-1])))
        name = tuple(identifier.split(".")) if isinstance(identifier, str) else identifier
        return Table(name, metadata, str(files[-1]), io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        now = self.load_table(table.name())
        for each in requirements:
            each.validate(now.metadata)
        metadata = update_table_metadata(now.metadata, updates)
        place = self._write(now.metadata.location, metadata, _number(Path(now.metadata_location)) + 1)
        return CommitTableResponse(metadata=metadata, metadata_location=place)

    @staticmethod
    def _write(location: str, metadata: TableMetadata, number: int) -> str:
        place = f"{location}/metadata/v{number}.metadata.json"
        ToOutputFile.table_metadata(metadata, load_file_io({}, place).new_output(place))
        return place


def _number(file: Path) -> int:
    return int(re.findall(r"\d+", file.name)[0])
