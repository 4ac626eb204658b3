"""Output for terminals without Unicode."""

from __future__ import annotations

import json

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
    ended = run_process("plan", "-c", config, PYTHONIOENCODING=encoding)
    assert ended.code == 3, ended.output
    assert "1 early" in ended.out
    assert r"\u2264 " in ended.out
    assert "?" not in ended.output
    as_json = run_process("plan", "-c", world.config(world.job("Öl")), "--format", "json", PYTHONIOENCODING="ascii")
    assert [job["name"] for job in json.loads(as_json.out)["jobs"]] == ["Öl"]


@pytest.mark.parametrize("arguments", [("init", "--help"), ("plan", "--help")], ids=" ".join)
def test_help_is_shown_on_a_terminal_without_unicode(arguments: tuple[str, ...]) -> None:
    ended = run_process(*arguments, PYTHONIOENCODING="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "?" not in ended.out
