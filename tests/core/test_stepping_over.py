"""Records that the mirror sent again are stepped over where ids prove that nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity, Names
from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding
from tests.core.stories import BY_ID, BY_INCREASING_ID, PLACE, Rec, anchor_of, ask, letters, log_of
from tests.memory_log import MemoryLog, MemoryRecord

BY_UNIQUE_ID = replace(BY_ID, unique_ids=True)
TELLING = pytest.mark.parametrize("identity", [BY_UNIQUE_ID, BY_INCREASING_ID], ids=["unique", "increasing"])


def rec(name: str) -> Rec:
    return letters(name)[0]


def asked(names: str, anchor: str, identity: Identity, **words: object) -> Finding:
    return ask(log_of(*letters(names)), anchor_of(rec(anchor), identity), identity, **words)


@TELLING
@pytest.mark.parametrize(
    ("names", "anchor", "resume", "replay"),
    [
        ("abcdefg cdefgh", "d", 9, 0),
        ("abcdef cde cdefg", "d", 11, 0),
        ("abcdef def", "d", 7, 0),
        ("abcd ab", "d", 6, 0),
        ("abcdef bcdef cde", "d", 9, 2),  # the last run was cut off: f is only in front of it
        ("abcdef de", "d", 4, 1),
        ("abc bcd bcde", "c", 8, 0),
    ],
)
def test_the_job_resumes_behind_what_was_sent_again_and_loses_nothing(
    names: str, anchor: str, resume: int, replay: int, identity: Identity
) -> None:
    finding = asked(names, anchor, identity)
    assert (finding.verdict.value, finding.resume_offset, finding.replay_exact) == ("exact", resume, replay)


@TELLING
def test_the_detail_tells_what_was_stepped_over(identity: Identity) -> None:
    finding = asked("abcdefg cdefgh", "d", identity)
    assert finding.detail.endswith("; stepped over 5 records that were sent again")
    assert finding.record_offset == 8
    assert finding.record_fingerprint is not None


@TELLING
def test_a_next_record_that_was_sent_again_is_the_place_to_resume_at(identity: Identity) -> None:
    anchor = anchor_of(rec("d"), identity, names=Names.NEXT)
    finding = ask(log_of(*letters("abcdefg bcdefgh")), anchor, identity)
    assert (finding.resume_offset, finding.replay_exact) == (9, 0)


def test_ids_that_are_not_said_to_be_unique_step_over_nothing() -> None:
    assert asked("abcdefg cdefgh", "d", BY_ID).resume_offset == 4


@TELLING
def test_a_record_without_an_id_is_not_stepped_over(identity: Identity) -> None:
    nameless = replace(rec("e"), headers=())
    log = log_of(*letters("abcd"), nameless, *letters("cd"), nameless)
    assert ask(log, anchor_of(rec("d"), identity), identity).resume_offset == 4


@TELLING
@pytest.mark.parametrize("where", [0, 5, 7])
def test_two_records_with_one_id_contradict_the_setting_and_nothing_is_stepped_over(
    where: int, identity: Identity
) -> None:
    records = letters("cdefg cdefgh")
    records[where] = replace(records[where], value=b"other")
    assert ask(log_of(*records), anchor_of(rec("d"), identity), identity).resume_offset == 2 or (
        identity is BY_INCREASING_ID and where < 6
    )


def test_first_copies_far_in_front_are_looked_for_as_far_as_the_budget_allows() -> None:
    """What was sent again begins long before the records that the search reads in front of the anchor."""
    records = [Rec(f"r{number}", 1000 + number) for number in range(600)]
    log = log_of(*records[:500], *records[20:])
    anchor = anchor_of(records[399], BY_UNIQUE_ID)
    assert ask(log, anchor, BY_UNIQUE_ID).resume_offset == 880
    few = ask(log, anchor, BY_UNIQUE_ID, limits=Limits(scan_records=700))
    assert few.resume_offset == 400


# ---------------------------------------------------------------- transactions of the mirror


def sent(log: MemoryLog, names: str, *, aborts: bool | None) -> None:
    """Add records in a transaction, which is left open where ``aborts`` is None."""
    part = log.partitions[PLACE]
    records = [MemoryRecord(0, each.ms, each.key, each.payload(), each.all_headers()) for each in letters(names)]
    part.append_batch(records, producer="mirror", transactional=True)
    if aborts is not None:
        part.append_marker(1_000, producer="mirror", aborts=aborts)


@TELLING
@pytest.mark.parametrize(("aborts", "resume"), [(True, 4), (None, 4), (False, 9)], ids=["aborted", "open", "committed"])
def test_copies_that_a_job_may_never_see_take_the_place_of_none(
    aborts: bool | None, resume: int, identity: Identity
) -> None:
    """A mirror with transactions began to send again, and the source died: a job that reads committed records finds
    e, f and g only in front of what was sent again."""
    log = log_of(*letters("abcdefg"))
    sent(log, "cdefg", aborts=aborts)
    assert ask(log, anchor_of(rec("d"), identity), identity).resume_offset == resume
