"""The source's clock and this one differ: how a new row is dated, and which job is refused for it, and no other."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from reconciler.checkpoints.verify import verify_configured
from reconciler.cli import context
from reconciler.cli.commands.failover import apply as command
from reconciler.cli.main import main
from reconciler.core.errors import ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.selection import by_key, went_back
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.refusals import AHEAD_MS
from reconciler.formats.start import Side
from reconciler.hook.side import choose
from reconciler.ports import TopicPartition
from tests.in_memory import NOW, Memory, found, on_disk, stored

HOUR_MS = 3_600_000


def planned(memory: Memory, *expected: object) -> Checked:
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == expected
    return checked


@pytest.mark.parametrize("ahead_ms", [0, 1, AHEAD_MS])
def test_a_source_whose_clock_is_a_little_ahead_does_not_take_the_job_back(memory: Memory, ahead_ms: int) -> None:
    memory.deliver(range(3, 50))
    memory.save({0: stored(6, written_at_ms=NOW + ahead_ms)})
    checked, config = planned(memory, Verdict.MOVED, 4), memory.config()
    path = on_disk(checked.plan, memory.folder / "p.json")
    write(prepare(checked.plan, config, memory.outside), checked.plan, path, memory.outside)
    (again,) = prepare(checked.plan, config, memory.outside)
    assert (again.intended, len(again.already)) == ((), 1)
    assert planned(memory, Verdict.MATCH, 4).to_write == frozenset()
    assert choose(config, config.jobs[0], memory.outside, word=None, mark=None).side is Side.DESTINATION


@pytest.mark.parametrize("dated_ms", [NOW + AHEAD_MS + 1, NOW * 1000, 2**63 - 1], ids=["ahead", "in µs", "for ever"])
def test_one_whose_clock_is_far_ahead_is_a_persons_to_correct(memory: Memory, dated_ms: int) -> None:
    """Its row would stay the later one, and set the job back again and again, as "replay 0", until that time."""
    memory.deliver(range(3, 50))
    memory.save({0: stored(6, written_at_ms=dated_ms)})
    checked, before = memory.check(), memory.rows()
    (change,) = changes = prepare(checked.plan, memory.config(), memory.outside)
    ((_, why),) = change.refused
    assert "would count as later than any row that the job writes here" in why
    write(changes, checked.plan, on_disk(checked.plan, memory.folder / "p.json"), memory.outside)
    assert memory.rows() == before


def test_the_other_jobs_are_written_and_this_one_when_its_time_has_come(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ahead", "sound", "too")
    table = '[[jobs]]\nhome = "a"\nname = "{0}"\ntopics = ["events"]\noffsets = "memory:"\n'
    config = memory.config(jobs="".join(map(table.format, names)))
    memory.deliver(range(3, 50))
    for name in names:
        memory.save({0: stored(6, written_at_ms=NOW if name == "sound" else NOW + HOUR_MS)}, group=name)
    path, now = memory.folder / "p.json", [NOW]
    path.write_text(check(config, config.jobs, memory.outside).plan.to_text())
    outside = replace(memory.outside, now_ms=lambda: now[-1])
    monkeypatch.setattr(context, "outside", lambda config: nullcontext(outside))
    # The reasons name the time, and that it goes on while a person reads them is no change.
    monkeypatch.setattr(command, "confirm", lambda question, *, yes: now.append(NOW + 60_000))

    def applied() -> tuple[int, list[int], str]:
        code = main(["apply", str(path), "-c", str(memory.folder / "reconciler.toml")])
        return code, [len(memory.store.read(name)) for name in names], capsys.readouterr().err

    code, rows, said = applied()
    assert (code, rows) == (ExitCode.NEEDS_PERSON, [1, 2, 1])
    assert "Not written for ahead, too: a row of the source is dated far ahead" in said
    assert "Correct the clock that is wrong, this one or the source's." in said
    monkeypatch.setattr(command, "confirm", lambda question, *, yes: None)
    now.append(NOW + HOUR_MS)
    assert applied()[:2] == (ExitCode.OK, [2, 2, 2])


@pytest.mark.parametrize("ahead_ms", [-1, 0, 1, AHEAD_MS])
def test_a_new_row_is_later_than_the_row_that_it_was_found_from(memory: Memory, ahead_ms: int) -> None:
    """With one time for both, a hook of the cluster that was left would count its own row, and start the job there."""
    memory.deliver(range(3, 50))
    memory.save({0: stored(6, written_at_ms=NOW + ahead_ms)})
    memory.apply()
    rows = by_key(memory.rows())
    left, new = rows[TopicPartition("events", 0)], rows[TopicPartition("a.events", 0)]
    assert went_back(left, new), "as the cluster that was left sees it"


def test_a_copied_checkpoint_has_no_row_that_the_source_s_could_outrank(memory: Memory) -> None:
    """``checkpoint clone`` runs the checks of ``apply``, and writes no row: the clock does not matter."""
    memory.deliver(range(3, 50))
    memory.save({0: stored(6, written_at_ms=NOW + 600_000)})
    plan = memory.check().plan
    verify_configured(plan, plan.jobs[0], memory.config(), memory.outside)


def test_a_row_of_the_source_without_a_time_is_no_later_one(memory: Memory) -> None:
    memory.deliver(range(3, 50))
    memory.save({0: stored(6)})
    memory.apply()
    assert planned(memory, Verdict.MATCH, 4).to_write == frozenset()
