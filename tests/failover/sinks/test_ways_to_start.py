"""The table of docs/reference/sinks.md: each way to start on each sink, in files, ends as the page states."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Protocol

import pytest

from reconciler.failover.sinks.guard import Repeated
from reconciler.failover.sinks.judging import rows_of_checkpoint, rows_of_new_checkpoint
from tests import ROOT
from tests.failover.sinks.tables.delta_table import Delta
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.failover.sinks.world import Query, query

__all__ = ["query"]

PAGE = (ROOT / "docs" / "reference" / "sinks.md").read_text(encoding="utf-8")
TABLE = re.search(r"^\| the query starts on (.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)
assert TABLE is not None
HEAD, _, *ROWS = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in TABLE[0].strip().splitlines()]
SINKS = [name.replace("`", "") for name in HEAD[1:]]
CELLS = [(row[0], sink, outcome) for row in ROWS for sink, outcome in zip(SINKS, row[1:], strict=True)]


class Writer(Protocol):
    def __call__(self, numbers: range, *, empty: bool = False) -> None: ...


def writer(sink: str, query: Query) -> tuple[str, Writer]:
    """The sink's address, and what puts these batches of the query into it."""
    if sink == "files:":
        return f"files:{query.output}", query.put_out
    if sink == "iceberg:":
        pytest.importorskip("pyiceberg")
        iceberg = Iceberg(query.folder / "iceberg")

        def add(numbers: range, *, empty: bool = False) -> None:
            for number in numbers:
                iceberg.batch(number, rows=0 if empty else 5)

        return f"iceberg:{iceberg.folder}", add
    pytest.importorskip("deltalake")
    delta, app_id = Delta(query.folder / "delta"), "clicks" if "app_id" in sink else None

    def write(numbers: range, *, empty: bool = False) -> None:
        for number in numbers:
            delta.batch(number, 0 if empty else 5, app_id)

    return f"delta:{delta.folder}{'?app_id=clicks' if app_id else ''}", write


def killed(query: Query, write: Writer, *, taken: bool, proven: bool) -> str:
    query.begin(3)
    if taken:
        write(range(3, 4))
    if proven:
        query.keep_anchor(3, of_end=True)
    return query.sink().outcome


def after_its_copy(query: Query, write: Writer) -> str:
    query.run(range(3, 6), query.copied())
    write(range(3, 6))
    return query.sink().outcome


def way_back(query: Query, write: Writer) -> str:
    """The copy, read as the original of the next clone: batches 3 to 5 are its own."""
    copy = query.copied()
    query.run(range(3, 6), copy)
    write(range(3, 6))
    query.keep_anchor(5)
    return query.sink(copy.path).outcome


def not_tracked(query: Query, write: Writer) -> str:
    query.run(range(3, 5))
    write(range(3, 5))
    return query.sink().outcome


def after_its_copy_was_empty(query: Query, write: Writer) -> str:
    query.begin(3)
    write(range(3, 4), empty=True)
    return query.sink().outcome


def a_copy_that_is_late(query: Query, write: Writer) -> str:
    rmtree(query.files.path / "state")
    query.begin(3)
    copy = Path(query.clone().new_path)
    write(range(3, 4))
    return rows_of_checkpoint(query.sinks, str(copy))[0].outcome


WAYS: dict[str, Callable[[Query, Writer], str]] = {
    "its checkpoint, after a stop": lambda query, write: query.sink().outcome,
    "a copy, after a stop": lambda query, write: query.sink(Path(query.clone().new_path)).outcome,
    "a copy, after a kill in a batch that the sink does not have": lambda query, write: killed(
        query, write, taken=False, proven=False
    ),
    "a copy, after a kill in a batch that the sink has; its end is proven": lambda query, write: killed(
        query, write, taken=True, proven=True
    ),
    "a copy, after a kill in a batch that the sink has; its end is not proven": lambda query, write: killed(
        query, write, taken=True, proven=False
    ),
    "a copy, after batches that `track` has not seen": not_tracked,
    "a new checkpoint, on the same sink, at the offsets that the job has stored": lambda query, write: (
        rows_of_new_checkpoint(query.sinks)[0].outcome
    ),
    "a new checkpoint, on the same sink, at offsets before the last record that was processed": lambda query, write: (
        rows_of_new_checkpoint(query.sinks, Repeated(before=3))[0].outcome
    ),
    "a new checkpoint, on the same sink, with no stored offset": lambda query, write: (
        rows_of_new_checkpoint(query.sinks, placed=False)[0].outcome
    ),
    "the original, after its copy has run": after_its_copy,
    "the original, after its copy has repeated one batch, empty": after_its_copy_was_empty,
    "a copy that repeats its batch empty, after the original has run it": a_copy_that_is_late,
    "the way back: a copy of the copy": way_back,
}


def test_the_page_has_every_way() -> None:
    assert [row[0] for row in ROWS] == list(WAYS)
    assert SINKS == ["files:", "delta:", "iceberg:", "delta: with app_id"]


@pytest.mark.parametrize(("way", "sink", "outcome"), CELLS)
def test_each_way_to_start_ends_with_each_sink_as_the_table_says(
    query: Query, way: str, sink: str, outcome: str
) -> None:
    address, write = writer(sink, query)
    query.sinks = [address]
    if sink != "files:":
        write(range(3))
    assert WAYS[way](query, write) == outcome


def test_the_example_is_a_configuration(query: Query) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    query.sinks = [re.search(r'^sink = "(.*?)"', example, re.MULTILINE)[1]]  # type: ignore[index]
    assert json.dumps(query.config().jobs[0].sinks[0]) in example
