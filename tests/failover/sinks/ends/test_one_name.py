"""A query of a topic with one name on both clusters (policy ``identity``), stopped within its batch.

Both clusters have the records before the batch at the same offsets. The source has a gap within the batch: there the
batch ends four offsets later than at the destination.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.commands.plan import summary, verdict_code
from reconciler.cli.main import main
from reconciler.config.settings import Left
from reconciler.core.anchors import Anchor, fingerprint
from reconciler.core.errors import ConfigError, ExitCode, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand
from reconciler.failover.writing.apply import Refusal, prepare
from reconciler.jobs.drill import drill
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.plan.rows import SinkOutcome
from reconciler.ports import TopicPartition
from reconciler.state.start import CHECKPOINT_VARIABLE
from reconciler.state.stored import Known
from tests.failover.checkpoint.checkpoint_files import PLANNED, Files
from tests.failover.sinks.world import BEFORE, PER_BATCH, Query, under_one_name
from tests.memory_log import MemoryLog

START = BEFORE + 3 * PER_BATCH
END = START + PER_BATCH
GAP = 4
RIGHT = END - GAP
AT = TopicPartition("o", 0)


@pytest.fixture
def stopped(tmp_path: Path) -> Query:
    """The query is stopped within batch 3, which the sink has taken. The anchors of its start and its end are kept."""
    made = under_one_name(tmp_path, -BEFORE)
    made.begin(3)
    made.put_out(range(3, 4))
    keep_end(made, RIGHT - BEFORE - 1)
    return made


def keep_end(query: Query, last: int) -> None:
    """The anchor of the batch's end: the record with this number, the last before it."""
    query.record("o", Known(END, anchor(last, END - 1, "lost")), of_end=True)


def logged(cluster: str, numbers: Iterable[int]) -> MemoryLog:
    log = MemoryLog(cluster)
    log.create("o", 1)
    extend(log, numbers)
    return log


def extend(log: MemoryLog, numbers: Iterable[int]) -> None:
    for number in numbers:
        log.partition("o", 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)


def forget_end(query: Query) -> None:
    """Nothing was recorded of the batch's end."""
    query.state = None
    query.keep_anchor(2)


def anchor(number: int, offset: int, cluster: str) -> Anchor:
    of = fingerprint(b"k%d" % number, b"v%d" % number)
    return Anchor(offset, PLANNED + number, None, of, cluster, "lost/o" if cluster == "lost" else None)


def test_a_batch_that_ends_elsewhere_is_repeated_in_a_copy_although_it_starts_at_the_same_offset(
    stopped: Query,
) -> None:
    """On the original, the batch would bring four more records, and the sink would drop them with it."""
    checked = stopped.check()
    rows = [(row.position, row.finding, row.stored_offset, row.resume_offset) for row in checked.plan.job().partitions]
    assert rows == [("start", Verdict.EXACT, START, START), ("end", Verdict.EXACT, END, RIGHT)]
    assert checked.to_write == {("clicks", AT)}
    assert stopped.sink().outcome is SinkOutcome.TAKEN
    (change,) = prepare(checked.plan, stopped.config(), stopped.outside)
    assert change.refusal is Refusal.COPIED, "apply must not say that every offset is right"
    assert [row.key for row, _ in change.refused] == [AT]

    assert stopped.start_at_destination()[CHECKPOINT_VARIABLE] == stopped.copy
    (position,) = read_checkpoint(stopped.copy).positions
    assert (position.start, position.end) == ({("o", 0): START}, {("o", 0): RIGHT})


def test_a_batch_that_ends_at_the_same_offset_too_is_repeated_in_a_copy(stopped: Query) -> None:
    """It would be right where it is, and the numbers after it would be taken for the source's."""
    keep_end(stopped, END - BEFORE - 1)
    checked = stopped.check()
    assert [row.finding for row in checked.plan.job().partitions] == [Verdict.EXACT] * 2
    assert checked.to_write == {("clicks", AT)}
    stopped.start_at_destination()
    (position,) = read_checkpoint(stopped.copy).positions
    assert (position.start, position.end) == ({("o", 0): START}, {("o", 0): END})
    assert stopped.check(Path(stopped.copy)).to_write == frozenset()


def test_a_query_whose_offsets_are_right_goes_on_in_a_copy_so_that_a_failback_skips_nothing(tmp_path: Path) -> None:
    query = under_one_name(tmp_path, -BEFORE)
    checked = query.check()
    (row,) = checked.plan.job().partitions
    assert (row.finding, row.stored_offset, row.resume_offset) == (Verdict.EXACT, START, START)
    shown, _ = summary(checked, query.config().policy.start, ByHand())
    assert shown.startswith("1 offset is right, and counts as the source's until that is done (exit code 3")
    query.start_at_destination()
    copy = Path(query.copy)
    assert query.check(copy).to_write == frozenset()

    files = Files.at(copy)
    files.batch(3, {"o": {0: START + PER_BATCH}})  # the query goes on there
    query.log, between = logged("lost", range(-BEFORE, START - BEFORE)), 5
    for each in range(between):  # records that were never mirrored
        query.log.partition("o", 0).append(PLANNED + START - BEFORE, b"x%d" % each, b"x")
    extend(query.log, range(START - BEFORE, 100))
    (row,) = query.check(copy).plan.job().partitions
    assert row.finding is not Verdict.EXACT
    assert row.resume_offset is not None
    assert row.resume_offset <= START + between + PER_BATCH
    assert row.replay_at_most is not None
    assert row.resume_offset + row.replay_at_most >= START + PER_BATCH


