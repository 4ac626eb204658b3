"""Between a plan and its writing hours may pass: all that it rests on is read again, in place or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from reconciler.cli import context
from reconciler.cli.commands.failover import apply as command
from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, Malformed, StoredOffset, fingerprint
from reconciler.core.errors import Changed, ConfigError, ExitCode, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import Outside
from reconciler.failover.writing import snapshots
from reconciler.failover.writing.apply import confirm, prepare, put, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.fileio import LARGEST_FILE
from reconciler.formats import snapshot
from reconciler.formats.snapshot import path_for
from reconciler.kafka.memory import MemoryPartition
from reconciler.ports import Change, Row, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from tests.in_memory import BASE, NOW, Memory, anchor, found, memory, on_disk, stored

__all__ = ["memory"]
PLACE = TopicPartition("a.events", 0)


def refill(memory: Memory, *stretches: range) -> None:
    """The log is cut and filled again, as after an unclean election: the topic keeps its id."""
    memory.log.partitions[PLACE] = MemoryPartition()
    for stretch in stretches:
        memory.deliver(stretch)


def planned(memory: Memory, *expected: object) -> Checked:
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == expected
    return checked


# ---------------------------------------------------------------- rows to be written


@pytest.mark.parametrize("row", [stored(5), StoredOffset(BASE + 9, anchor(5))], ids=["moved", "bounded"])
def test_a_log_that_holds_another_record_there_now_is_written_nothing(memory: Memory, row: StoredOffset) -> None:
    memory.deliver(range(10))
    memory.save({0: row})
    checked = memory.check()
    assert checked.plan.jobs[0].partitions[0].resume_offset == 6
    refill(memory, range(2), range(7, 20))  # unprocessed ones lie before 6 now
    with pytest.raises(Changed, match="another record is at 5 now"):
        prepare(checked.plan, memory.config(), memory.outside)


# ---------------------------------------------------------------- rows in place


@pytest.fixture
def in_place(memory: Memory) -> Checked:
    """A plan that finds the job's offset right where the job will look."""
    memory.deliver(range(20))
    memory.save({0: memory.own(16)}, topic="a.events")
    memory.moved = True
    return planned(memory, Verdict.EXACT, 16)


def test_an_offset_in_place_that_the_log_holds_still_needs_nothing(memory: Memory, in_place: Checked) -> None:
    memory.log.partition("a.events", 0).delete_before(16)  # the anchor's record is gone, and nothing unread is
    (change,) = prepare(in_place.plan, memory.config(), memory.outside)
    assert change.intended == ()


def test_compaction_may_remove_the_record_before_an_offset_in_place(memory: Memory, in_place: Checked) -> None:
    memory.log.partition("a.events", 0).compact([15])
    (change,) = prepare(in_place.plan, memory.config(), memory.outside)
    assert change.intended == ()


def test_an_offset_whose_anchor_has_minus_one_for_no_time_is_written_and_in_place(memory: Memory) -> None:
    """Jobs have recorded Kafka's -1 as the time of a record without one."""
    memory.log.partition("a.events", 0).append(None, b"k", b"v")
    undated = Anchor(BASE, -1, None, fingerprint(b"k", b"v"), "a", "a/events")
    memory.save({0: StoredOffset(BASE + 1, undated)})
    memory.apply()
    memory.save({0: StoredOffset(1, replace(undated, offset=0, cluster_id="b", topic_id="b/a.events"))}, "a.events")
    checked = planned(memory, Verdict.EXACT, 1)
    (change,) = prepare(checked.plan, memory.config(), memory.outside)
    assert change.intended == ()


def test_an_offset_in_place_that_retention_has_passed_is_not_called_right(memory: Memory, in_place: Checked) -> None:
    memory.log.partition("a.events", 0).delete_before(18)
    with pytest.raises(Changed, match="does not hold the planned offset 16"):
        prepare(in_place.plan, memory.config(), memory.outside)


def test_an_offset_in_place_behind_another_record_is_not_called_right(memory: Memory, in_place: Checked) -> None:
    refill(memory, range(10, 40))
    with pytest.raises(Changed, match="another record is at 15 now"):
        prepare(in_place.plan, memory.config(), memory.outside)


