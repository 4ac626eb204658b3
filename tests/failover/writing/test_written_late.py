"""Between a plan and its writing hours may pass: all that it rests on is read again, in place or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from reconciler.cli import context
from reconciler.cli.commands import apply as command
from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, Malformed, StoredOffset, fingerprint
from reconciler.core.errors import Changed, ExitCode, OutcomeUnknown
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare
from reconciler.places.memory import MemoryStore
from reconciler.ports import Change, Row, TopicPartition, WriteResult
from tests.in_memory import BASE, NOW, Memory, anchor, found, memory, stored, write_all
from tests.memory_log import MemoryPartition
from tests.starting import state_of, with_state

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
        (advance, "has changed since the plan"),
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
    with_state(memory.folder / "reconciler.toml")
    before, later = memory.rows(), [NOW]

    def answer(question: str, *, yes: bool) -> None:
        if meanwhile is None:
            later.append(NOW + 30 * 86_400_000)
        else:
            meanwhile(memory)
            before[:] = memory.rows()

    monkeypatch.setattr(command, "confirm", answer)
    config = memory.folder / "reconciler.toml"
    outside = replace(memory.outside, now_ms=lambda: later[-1], state_of=lambda name: state_of(config, name, "a"))
    monkeypatch.setattr(context, "outside", lambda config: _opened(outside))
    code = main(["apply", str(path), "-c", str(config)])
    assert (code, reason in capsys.readouterr().err) == (ExitCode.CHANGED, True)
    assert memory.rows() == before


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


def test_a_row_that_cannot_be_read_back_was_written_all_the_same(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    checked, config = memory.check(), memory.config()
    changes = prepare(checked.plan, config, memory.outside)
    bad = Malformed("The row holds text.", "Delete the row.")
    store = Watched(memory.store, lambda: None, lambda row: replace(row, stored=bad))
    outside = replace(memory.outside, open_store=lambda _: store)
    with pytest.raises(OutcomeUnknown, match=r"were written, then: .* cannot be read \(The row holds text"):
        write_all(changes, checked.plan, config, outside)
