"""A query into the file sink, in every state in which a failover or its undo may find it, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.cli.page.page import page
from reconciler.cli.terminal.report import plan_text
from reconciler.core.errors import ConfigError, NeedsPerson, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import ByHand
from reconciler.failover.sinks.files import FileSink
from reconciler.failover.sinks.guard import Taken
from reconciler.failover.writing.apply import prepare
from reconciler.jobs.watch.figures import CheckFigures, figures_of
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.plan.rows import SinkOutcome
from tests.failover.checkpoint.checkpoint_files import Files
from tests.failover.sinks.world import BEFORE, Query, made_of, query

__all__ = ["query"]


def test_the_original_is_not_started_again_after_its_copy_has_run(query: Query) -> None:
    copy = query.copied()
    query.run(range(3, 6), copy)
    query.put_out(range(3, 6))
    row = query.sink()
    assert (row.outcome, row.last_taken, row.next_batch) == (SinkOutcome.DROPS, 5, 3)
    assert "it would drop batches 3 to 5 without an error" in row.detail
    with pytest.raises(NeedsPerson, match="would drop batches 3 to 5") as at_start:
        query.start_at_source()
    assert (
        at_start.value.hint == "The query has continued from another checkpoint: start from that checkpoint or a copy."
    )
    with pytest.raises(NeedsPerson, match="would drop batches 3 to 5"):
        query.clone("another")
    assert not (query.folder / "another").exists()


def test_the_hook_makes_a_copy_once_and_starts_no_stale_one(query: Query) -> None:
    """The query has run on since, on its original."""
    assert [query.start_at_destination()["RECONCILER_CHECKPOINT"] for _ in range(2)] == [query.copy] * 2
    query.put_out(range(3, 5))
    with pytest.raises(NeedsPerson, match="would drop batches 3 to 4 without an error"):
        query.start_at_destination()
    query.run(range(3, 5))
    with pytest.raises(NeedsPerson, match=r"after it was copied to .*: it has begun batches 3 to 4"):
        query.start_at_destination()


def test_a_folder_that_no_location_names_is_never_continued(query: Query) -> None:
    """The copy of a drill, or of a hook that was killed: the query may have run on since it was made."""
    query.copied(Path(query.copy).name)
    assert query.start_at_destination()["RECONCILER_CHECKPOINT"] == f"{query.files.path}-3"


def test_a_killed_batch_that_the_sink_has_is_repeated_up_to_its_proven_end(query: Query) -> None:
    query.begin(3)
    query.put_out(range(3, 4))
    query.keep_anchor(3, of_end=True)
    assert query.sink().outcome is SinkOutcome.TAKEN
    made = query.clone()
    assert (made.batch, made.repeats, made.repeats_empty) == (3, True, False)
    (source,) = read_checkpoint(str(made.new_path)).positions
    assert (source.start, source.end) == ({("a.o", 0): 30}, {("a.o", 0): 40})


def test_a_killed_batch_that_the_sink_has_and_whose_end_is_not_known_would_be_doubled(query: Query) -> None:
    query.begin(3)
    query.put_out(range(3, 4))
    row = query.sink()
    assert row.outcome is SinkOutcome.DOUBLES
    assert "at most 10 of its records would be written again" in row.detail
    with pytest.raises(NeedsPerson, match="whose end is not proven"):
        query.clone()
    assert query.start_at_source(), "at the source the query repeats it up to the same end by itself"


def test_a_person_may_set_the_offset_behind_the_batch_that_the_sink_has(query: Query) -> None:
    query.begin(3)
    query.put_out(range(3, 4))
    set_behind = ByHand({("a.o", 0): 40}, skips=True)
    (job,) = query.check(by_hand=set_behind).plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.TAKEN]
    made = query.clone(by_hand=set_behind)
    assert made.repeats_empty
    (source,) = read_checkpoint(str(made.new_path)).positions
    assert source.start == source.end == {("a.o", 0): 40}


def test_a_killed_batch_that_the_sink_has_not_is_put_out_once_whether_its_end_is_known_or_not(query: Query) -> None:
    query.begin(3)
    assert query.sink().outcome is SinkOutcome.OPEN
    empty = query.clone("empty")
    assert (empty.repeats_empty, empty.repeated_at_most) == (True, 0)
    query.keep_anchor(3, of_end=True)
    whole = query.clone("whole")
    assert (whole.repeats_empty, whole.repeated_at_most) == (False, 0)


def test_a_killed_batch_is_repeated_whole_or_empty(query: Query) -> None:
    """With a part of its records it could be taken for the original's own, which would lose the others."""
    query.begin(3)
    query.keep_anchor(3, of_end=True, lag=4)
    assert query.sink().outcome is SinkOutcome.OPEN
    made = query.clone()
    assert (made.repeats_empty, made.repeated_at_most) == (True, 0)
    query.put_out(range(3, 4))
    assert "at most 10 of its records would be written again" in query.sink().detail, "it is repeated empty"
    with pytest.raises(NeedsPerson, match="whose end is not proven"):
        query.clone("another")