def test_a_repeated_batch_ends_before_records_that_the_other_cluster_never_got(stopped: Query) -> None:
    """The job comes back, and they are within its batch: a sink that has the batch would drop them with it."""
    there, within = logged("lost", range(-BEFORE, 100)), START - BEFORE + 4
    stopped.log = logged("b", range(-BEFORE, within))
    for each in range(3):
        stopped.log.partition("o", 0).append(PLANNED + within, b"x%d" % each, b"x")
    extend(stopped.log, range(within, 100))
    config = stopped.config()
    job = replace(config.jobs[0], left={AT: Left(START, START, None)})
    checked = check(replace(config, jobs=(job,)), (job,), replace(stopped.outside, open_left=lambda: there))
    rows = [(row.position, row.finding, row.resume_offset) for row in checked.plan.job().partitions]
    assert rows == [("start", Verdict.EXACT, START), ("end", Verdict.EARLY, START + 4)]


def test_a_topic_of_the_same_source_that_the_job_does_not_list_is_not_left_unchecked(tmp_path: Path) -> None:
    """Its offset is the lost source's, too. With every listed one right, the query would start there as it is."""
    query = under_one_name(tmp_path, -BEFORE)
    query.log.create("p", 1)
    for number in range(100):
        query.log.partition("p", 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    query.files.batch(2, {"o": {0: START}, "p": {0: 60}})
    with pytest.raises(NeedsPerson, match=r'has 1 offset of "p" .* does not list that topic'):
        query.start_at_destination()
    query.ignored = ("p",)
    with pytest.raises(ConfigError, match="reads o, p, and the job has not p among its topics") as refused:
        query.start_at_destination()
    assert "add them to the job" in str(refused.value.hint)
    query.files.batch(2, {"o": {0: START}}, {"p": {0: 60}})
    query.start_at_destination()  # a source of its own may read another cluster


def test_an_end_that_is_not_proven_is_repeated_empty_in_a_copy(stopped: Query) -> None:
    """A number that is right at the start says nothing of the end."""
    forget_end(stopped)
    checked = stopped.check()
    assert [row.resume_offset for row in checked.plan.job().partitions] == [START, START]
    assert checked.to_write == {("clicks", AT)}
    assert stopped.sink().outcome is SinkOutcome.DOUBLES, "the sink has the batch, and would get its records again"
    tried = drill(stopped.config(), stopped.config().jobs[0], stopped.outside, stopped.folder)
    assert (tried.may_start, tried.copy, tried.checked.why_not) == (False, None, "a sink would lose or double records")


def test_a_batch_that_was_begun_at_the_destination_is_repeated_where_it_is(stopped: Query) -> None:
    """Its numbers are the destination's, whether an anchor of its end was kept or not."""
    stopped.lives_at_destination()
    stopped.record("o", Known(START, anchor(START - BEFORE - 1, START - 1, "b")))
    checked = stopped.check()
    assert checked.plan.job().partitions[0].finding is Verdict.EXACT
    assert checked.to_write == frozenset()
    assert stopped.sink().outcome is SinkOutcome.TAKEN
    (change,) = prepare(checked.plan, stopped.config(), stopped.outside)
    assert (change.refused, change.intended) == ((), ())


def test_a_batch_that_was_begun_at_the_destination_starts_there_however_much_a_copy_would_read_again(
    stopped: Query, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hook lets the query finish it, so nothing may say that it stops, or advise a copy that is refused."""
    stopped.extra += f"\n[policy]\nmax_replay = {PER_BATCH - 1}"
    stopped.lives_at_destination()
    stopped.record("o", Known(START, anchor(START - BEFORE - 1, START - 1, "b")))
    checked = stopped.check()
    assert CHECKPOINT_VARIABLE in stopped.start_at_destination()

    monkeypatch.setattr(context, "check_jobs", lambda *_: checked)
    file = str(stopped.folder / "reconciler.toml")
    for command in (["plan"], ["plan", "-o", str(stopped.folder / "plan.json")]):
        capsys.readouterr()
        assert main([*command, "-c", file, "--job", "clicks"]) == ExitCode.OK
        shown = capsys.readouterr().out
        assert "must not start" not in shown

    assert main(["show", str(stopped.folder / "plan.json")]) == ExitCode.OK
    assert "must not start" not in capsys.readouterr().out
    tried = drill(stopped.config(), stopped.config().jobs[0], stopped.outside, stopped.folder)
    assert (tried.copy, tried.may_start) == (None, True)


def test_a_batch_that_ends_elsewhere_stops_if_too_much_would_be_read_again(stopped: Query) -> None:
    """Its end is corrected in a copy, which counts."""
    stopped.extra += f"\n[policy]\nmax_replay = {PER_BATCH - 1}"
    forget_end(stopped)
    checked, policy = stopped.check(), stopped.config().policy.start
    assert verdict_code(checked, policy) is ExitCode.NEEDS_PERSON
    assert [row.position for row in checked.shown(policy).job().partitions] == ["start", "end"]
    with pytest.raises(NeedsPerson):
        stopped.start_at_destination()
    assert not drill(stopped.config(), stopped.config().jobs[0], stopped.outside, stopped.folder).may_start