def test_nor_is_one_that_this_plan_has_put_there(memory: Memory) -> None:
    memory.deliver(range(20))
    memory.save({0: stored(15)})
    checked, config = planned(memory, Verdict.EXACT, 16), memory.config()
    path = on_disk(checked.plan, memory.folder / "p.json")
    write(prepare(checked.plan, config, memory.outside), checked.plan, path, memory.outside)
    refill(memory, range(10, 40))
    with pytest.raises(Changed, match="another record is at 15 now"):
        prepare(checked.plan, config, memory.outside)


# ---------------------------------------------------------------- after the prompt


def recreate(memory: Memory) -> None:
    memory.log.delete("a.events")
    memory.log.create("a.events", 1, "another")
    memory.deliver(range(20))


def advance(memory: Memory) -> None:
    memory.save({0: stored(9)})


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (recreate, "was deleted or recreated"),
        (lambda memory: memory.log.partition("a.events", 0).delete_before(15), "does not hold the planned offset"),
        (advance, "has moved on since the plan"),
        (None, "The plan expired"),
    ],
    ids=["recreated", "retention", "the job went on", "expired"],
)
def test_the_answer_to_the_prompt_may_come_too_late(
    meanwhile: Callable[[Memory], object] | None,
    reason: str,
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory.deliver(range(20))
    memory.save({0: stored(5)})
    path = memory.folder / "p.json"
    path.write_text(memory.check().plan.to_text())
    before, later = memory.rows(), [NOW]

    def answer(question: str, *, yes: bool) -> None:
        if meanwhile is None:
            later.append(NOW + 30 * 86_400_000)
        else:
            meanwhile(memory)
            before[:] = memory.rows()

    monkeypatch.setattr(command, "confirm", answer)
    outside = replace(memory.outside, now_ms=lambda: later[-1])
    monkeypatch.setattr(context, "outside", lambda config: _opened(outside))
    code = main(["apply", str(path), "-c", str(memory.folder / "reconciler.toml")])
    assert (code, reason in capsys.readouterr().err) == (ExitCode.CHANGED, True)
    assert memory.rows() == before


@pytest.mark.parametrize("meanwhile", ["another plan", "no plan"])
def test_a_plan_whose_file_was_replaced_before_the_answer_is_not_applied(
    meanwhile: str, memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.deliver(range(20))
    memory.save({0: stored(5)})
    path = on_disk(memory.check().plan, memory.folder / "p.json")
    before = memory.rows()
    other = replace(memory.check().plan, tool_version="another")

    def answer(question: str, *, yes: bool) -> None:
        path.unlink()
        if meanwhile == "another plan":
            on_disk(other, path)

    monkeypatch.setattr(command, "confirm", answer)
    monkeypatch.setattr(context, "outside", lambda config: _opened(memory.outside))
    code = main(["apply", str(path), "-c", str(memory.folder / "reconciler.toml")])
    said = capsys.readouterr()
    reason = "is another plan now than the one that was shown" if path.exists() else "cannot be read any more"
    assert (code, reason in said.err, "Nothing was written." in said.err) == (ExitCode.CHANGED, True, True), said.err
    assert "To undo" not in said.out
    assert memory.rows() == before
    assert not snapshot.path_for(path).exists(), "it would be another plan's, or nobody's"


@contextmanager
def _opened(outside: Outside) -> Iterator[Outside]:
    yield outside


# ---------------------------------------------------------------- while another command writes


class Watched:
    """A store that runs something before its first write, and answers reads after it through ``seen``."""

    def __init__(
        self, store: MemoryStore, before: Callable[[], None], seen: Callable[[Row], Row] = lambda row: row
    ) -> None:
        self._store, self._before, self._seen = store, before, seen
        self._wrote = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def read(self, *words: object, **named: object) -> list[Row]:
        rows = self._store.read(*words, **named)  # type: ignore[arg-type]
        return [self._seen(row) for row in rows] if self._wrote else rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        if not self._wrote:
            self._wrote = True
            self._before()
        return self._store.write(group, changes, reason=reason, now_ms=now_ms)


def test_a_rollback_waits_for_an_apply_of_the_same_plan(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the plan is applied when the rollback looks: it would put back the other half's rows in no time."""
    monkeypatch.setattr("reconciler.fileio.LOCK_S", 0.0)
    table = '[[jobs]]\nhome = "a"\nname = "{0}"\ntopics = ["events"]\noffsets = "memory:{0}"\n'
    config = memory.config(jobs="".join(map(table.format, ("one", "two"))))
    memory.deliver(range(3, 10))
    stores = {name: MemoryStore(f"{memory.folder}/{name}") for name in ("one", "two")}
    for name, store in stores.items():
        store.write(name, [Change(TopicPartition("events", 0), None, stored(6))], reason="test", now_ms=NOW)
    refused: list[ConfigError] = []

    def roll_back() -> None:
        back = prepare_rollback(checked.plan, path, config, outside)
        with pytest.raises(ConfigError, match="has held the lock") as caught:
            write_rollback(back, checked.plan, path, config, outside)
        refused.append(caught.value)

    opened = {"memory:one": stores["one"], "memory:two": Watched(stores["two"], roll_back)}
    outside = replace(memory.outside, open_store=opened.__getitem__)
    checked = check(config, config.jobs, outside)
    path = memory.folder / "p.json"
    path.write_text(checked.plan.to_text())
    write(prepare(checked.plan, config, outside), checked.plan, path, outside)
    assert len(refused) == 1
    back = prepare_rollback(checked.plan, path, config, outside)
    write_rollback(back, checked.plan, path, config, outside)
    assert [len(store.read(name)) for name, store in stores.items()] == [1, 1]


def test_a_rollback_that_is_confirmed_late_looks_again(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    checked, config = memory.check(), memory.config()
    path = memory.folder / "p.json"
    path.write_text(checked.plan.to_text())
    write(prepare(checked.plan, config, memory.outside), checked.plan, path, memory.outside)
    back = prepare_rollback(checked.plan, path, config, memory.outside)
    write_rollback(back, checked.plan, path, config, memory.outside)  # another person's
    with pytest.raises(Changed, match="not as they were shown"):
        write_rollback(back, checked.plan, path, config, memory.outside)


def test_a_row_that_cannot_be_read_back_was_written_all_the_same(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    checked, config = memory.check(), memory.config()
    changes = prepare(checked.plan, config, memory.outside)
    bad = Malformed("The row holds text.", "Delete the row.")
    store = Watched(memory.store, lambda: None, lambda row: replace(row, stored=bad))
    outside = replace(memory.outside, open_store=lambda _: store)
    with pytest.raises(OutcomeUnknown, match="was written, and does not read back: The row holds text"):
        write(changes, checked.plan, on_disk(checked.plan, memory.folder / "p.json"), outside)


@pytest.mark.parametrize("error", [Changed("Its topic is gone."), ConfigError("Too long."), Unreachable("No answer.")])
def test_after_a_write_no_error_says_that_nothing_was_written(memory: Memory, error: ReconcilerError) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    (job,), store = memory.config().jobs, SimpleNamespace(read=fail, write=fail)
    with pytest.raises(OutcomeUnknown, match="was written, and could not be read back"):
        confirm(store, job, {})  # type: ignore[arg-type]
    for any_written, expected in ((True, OutcomeUnknown), (False, type(error))):
        with pytest.raises(expected):
            put(store, job, [Change(PLACE, None, None)], "apply", NOW, any_written=any_written)  # type: ignore[arg-type]


# ---------------------------------------------------------------- a snapshot that could not be read again


def test_a_plan_whose_snapshot_could_not_be_read_again_is_not_applied(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.deliver(range(3, 50))
    memory.save({0: stored(6)})
    plan, config, before = memory.check().plan, memory.config(), memory.rows()
    path, changes = on_disk(plan, tmp_path / "p.json"), prepare(plan, config, memory.outside)
    monkeypatch.setattr(snapshots, "LARGEST_SNAPSHOT", 200)
    with pytest.raises(ConfigError, match=r"rollback could not read it\. Nothing was written.*fewer jobs"):
        write(changes, plan, path, memory.outside)
    assert memory.rows() == before
    assert not path_for(path).exists()
    monkeypatch.undo()
    write(changes, plan, path, memory.outside)
    monkeypatch.setattr(snapshots, "LARGEST_SNAPSHOT", path_for(path).stat().st_size)
    (back,) = prepare_rollback(plan, path, config, memory.outside)
    assert len(back.returns) == 1


def test_a_snapshot_may_be_larger_than_its_plan() -> None:
    """It holds each row twice, with the anchors: one of 30,000 rows of a group has more than a plan may have."""
    assert snapshots.LARGEST_SNAPSHOT > LARGEST_FILE
