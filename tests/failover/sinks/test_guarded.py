"""Rarer starts that a sink forbids: batches of another checkpoint, batches that it lost, records read again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from reconciler.core.errors import NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import ByHand
from reconciler.failover.sinks.guard import QueryState, Taken, judge, lacks
from reconciler.plan.rows import SinkOutcome
from tests.failover.checkpoint.checkpoint_files import QUERY
from tests.failover.sinks.tables.delta_table import Delta
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.failover.sinks.world import Query, query

__all__ = ["query"]


def test_a_copy_is_not_started_for_a_batch_that_the_original_has_put_out_after_all(query: Query) -> None:
    """Killed in batch 3 before the sink had it; copied, and the copy left; the source came back, and ran it."""
    shutil.rmtree(query.files.path / "state")
    query.begin(3)
    assert query.start_at_destination()
    query.put_out(range(3, 4))
    with pytest.raises(NeedsPerson, match="its batch 3 has records, and this checkpoint's has none") as stopped:
        query.start_at_destination()
    assert "start from that checkpoint, or from a new copy of it" in str(stopped.value.hint)
    query.run(range(3, 4))
    with pytest.raises(NeedsPerson, match="it has finished batch 3, which the copy repeats"):
        query.start_at_destination()
    query.state = None  # as before the move
    shutil.rmtree(query.folder / "plans")
    query.keep_anchor(3)
    assert query.start_at_destination()["RECONCILER_CHECKPOINT"] == f"{query.files.path}-3"


def test_a_copy_that_has_repeated_its_batch_empty_itself_goes_on(query: Query) -> None:
    shutil.rmtree(query.files.path / "state")
    query.begin(3)
    assert query.start_at_destination()
    query.put_out(range(3, 4), empty=True)
    assert query.start_at_destination()


def test_a_sink_that_lacks_committed_batches_would_never_get_them(query: Query) -> None:
    """A replica of the table that is behind, or a backup."""
    query.run(range(3, 6))
    query.keep_anchor(5)
    row = query.sink()
    assert (row.outcome, row.last_taken, row.next_batch) == (SinkOutcome.UNSEEN, 2, 6)
    assert "it has no batch after 2, and the checkpoint has committed batch 5" in row.detail
    with pytest.raises(NeedsPerson, match="would never come"):
        query.start_at_source()


@pytest.mark.parametrize("of", ["", "?app_id=clicks"])
@pytest.mark.parametrize("committed", [True, False])
def test_a_checkpoint_without_its_querys_id_would_put_out_under_a_new_one(
    query: Query, of: str, committed: bool
) -> None:
    """Under a name of the job's own, the batches are known without the id."""
    pytest.importorskip("deltalake")
    query.sinks = [f"delta:{query.folder}/delta{of}"]
    table = Delta(query.folder / "delta")
    for number in range(4):
        table.batch(number, app_id="clicks" if of else None)
    query.begin(3)
    if committed:
        query.run(range(3, 4))
    (query.files.path / "metadata").unlink()
    if of:
        assert query.start_at_source()
        return
    with pytest.raises(NeedsPerson, match="the checkpoint has lost its query's id") as stopped:
        query.start_at_source()
    assert f"take batch {4 if committed else 3} even if it has it" in stopped.value.message
    assert 'write it again, as {"id":"ID"}' in str(stopped.value.hint)
    query.files.put("metadata", f'{{"id":"{QUERY}"}}')
    assert query.start_at_source(), "the way out"


@dataclass
class Moving:
    """A sink of a query that runs: each answer is newer than the one before."""

    answers: Iterator[int] = field(default_factory=lambda: iter((2, 4)))
    shown: str = "moving"
    app_id: str | None = None
    knows_queries: bool = False
    takes_every_batch: bool = True

    def last_taken(self, app_id: str | None) -> Taken:
        return Taken(next(self.answers))

    def has_queries(self) -> bool:
        return True


def test_a_query_that_runs_meanwhile_is_not_taken_for_one_whose_batches_are_lost() -> None:
    from reconciler.failover.sinks.judging import judged_row

    sink, at = Moving(), QueryState("q", 4, committed=True)
    before = sink.last_taken(None)
    assert lacks(sink, at, before)
    assert judged_row(sink, at, before).outcome is SinkOutcome.FITS
    assert judge(sink, at, before, lacking=True).outcome is SinkOutcome.UNSEEN


def test_records_that_the_sink_has_are_not_put_out_again_unless_a_person_accepts_it(query: Query) -> None:
    """The anchor that was kept last is one batch old."""
    query.run(range(3, 4))
    query.put_out(range(3, 4))
    row = query.sink()
    assert row.outcome is SinkOutcome.DOUBLES
    assert "it would get at most 10 records again" in row.detail
    with pytest.raises(NeedsPerson, match="the offset behind them is not proven") as stopped:
        query.clone()
    assert "accept the repetition with --accept early (plan, hook)" in str(stopped.value.hint)
    accepted = ByHand(accepted=frozenset({Verdict.EARLY}))
    (job,) = query.check(by_hand=accepted).plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.FITS]
    assert query.clone(by_hand=accepted).replay_at_most == 10
    (job,) = query.check(by_hand=ByHand({("a.o", 0): 40}, skips=True)).plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.FITS]


@pytest.mark.parametrize("word", [ByHand({("a.o", 0): 30}), ByHand(accepted=frozenset({Verdict.EXACT}))])
def test_a_word_that_changes_nothing_does_not_make_the_sink_drop_a_batch_without_a_proven_end(
    query: Query, word: ByHand
) -> None:
    """The offset that was found, given by hand, or accepted: the batch would still be repeated empty."""
    query.begin(3)
    query.put_out(range(3, 4))
    (job,) = query.check(by_hand=word).plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.DOUBLES]
    with pytest.raises(NeedsPerson, match="whose end is not proven"):
        query.clone(by_hand=word)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_new_query_that_reads_everything_is_not_started_on_the_table_of_another_one(query: Query, kind: str) -> None:
    """Its checkpoint was lost, or the configuration names another one."""
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    shutil.rmtree(query.files.path)
    query.sinks = [f"{kind}:{query.folder}/{kind}"]
    assert query.start_at_source(), "there is no table yet"
    table = Delta(query.folder / kind) if kind == "delta" else Iceberg(query.folder / kind)
    table.batch(0)
    with pytest.raises(NeedsPerson, match="reads everything again") as stopped:
        query.start_at_source()
    assert "start on a copy of the last checkpoint" in str(stopped.value.hint)
