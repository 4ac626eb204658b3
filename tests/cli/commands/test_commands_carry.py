"""The path of an export, and output for terminals without Unicode."""

from __future__ import annotations

import json
import re

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import BASE, World, run_process, source_record

pytestmark = pytest.mark.system


@pytest.fixture
def full(world: World) -> World:
    """A store with an anchored row, a bare one and a sentinel; none of it needs a cluster."""
    world.save({0: source_record(5).stored, 1: StoredOffset(BASE + 9, None, 1_700_000_000_000), 2: StoredOffset(-1)})
    return world


@pytest.mark.parametrize("order", [("-c", "{c}", "{p}"), ("{p}", "-c", "{c}"), ("-c", "{c}", "--job", "clicks", "{p}")])
def test_the_path_may_stand_where_help_shows_it(full: World, order: tuple[str, ...]) -> None:
    path, config = full.folder / "anchors.jsonl", full.config()
    ended = full.run("anchors", "export", *(word.format(c=config, p=path) for word in order))
    assert ended.code == 0, ended.err
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_the_result_all_the_same(world: World, encoding: str) -> None:
    world.deliver(60)
    record = source_record(5)
    world.save({0: StoredOffset(record.offset + 20, record.anchor)})  # a bound: it is shown with a sign for "at most"
    config = world.config()
    ended = run_process("check", "-c", config, PYTHONIOENCODING=encoding, COLUMNS="200")
    assert ended.code == 3, ended.output
    assert "1 bounded" in ended.out
    told = run_process("check", "-c", config, PYTHONIOENCODING="utf-8", COLUMNS="200")
    row, row_told = (
        next(each for each in one.out.splitlines() if f"{world.mirrored}-0 " in each) for one in (ended, told)
    )
    bound = re.search(r"≤ ([\d,]+)", row_told)
    assert bound is not None
    assert f"<={bound[1]}" in row
    assert len(row) == len(row_told)  # the columns stay where they are
    assert "?" not in ended.output


@pytest.mark.parametrize("arguments", [("init", "--help"), ("check", "--explain")], ids=" ".join)
def test_help_is_shown_on_a_terminal_without_unicode(arguments: tuple[str, ...]) -> None:
    ended = run_process(*arguments, PYTHONIOENCODING="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "..." in ended.out or "<=" in ended.out


def test_json_for_a_terminal_without_unicode_holds_the_same_values(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    config = world.config(world.job("Öl"))
    ended = run_process("check", "-c", config, "--format", "json", PYTHONIOENCODING="ascii")
    assert [job["name"] for job in json.loads(ended.out)["jobs"]] == ["Öl"]
