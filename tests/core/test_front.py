"""Time lookups that are wrong are contradicted by the records in front of their answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.core.anchors import Identity
from reconciler.core.question import Limits, Question, StartAt, StartPlace
from reconciler.core.reconcile import place_at_time
from reconciler.core.timebound import NEAR, WHOLE
from reconciler.core.verdicts import Finding, Verdict
from tests.core.stories import (
    BY_CONTENT,
    BY_ID,
    HERE,
    HERE_TOPIC,
    Rec,
    anchor_of,
    answer,
    ask,
    ask_with_cost,
    letters,
    log_of,
)
from tests.memory_log import MemoryLog

LONG = [Rec(f"r{number}", 1_000_000 + 1_000 * number) for number in range(20_000)]
NO_TAIL = Limits(tail_records=0)


def lied_to(log: MemoryLog, lie: Callable[[int | None], int | None]) -> MemoryLog:
    """The log, whose lookups answer what ``lie`` makes of the truth."""
    truly = log.offsets_for_times
    log.offsets_for_times = lambda asked: [lie(each) for each in truly(asked)]  # type: ignore[method-assign]
    return log


def too_high(by: int) -> Callable[[int | None], int | None]:
    return lambda true: None if true is None else true + by


@pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])
@pytest.mark.parametrize("by", [1, 9, 20, 200, 4_000])
def test_an_answer_that_is_too_high_is_contradicted_in_a_log_of_any_length(by: int, identity: Identity) -> None:
    finding = ask(lied_to(log_of(*LONG), too_high(by)), anchor_of(LONG[15_000], identity), identity)
    assert finding.resume_offset == 15_001
    assert f"it gave offset {15_000 + by:,}, and record" in finding.detail


def test_where_the_front_is_too_long_to_read_the_first_record_s_own_time_is_looked_up() -> None:
    """The local segments begin with a re-sent stretch longer than what is read in front of an answer."""
    again = LONG[: NEAR + 200]
    log = lied_to(log_of(*LONG[:1_000], *again), lambda true: max(true or 1_200, 1_000) if true is not None else None)
    honest = log_of(*LONG[:1_000], *again)
    absent = anchor_of(Rec("gone", 1_000_000 + 1_000 * 2_000))
    assert ask(honest, absent, limits=NO_TAIL).verdict is Verdict.BEHIND
    finding = ask(log, absent, limits=NO_TAIL)
    assert (finding.verdict, finding.resume_offset) == (Verdict.BEHIND, 1_264)
    assert "time lookup is wrong" in finding.detail


def test_an_honest_broker_is_asked_as_often_as_before() -> None:
    for count in (10, WHOLE - 100, 20_000):
        cost = ask_with_cost(log_of(*LONG[:count]), anchor_of(LONG[count - 5]))
        assert (cost.finding.verdict, cost.probes, cost.rounds) == (Verdict.EXACT, 3, 2)


# ---------------------------------------------------------------- other times that are looked up


def test_a_new_partition_starts_at_the_log_s_start_if_its_policy_s_time_is_looked_up_wrongly() -> None:
    new = StartAt(StartPlace.TIME, 130)
    honest, lying = log_of(*letters("abcdefgh")), lied_to(log_of(*letters("abcdefgh")), too_high(2))
    assert ask(honest, None, new=new).resume_offset == 3
    finding = ask(lying, None, new=new)
    assert (finding.verdict, finding.resume_offset) == (Verdict.NEW, 0)
    assert "lookup of the policy's time is wrong" in finding.detail


def test_an_operator_s_time_that_is_looked_up_wrongly_sets_no_offset() -> None:
    question = Question(None, HERE, HERE_TOPIC)
    before = Finding(Verdict.UNRESOLVED, None)

    def at(log: MemoryLog) -> Finding:
        return answer(log, lambda: place_at_time(question, 130, "12:00", before)).finding

    assert at(log_of(*letters("abcdefgh"))).resume_offset == 3
    finding = at(lied_to(log_of(*letters("abcdefgh")), too_high(2)))
    assert finding.resume_offset is None
    assert finding.detail == "the broker's lookup of 12:00 is wrong: an earlier record is as new"
