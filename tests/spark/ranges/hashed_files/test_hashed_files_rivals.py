"""Two runs of one group that write the same batch: its rows count once, whichever run is killed, and wherever.

Spark's frames are lists of rows by file here; the folder is a local one, with the steps of ``hadoop.Directory``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.core.errors import Changed, OutcomeUnknown, Unreachable
from reconciler.spark.ranges import output
from reconciler.spark.ranges.output import DONE, STAGED, CatalogueEntry
from tests.spark.ranges.hashed_files.world import (
    BATCH,
    CHANGES,
    ROWS,
    Killed,
    World,
    frame,
)


def once(act: Callable[[], None], when: str) -> Callable[[str, str], None]:
    done: list[str] = []

    def between(step: str, name: str) -> None:
        if step == when and not done:
            done.append(name)
            act()

    return between


SPLITS = [[[2, 3], [0, 1]], [ROWS], [[0, 1], [2, 3]], [[3], [1], [0], [2]]]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("step", ["writes", "removed", "moved"])
def test_a_rival_that_is_still_writing_changes_no_file_that_counts(
    world: World, step: str, is_killed: bool, split: list[list[int]]
) -> None:
    first, rival = world.sink(), world.sink()

    def meanwhile() -> None:
        first.stage(frame([0, 1], [2, 3]), BATCH)
        world.finish(first)
        if is_killed:
            rival._opened().is_killed = True  # type: ignore[attr-defined]
            raise Killed

    if step != "writes":
        rival._opened().between = once(meanwhile, step)  # type: ignore[attr-defined]
    with pytest.raises((Killed, Changed, Unreachable, FileNotFoundError)):  # the last as Spark's own error
        rival.stage(frame(*split, writing=meanwhile if step == "writes" else lambda: None), BATCH)
    counted = output.files(str(world.path))
    assert sorted(row for name in counted for row in json.loads(Path(name).read_text())) == ROWS
    if not is_killed:
        assert world.settled() == ROWS


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("first_saves", [False, True])
def test_of_two_runs_that_have_written_all_their_files_the_first_ones_count(
    world: World, split: list[list[int]], first_saves: bool
) -> None:
    first, rival = world.sink(), world.sink()
    rival._opened().between = once(lambda: first.stage(frame([0, 1], [2, 3]), BATCH), "removed")  # type: ignore[attr-defined]
    rival.stage(frame(*split), BATCH)
    world.finish(first if first_saves else rival)
    with pytest.raises(Changed):
        world.finish(rival if first_saves else first)
    assert world.settled() == ROWS


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("step", ["moved", "staged", "saved"])
def test_a_batch_whose_run_was_killed_counts_once_after_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, split: list[list[int]]
) -> None:
    killed = world.sink()

    def end() -> None:
        killed._opened().is_killed = True  # type: ignore[attr-defined]
        raise Killed

    if step == "moved":
        killed._opened().between = once(end, "moved")  # type: ignore[attr-defined]
    if step == "staged":
        monkeypatch.setattr(killed, "commit", lambda *_: end())
    if step == "saved":
        monkeypatch.setattr(killed, "_finish", lambda entry: end())

    def runs() -> None:
        killed.stage(frame(*split), BATCH)
        world.finish(killed)

    with pytest.raises(Killed):
        runs()
    assert (f"{BATCH.name}{STAGED}" in world.left()) == (step != "moved")
    assert world.settled() == ROWS


def test_files_that_are_staged_are_not_written_again(world: World) -> None:
    world.sink().stage(frame([0, 1], [2, 3]), BATCH)
    again = world.sink()
    again.stage(frame(ROWS, writing=lambda: pytest.fail("Spark writes them again")), BATCH)
    world.finish(again)
    assert world.settled() == ROWS


def test_a_run_that_has_staged_a_batch_which_another_has_undone_leaves_nothing(world: World) -> None:
    late, other = world.sink(), world.sink()
    entry = other._catalogue.load(f"{BATCH.name}.begun.json")
    assert entry is not None
    late._opened().between = once(lambda: other._undo(entry), "moved")  # type: ignore[attr-defined]
    with pytest.raises((Changed, Unreachable)):
        late.stage(frame([0, 1], [2, 3]), BATCH)
    assert (list(world.path.glob("*.parquet")), world.left()) == ([], set())


def test_files_that_may_be_staged_are_kept_though_the_catalogue_did_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.sink()
    put = sink._catalogue.put

    def unanswered(name: str, entry: CatalogueEntry) -> bool:
        put(name, entry)
        raise OutcomeUnknown("It did not answer.")

    with monkeypatch.context() as broken:
        broken.setattr(sink._catalogue, "put", unanswered)
        with pytest.raises(OutcomeUnknown):
            sink.stage(frame([0, 1], [2, 3]), BATCH)
    assert world.settled() == ROWS


def test_a_batch_of_an_earlier_version_whose_offsets_were_saved_is_finished_by_its_listing(world: World) -> None:
    world.sink()
    for number, rows in enumerate(([0, 1], [2, 3])):
        Path(world.path, f"{BATCH.name}-{number:05d}.parquet").write_text(json.dumps(rows))
    world.save()
    assert world.settled() == ROWS


def test_installations_that_do_not_know_it_do_not_count_what_is_staged(world: World) -> None:
    world.sink().stage(frame(ROWS), BATCH)
    assert f"{BATCH.name}{STAGED}" in world.left()
    assert not STAGED.endswith(DONE)
    assert output.files(str(world.path)) == []


def test_a_batch_that_was_set_back_keeps_its_files_while_the_catalogue_has_it(world: World) -> None:
    first = world.sink()
    first.stage(frame([0, 1], [2, 3]), BATCH)
    world.finish(first)
    again = world.sink()
    again.stage(frame(ROWS), BATCH)
    again.commit(BATCH, CHANGES, lambda: None)
    assert world.settled() == ROWS