@pytest.mark.parametrize("delivered", [35, 30, 25])
def test_a_killed_batch_whose_end_the_mirror_has_yet_to_deliver_would_be_doubled(
    delivered: int, tmp_path: Path
) -> None:
    query = made_of(tmp_path, delivered)
    query.begin(3)
    query.put_out(range(3, 4))
    query.keep_anchor(3, of_end=True)
    (job,) = query.check().plan.jobs
    (end,) = (row for row in job.partitions if row.position == "end")
    assert (end.finding, end.replay_at_most) == (Verdict.BEHIND, 0 if delivered > 30 else 10)
    assert [row.outcome for row in job.sinks] == [SinkOutcome.DOUBLES]
    assert "at most 10 of its records would be written again" in job.sinks[0].detail
    with pytest.raises(NeedsPerson, match="whose end is not proven"):
        query.clone()


def test_a_killed_batch_that_a_copy_has_repeated_empty_is_not_taken_for_the_querys_own(query: Query) -> None:
    query.begin(3)
    query.put_out(range(3, 4), empty=True)
    query.keep_anchor(3, of_end=True)
    with pytest.raises(NeedsPerson, match="its batch 3 is empty, and this checkpoint's has records") as at_start:
        query.start_at_source()
    assert "If no copy was ever started" in str(at_start.value.hint), "a filter may have left none of its records"
    with pytest.raises(NeedsPerson, match="Perhaps a copy has repeated the batch empty"):
        query.clone()


def test_a_killed_batch_that_met_a_new_partition_without_records_is_as_empty_as_the_sinks(query: Query) -> None:
    """Spark begins such a batch, because the partition is new in its offsets."""
    query.files.planned(3, {"o": {0: BEFORE + 30, 1: 0}})
    query.put_out(range(3, 4), empty=True)
    assert query.start_at_source()
    query.files.planned(3, {"o": {0: BEFORE + 30, 1: 1}})
    with pytest.raises(NeedsPerson, match="its batch 3 is empty, and this checkpoint's has records"):
        query.start_at_source()


def test_a_new_checkpoint_on_the_old_path_would_lose_its_first_batches(query: Query) -> None:
    for file in sorted(query.files.path.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    query.files.path.rmdir()
    with pytest.raises(NeedsPerson, match="would drop batches 0 to 2 without an error") as at_start:
        query.start_at_source()
    assert "give the query another path" in str(at_start.value)
    Files(query.files.path).began({"o": {0: BEFORE}})
    assert query.sink().outcome is SinkOutcome.DROPS


def test_of_two_sinks_the_one_that_has_the_batch_needs_its_end(query: Query) -> None:
    query.begin(3)
    query.put_out(range(3, 4))
    other = Query(query.folder / "other", query.files, query.log)
    other.put_out(range(3))
    query.sinks = [f"files:{query.output}", f"files:{other.output}"]
    (job,) = query.check().plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.DOUBLES, SinkOutcome.OPEN]
    query.keep_anchor(3, of_end=True)
    (job,) = query.check().plan.jobs
    assert [row.outcome for row in job.sinks] == [SinkOutcome.TAKEN, SinkOutcome.OPEN]
    assert not query.clone().repeats_empty


