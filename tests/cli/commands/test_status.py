"""``status``: where each job lives, and what its hook does next. It contacts no cluster, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from reconciler.state import store
from reconciler.state.store import open_state
from tests.cli.commands.moving import Moving, moving
from tests.golden.world import DESTINATION, SOURCE

__all__ = ["moving"]

Reach = Callable[[Moving, pytest.MonkeyPatch], object]


def _moved(moving: Moving, to: str = "b") -> None:
    assert moving.run(f"move --to {to} --yes --job exact").code == 0


def _there(moving: Moving, _: pytest.MonkeyPatch) -> None:
    _moved(moving)
    moving.start()


def _back(moving: Moving, patch: pytest.MonkeyPatch) -> None:
    _there(moving, patch)
    _moved(moving, "a")


def _home_again(moving: Moving, patch: pytest.MonkeyPatch) -> None:
    _back(moving, patch)
    moving.start()


def _cut_off(moving: Moving, patch: pytest.MonkeyPatch) -> None:
    _moved(moving)
    moving.cut_off(patch)


ALL = " ".join(f"--job {name}" for name in ("exact", "early", "behind", "bare", "broken"))
PHASES: dict[str, tuple[Reach, str, str, str]] = {
    "at home": (lambda moving, _: moving.at_home(), "exact a 1", "on a", SOURCE),
    "moving": (lambda moving, _: _moved(moving), "exact a 1", "moves to b", DESTINATION),
    "writing": (_cut_off, "exact a 1", "finishes the move to b", DESTINATION),
    "moved": (_there, "exact b 2", "on b", DESTINATION),
    "on its way back": (_back, "exact b 2", "moves to a", SOURCE),
    "home again": (_home_again, "exact a 3", "on a", SOURCE),
}


@pytest.mark.parametrize("phase", PHASES)
def test_the_hook_does_next_what_status_says(moving: Moving, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    reach, lives, then, where = PHASES[phase]
    reach(moving, monkeypatch)
    shown = moving.status()
    assert (shown.startswith(f"{lives} 2027-01-15T"), shown.endswith(f" by ada@ops-1 {then}")) == (True, True), shown
    assert moving.start().bootstrap_servers == where


def test_of_a_job_without_a_location_it_says_what_that_depends_on(moving: Moving) -> None:
    assert moving.status() == "exact not recorded - - on a, if its place holds no offsets yet"
    assert moving.hook().code == 4, "its place holds some"


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "move --to b --yes",
        "move --cancel",
        "rollback --yes --job exact --job bare --job behind --job early --job broken",
    ],
)
def test_five_jobs_open_the_state_store_less_often_than_five_times(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(store, "open_state", lambda address: opened.append(address) or open_state(address))
    moving.run(command)
    assert 0 < len(opened) < 5, "a server allows some hundred connections, and an estate has more jobs"


def test_it_names_the_folder_in_which_hooks_keep_plans(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_PLANS", "/srv/plans")
    assert moving.run("status").out.endswith("keep their plans on this machine in /srv/plans.\n")


def test_the_history_is_who_moved_it_when_and_by_which_plan(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.at_home()
    _back(moving, monkeypatch)
    rows = [line.split() for line in moving.run("status --history --job exact").out.splitlines()[1:]]
    found = [(row[2], " ".join(row[3:-4]), row[-4:-2]) for row in rows]
    assert [(state, cluster) for state, cluster, _ in found] == [
        ("lives", "a"),
        ("moving", "a to b"),
        ("writing", "a to b"),
        ("lives", "b"),
        ("moving", "b to a"),
    ]
    assert [(stay, plan) for _, _, (stay, plan) in found] == [
        ("1", "-"),
        ("1", "-"),
        ("1", "1"),
        ("2", "1"),
        ("2", "1"),
    ]
    assert [row[-2:] for row in rows] == [["ada@ops-1", why] for why in ("move", "move", "hook", "hook", "move")]

    whole = json.loads(moving.run("status --format json").out)
    assert list(whole) == ["exact", "early", "behind", "bare", "broken"]
    assert [entry["state"] for entry in whole["exact"]] == [state for state, _, _ in found]
    assert {entry["format"] for entry in whole["exact"]} == {"reconciler.location/1"}
    assert whole["early"] == []


def test_no_cluster_and_no_store_of_offsets_is_asked(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.at_home()

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("a cluster or a store was asked")

    for name in ("reconciler.kafka.reading_process.open_log", "reconciler.places.registry.open_store"):
        monkeypatch.setattr(name, asked)
    before = moving.world.files()
    for words in ("", "--history", "--format json"):
        assert moving.run(f"status {words}").code == 0
    assert moving.world.files() == before


@pytest.mark.parametrize(("store", "code"), [("files:elsewhere", 6), ("sqlite:////nowhere/state.db", 6), (None, 2)])
def test_a_state_store_that_is_not_there_is_no_empty_one(moving: Moving, store: str | None, code: int) -> None:
    """A share that is not mounted would say of every job that it was never moved."""
    config = (moving.world.folder / "reconciler.toml").read_text()
    old = 'store = "files:state"'
    config = config.replace(f"[state]\n{old}\n", "") if store is None else config.replace(old, f'store = "{store}"')
    moving.world.file("reconciler.toml", config)
    for command in ("status", "move --to b --yes", "move --cancel", "hook --job exact --plans plans"):
        ended = moving.run(command)
        assert (ended.code, "reconciler init -c" in ended.err) == (code, True), ended.err
