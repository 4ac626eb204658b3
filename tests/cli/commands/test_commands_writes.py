"""Exit code 7, and whether "nothing was written" is true when stores fail in the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reconciler.core.errors import Refused
from reconciler.ports import Change, OffsetStore, WriteResult
from reconciler.stores import registry
from tests.world import World, source_record

pytestmark = pytest.mark.system


class Faulty:
    """A store that does as it is told when it is written to or read; all else is the real one's."""

    def __init__(self, real: OffsetStore, faults: dict[str, Any]) -> None:
        self._real = real
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        kept = self._faults.pop("write", None)
        if kept is None:
            return self._real.write(group, changes, reason=reason, now_ms=now_ms)
        if kept:
            self._real.write(group, changes[:kept], reason=reason, now_ms=now_ms)
        done, rest = changes[:kept], changes[kept:]
        return WriteResult(tuple(change.key for change in done), tuple(change.key for change in rest))

    def check_writable(self, group: str) -> None:
        if "check_writable" in self._faults:
            raise self._faults.pop("check_writable")
        self._real.check_writable(group)


Break = Callable[..., None]


@pytest.fixture
def break_store(monkeypatch: pytest.MonkeyPatch) -> Break:
    """``break_store(address, write=rows that still arrive, check_writable=error)``, once."""
    faults: dict[str, dict[str, Any]] = {}
    real = registry.open_store

    def open_store(address: str, **settings: Any) -> Any:
        return Faulty(real(address, **settings), faults.get(address, {}))

    monkeypatch.setattr(registry, "open_store", open_store)

    def breaks(address: str, **told: Any) -> None:
        faults[address] = told

    return breaks


@pytest.fixture
def planned(world: World) -> World:
    world.deliver(12, 12)
    world.processed(5, 6)
    world.plan(world.config())
    return world


def finishes(world: World) -> None:
    """A second apply ends what the first began, and the first way back stays the way back."""
    config = world.config()
    right = {0: world.offset_of(5) + 1, 1: world.offset_of(6, 1) + 1}
    again = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert again.code == 0, again.output
    assert world.offsets() == right
    assert world.run("check", "-c", config).code == 0
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert world.offsets() == {}


def test_a_partial_write_exits_with_7_and_a_second_apply_completes_it(planned: World, break_store: Break) -> None:
    break_store(planned.address, write=1)
    ended = planned.run("apply", planned.plan_file, "-c", planned.config(), "--yes")
    assert ended.code == 7
    assert "1 of its 2 rows were written. Run this again." in ended.err
    assert len(planned.offsets()) == 1
    finishes(planned)


def test_a_store_that_changes_right_before_the_write_is_left_as_it_is(planned: World, break_store: Break) -> None:
    before = planned.rows()
    break_store(planned.address, write=0)
    ended = planned.run("apply", planned.plan_file, "-c", planned.config(), "--yes")
    assert ended.code == 5
    assert "changed while it was being written" in ended.err
    assert "Nothing was written." in ended.err
    assert planned.rows() == before
    finishes(planned)


# ---------------------------------------------------------------- several jobs


@pytest.fixture
def two_jobs(world: World) -> tuple[World, str, Any]:
    """Job ``first`` and job ``second``, each with a store of its own; a plan for both. The second store's address."""
    other = f"sqlite:///{world.folder / 'other.db'}"
    world.deliver(12)
    world.processed(5)
    world.save({0: source_record(7).stored}, address=other)
    config = world.config(world.job("first"), world.job("second", store=other))
    world.plan(config)
    return world, other, config


def test_a_second_store_that_refuses_is_found_out_before_the_first_is_written(two_jobs, break_store: Break) -> None:
    world, other, config = two_jobs
    before = world.rows()
    break_store(other, check_writable=Refused("The group has live members."))
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 6
    assert world.rows() == before


def test_a_rollback_looks_at_all_stores_before_it_writes_to_one(two_jobs, break_store: Break) -> None:
    world, other, config = two_jobs
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    before = world.rows()
    break_store(other, check_writable=Refused("The group has live members."))
    ended = world.run("rollback", world.plan_file, "-c", config, "--yes")
    assert ended.code == 6
    assert world.rows() == before
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert world.offsets() == {}


def test_an_import_that_is_refused_for_one_job_writes_for_none(world: World) -> None:
    """5 says that nothing was written."""
    other, fresh = (f"sqlite:///{world.folder / name}" for name in ("other.db", "fresh.db"))
    second = world.job("second", f"{world.topic}-2", store=other)
    world.processed(5)
    world.save({0: source_record(7).stored}, topic=f"{world.topic}-2", address=other)
    lines = world.folder / "lines.jsonl"
    exported = world.run("anchors", "export", "-c", world.config(world.job("first"), second))
    assert exported.out.count("\n") == 2
    lines.write_text(exported.out)
    world.save({0: source_record(1).stored}, topic=f"{world.topic}-2", address=other)
    world.save({}, address=fresh)
    ended = world.run("anchors", "import", lines, "-c", world.config(world.job("first", store=fresh), second))
    assert ended.code == 5
    assert "Nothing was written. Add --replace to overwrite it." in ended.err
    assert world.rows(fresh) == []
