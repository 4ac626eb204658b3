"""A table in which a job keeps its batches, as a sink that tells which it took last."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.failover.sinks.guard import Taken
from reconciler.failover.sinks.judging import open_sink

pytestmark = pytest.mark.system


def with_parameter(address: str, parameters: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}{parameters}"


def test_the_largest_batch_of_a_name_is_the_last(database: str, psql: Any) -> None:
    psql.execute('CREATE SCHEMA sink; CREATE TABLE sink.batches (app_id text, batch_id bigint, "of" text, "N%o" int)')
    psql.execute("INSERT INTO sink.batches VALUES ('q', 3, 'x', 1), ('q', 12, 'x', 2), ('other', 40, 'y', 9)")
    sink = open_sink(with_parameter(database, "table=sink.batches"))
    assert [sink.last_taken(name) for name in ("q", "other", "none")] == [Taken(12), Taken(40), Taken(None)]
    own = open_sink(with_parameter(database, "table=sink.batches&app_id=x&app_column=of&batch_column=N%25o"))
    assert (own.app_id, own.last_taken("x")) == ("x", Taken(2))
    assert "table=sink.batches" in own.shown


def test_a_table_that_is_not_there_has_not_taken_nothing(database: str) -> None:
    with pytest.raises((Refused, Unreachable)):
        open_sink(with_parameter(database, "table=batches")).last_taken("q")
    with pytest.raises(ConfigError, match="names no table"):
        open_sink(database)
