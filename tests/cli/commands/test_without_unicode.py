"""Output for terminals without Unicode."""

from __future__ import annotations

import json
import re

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import World, run_process, source_record

pytestmark = pytest.mark.system


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_the_result_all_the_same(world: World, encoding: str) -> None:
    world.deliver(60)
    record = source_record(5)
    world.save({0: StoredOffset(record.offset + 20, record.anchor)})  # a bound: it is shown with a sign for "at most"
    config = world.config()
    ended = run_process("plan", "-c", config, PYTHONIOENCODING=encoding, COLUMNS="200")
    assert ended.code == 3, ended.output
    assert "1 early" in ended.out
    told = run_process("plan", "-c", config, PYTHONIOENCODING="utf-8", COLUMNS="200")
    row, row_told = (
        next(each for each in one.out.splitlines() if f"{world.mirrored}-0 " in each) for one in (ended, told)
    )
    bound = re.search(r"≤ ([\d,]+)", row_told)
    assert bound is not None
    assert f"<={bound[1]}" in row
    assert len(row) == len(row_told)  # the columns stay where they are
    assert "?" not in ended.output
    as_json = run_process("plan", "-c", world.config(world.job("Öl")), "--format", "json", PYTHONIOENCODING="ascii")
    assert [job["name"] for job in json.loads(as_json.out)["jobs"]] == ["Öl"]


@pytest.mark.parametrize("arguments", [("init", "--help"), ("plan", "--help")], ids=" ".join)
def test_help_is_shown_on_a_terminal_without_unicode(arguments: tuple[str, ...]) -> None:
    ended = run_process(*arguments, PYTHONIOENCODING="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "..." in ended.out or "<=" in ended.out
