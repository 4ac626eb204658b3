"""``apply`` and ``rollback`` with ``--job``: what stops one job of a plan does not keep the others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import Away, ExitCode, Refused
from reconciler.places.sqlite.store import SqliteStore
from tests.golden.corpus import HEAD, deliver, job, stored
from tests.golden.world import World
from tests.starting import with_state

JOBS = ("clicks", "orders", "views")
APPLY = ("apply", "p.json", "-c", "reconciler.toml", "--yes")


def back_of(*jobs: str) -> tuple[str, ...]:
    return ("rollback", "-c", "reconciler.toml", "--yes", *(word for job in jobs for word in ("--job", job)))


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three jobs with a store each, and the plan that corrects them."""
    world = World(tmp_path, monkeypatch)
    for name in JOBS:
        deliver(world, f"a.{name}", range(10))
        world.store(f"sqlite:///{name}.db", name, {(name, 0): stored(3, topic=name)})
    world.file("reconciler.toml", HEAD + "".join(job(name, [name], f"sqlite:///{name}.db") for name in JOBS))
    with_state(world.folder / "reconciler.toml")
    assert world.run("plan", "-c", "reconciler.toml", "-o", "p.json").code == 0
    return world


def in_place(world: World) -> list[str]:
    return [name for name in JOBS if world.run("plan", "-c", "reconciler.toml", "--to", "b", "--job", name).code == 0]


def away(world: World, name: str) -> None:
    (world.folder / f"{name}.db").rename(world.folder / "away.db")


def went_on(world: World, name: str) -> None:
    world.store(f"sqlite:///{name}.db", name, {(name, 0): stored(5, topic=name)})


@pytest.mark.parametrize(("stop", "code"), [(away, ExitCode.UNREACHABLE), (went_on, ExitCode.CHANGED)])
def test_the_others_are_applied_by_name(planned: World, stop, code: ExitCode) -> None:
    stop(planned, "orders")
    whole = planned.run(*APPLY)
    assert (whole.code, whole.out) == (code, "")
    assert "The plan's other jobs can be applied without this one: name them with --job." in whole.err
    some = planned.run(*APPLY, "--job", "clicks", "--job", "views")
    assert some.code == 0
    assert "2 offsets written and read back." in some.out
    assert "Left alone: orders." in some.out
    assert in_place(planned) == ["clicks", "views"]


def test_the_rest_is_applied_later_and_a_rollback_puts_all_back(planned: World) -> None:
    away(planned, "orders")
    assert planned.run(*APPLY, "--job", "clicks").code == 0
    (planned.folder / "away.db").rename(planned.folder / "orders.db")
    rest = planned.run(*APPLY)
    assert (rest.code, "2 offsets written and read back." in rest.out) == (0, True)
    assert in_place(planned) == list(JOBS)
    assert planned.run(*back_of(*JOBS)).code == 0
    assert in_place(planned) == []


def test_a_job_that_went_on_at_the_destination_does_not_keep_the_others_from_going_back(planned: World) -> None:
    assert planned.run(*APPLY).code == 0
    planned.store("sqlite:///orders.db", "orders", {("a.orders", 0): stored(7, base=0, topic="a.orders")})
    ended = planned.run(*back_of(*JOBS))
    assert ended.code == ExitCode.NEEDS_PERSON
    assert 'orders: not rolled back. Job "orders" has continued' in ended.out
    assert in_place(planned) == ["orders"]


def test_a_job_that_the_plan_does_not_hold_is_named_with_those_it_holds(planned: World) -> None:
    ended = planned.run(*APPLY, "--job", "clikcs")
    assert (ended.code, ended.err) == (
        ExitCode.USAGE,
        'The plan has no job "clikcs". It has: clicks, orders, views.\n',
    )
    assert in_place(planned) == []


def test_a_destination_that_does_not_answer_is_no_single_jobs_fault(
    planned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise Away("kafka-b:9092 does not answer.")

    monkeypatch.setattr(planned.destination, "read", silent)
    config = (planned.folder / "reconciler.toml").read_text()
    planned.file("reconciler.toml", f'{config}[search]\ndeadline = "1s"\n')
    ended = planned.run(*APPLY)
    assert (ended.code, ended.err) == (ExitCode.UNREACHABLE, "kafka-b:9092 does not answer.\n")


def views_refuse(patch: pytest.MonkeyPatch) -> None:
    def check_writable(self: SqliteStore, group: str) -> None:
        if group == "views":
            raise Refused("The group has live members.")

    patch.setattr(SqliteStore, "check_writable", check_writable)


def test_a_store_that_refuses_is_found_out_before_another_is_written(
    planned: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 6 says that nothing was written."""
    with monkeypatch.context() as patch:
        views_refuse(patch)
        assert planned.run(*APPLY).code == ExitCode.UNREACHABLE
    assert in_place(planned) == []
    assert planned.run(*APPLY).code == 0
    assert in_place(planned) == list(JOBS)


def test_an_import_that_is_refused_for_one_job_writes_for_none(planned: World) -> None:
    assert planned.run("anchors", "export", "-c", "reconciler.toml", "rows.jsonl").code == 0
    (planned.folder / "clicks.db").unlink()
    went_on(planned, "views")
    ended = planned.run("anchors", "import", "-c", "reconciler.toml", "rows.jsonl")
    assert (ended.code, "Nothing was written. Add --replace" in ended.err) == (ExitCode.CHANGED, True), ended.err
    assert '"group"' not in planned.run("anchors", "export", "-c", "reconciler.toml", "--job", "clicks").out
