"""Offsets in PostgreSQL: in this product's own tables (``own``), or in an existing table of a job (``mapped``)."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.config.addresses import without_secrets
from reconciler.places.postgresql.address import parse
from reconciler.places.postgresql.connection import Database
from reconciler.places.postgresql.mapped import PostgresqlTable
from reconciler.places.postgresql.own import OwnStore
from reconciler.ports import OffsetStore


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``postgresql://…`` with ``table=`` for an existing table, without for this product's own."""
    parsed = parse(address)
    database = Database(parsed.libpq, parsed.place, timeout_s=parsed.timeout_s)
    shown = without_secrets(address)
    if parsed.columns is None:
        return OwnStore(database, parsed.schema, shown)
    return PostgresqlTable(database, parsed.schema, parsed.columns, shown)