def test_the_report_and_the_page_say_why_a_job_must_not_start(query: Query) -> None:
    query.run(range(3, 6), query.copied())
    query.put_out(range(3, 6))
    plan, policy = query.check().plan, query.config().policy.start
    text = str(plan_text(plan, policy, columns=500, colour=False))
    assert f"sink files:{query.output} · drops: must not start: it has batch 5 already" in text
    shown = page(plan, policy, sha256="0" * 64)
    assert "Job clicks must not start: its sink" in shown
    assert "would drop batches 3 to 5 without an error" in shown


def test_the_watcher_counts_the_sinks_that_forbid_the_next_start(query: Query) -> None:
    def figures() -> CheckFigures:
        checked = query.check()
        return figures_of(checked.plan.job(), checked.jobs[0], query.config().policy.start)

    assert (figures().blocking_sinks, figures().outcome) == (0, "ok")
    query.put_out(range(3, 6))
    assert (figures().blocking_sinks, figures().outcome) == (1, "person")


def test_apply_refuses_what_a_sink_forbids(query: Query) -> None:
    copy = query.copied()
    query.run(range(3, 6), copy)
    query.put_out(range(3, 6))
    checked = query.check()
    (changes,) = prepare(checked.plan, query.config(), query.outside)
    assert [why for _, why in changes.refused if "would drop batches 3 to 5" in why]
    assert checked.stopped(query.config().policy.start)


@pytest.mark.parametrize("address", ["nowhere:/x", "files:", "/data/out", "python:os:getcwd"])
def test_a_sink_that_there_is_not_is_a_fault_of_the_configuration(query: Query, address: str) -> None:
    query.sinks = [address]
    with pytest.raises(ConfigError):
        query.check()


# ---------------------------------------------------------------- the log itself


def test_the_log_is_read_across_its_compaction(query: Query) -> None:
    query.put_out(range(3, 25))
    assert FileSink(str(query.output)).last_taken(None) == Taken(24, has_records=True)
    query.put_out(range(25, 29))
    query.put_out(range(29, 30))
    assert FileSink(str(query.output)).last_taken(None) == Taken(29, has_records=True)


def test_an_empty_batch_shows_as_one_even_where_the_log_is_compacted(query: Query) -> None:
    query.put_out(range(3, 9))
    query.put_out(range(9, 10), empty=True)
    assert FileSink(str(query.output)).last_taken(None) == Taken(9, is_empty=True)
    (query.output / "_spark_metadata" / "4").unlink()
    assert FileSink(str(query.output)).last_taken(None) == Taken(9), "whose files those are does not show any more"


def test_a_parquet_file_without_rows_is_an_empty_batch(query: Query) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    query.put_out(range(3, 4))
    entry = query.output / "_spark_metadata" / "3"
    file = query.output / "3 a.parquet"
    for rows in (0, 1):
        parquet.write_table(arrow.table({"id": list(range(rows))}), file)
        entry.write_text("v1\n" + json.dumps({"path": file.as_uri(), "size": file.stat().st_size}))
        assert FileSink(str(query.output)).last_taken(None) == Taken(3, is_empty=rows == 0, has_records=rows > 0)


def test_a_log_that_is_not_understood_is_no_empty_one(query: Query) -> None:
    (query.output / "_spark_metadata" / "2").write_text("v1\nnot JSON")
    with pytest.raises(Refused, match="_spark_metadata/2 is not understood"):
        query.check()
