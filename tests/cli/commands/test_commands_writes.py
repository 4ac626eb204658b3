"""Rows that change while ``apply`` writes them: what is said to be written, and that a second apply ends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.places.sqlite.store import SqliteStore
from reconciler.ports import Change, WriteResult
from tests.golden.corpus import Estate
from tests.golden.world import World

CHOSEN = ("-c", "reconciler.toml")
APPLY = ("apply", "p.json", *CHOSEN, "--yes")


@pytest.mark.parametrize(
    ("kept", "code", "said"),
    [(1, 7, "Not known whether written"), (0, 5, "changed each of 5 times they were written")],
)
def test_a_second_apply_completes_one_whose_rows_changed_right_before_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, code: int, said: str
) -> None:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    world.with_state()
    assert world.run("plan", *CHOSEN, "--job", "clicks", "-o", "p.json").code == 0
    before, write = world.tables("offsets.db"), SqliteStore.write

    def overtaken(self: SqliteStore, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
        if kept:
            write(self, group, changes[:kept], **more)
        keys = tuple(change.key for change in changes)
        return WriteResult(keys[:kept], keys[kept:])

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "write", overtaken)
        ended = world.run(*APPLY)
    assert (ended.code, said in ended.err) == (code, True), ended.err
    assert (world.tables("offsets.db") == before) is (kept == 0)
    assert world.run(*APPLY).code == 0
    assert world.run("plan", *CHOSEN, "--to", "b", "--job", "clicks").code == 0
