"""Records delivered twice, and then retention or compaction that removed the first copies of some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity, Names
from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding
from tests.core.stories import BY_CONTENT, BY_ID, BY_INCREASING_ID, Rec, anchor_of, ask, letters, log_of

IDENTITIES = pytest.mark.parametrize(
    "identity", [BY_ID, BY_CONTENT, BY_INCREASING_ID], ids=["id", "fingerprint", "increasing id"]
)


def numbered(names: str) -> list[Rec]:
    """Letters whose ids are numbers in the same order."""
    return [replace(record, id=b"%d" % ord(record.name)) for record in letters(names)]


def resumes_by(finding: Finding, offset: int) -> bool:
    return finding.resume_offset is not None and finding.resume_offset <= offset


@IDENTITIES
def test_retention_took_the_first_copy_of_the_anchor(identity: Identity) -> None:
    """a b c d were sent, then a b again; a (the anchor) of the first run has expired: c and d are left only there."""
    log = log_of(*numbered("abcd ab"), deleted_before=1)
    assert resumes_by(ask(log, anchor_of(numbered("a")[0], identity), identity), 1)


@IDENTITIES
def test_retention_took_the_first_copy_of_the_next_record(identity: Identity) -> None:
    log = log_of(*numbered("abcd abc"), deleted_before=2)
    anchor = anchor_of(numbered("b")[0], identity, names=Names.NEXT)
    assert resumes_by(ask(log, anchor, identity), 2)


@IDENTITIES
def test_retention_left_only_a_tie_before_the_second_copy(identity: Identity) -> None:
    tie = [Rec(name, 500, id=b"%d" % ord(name)) for name in "abcab"]
    log = log_of(*tie, deleted_before=2)
    assert resumes_by(ask(log, anchor_of(tie[1], identity), identity), 2)


@IDENTITIES
def test_the_cleaner_removed_the_first_copy_because_its_key_recurs(identity: Identity) -> None:
    """A compacted topic keeps the last of each key: the first a and b go, c and d stay before the second ones."""
    keyed = [replace(record, key=record.name.encode()) for record in numbered("abcd ab")]
    log = log_of(*keyed, compacted=[0, 1])
    assert resumes_by(ask(log, anchor_of(keyed[0], identity), identity), 2)


@IDENTITIES
def test_the_bound_holds_when_the_cleaner_removed_first_copies_of_processed_records(identity: Identity) -> None:
    """a and b are a tie, b the anchor; a was sent again, so its first copy went: one record repeats."""
    a, b = (Rec(name, 500, id=b"%d" % ord(name), key=name.encode()) for name in "ab")
    finding = ask(log_of(a, b, a, compacted=[0]), anchor_of(b, identity), identity)
    if identity is BY_INCREASING_ID:  # its id says that it was processed
        assert (finding.resume_offset, finding.replay_exact) == (3, 0)
        return
    assert finding.resume_offset == 2
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 1


@IDENTITIES
def test_a_resend_right_after_the_anchor_is_stepped_over_where_ids_increase(identity: Identity) -> None:
    log = log_of(*numbered("abcd abcd e"))
    finding = ask(log, anchor_of(numbered("d")[0], identity), identity)
    expected = (8, 0) if identity is BY_INCREASING_ID else (4, None)
    assert (finding.resume_offset, finding.replay_exact) == expected


def test_records_without_an_id_are_not_stepped_over() -> None:
    records = numbered("abab c")
    nameless = replace(records[3], headers=())
    log = log_of(*records[:3], nameless, records[4])
    finding = ask(log, anchor_of(records[1], BY_INCREASING_ID), BY_INCREASING_ID)
    assert (finding.resume_offset, finding.replay_at_most) == (3, 1)


@IDENTITIES
def test_with_the_stated_disorder_the_bound_counts_records_whose_first_copy_expired(identity: Identity) -> None:
    """x (dated 30 later) and a were processed, and sent again; x's first copy has expired."""
    x, a, b = Rec("x", 530, id=b"1"), Rec("a", 500, id=b"2"), Rec("b", 600, id=b"3")
    log = log_of(x, a, b, x, deleted_before=1)
    finding = ask(log, anchor_of(a, identity), identity, limits=Limits(30))
    assert finding.resume_offset == 2
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 1


@IDENTITIES
def test_an_expired_prefix_that_leaves_older_records_changes_nothing(identity: Identity) -> None:
    names = numbered("abcdefg")
    finding = ask(log_of(*names, deleted_before=2), anchor_of(names[4], identity), identity)
    assert (finding.verdict.value, finding.resume_offset, finding.replay_at_most) == ("moved", 5, 0)


def test_the_second_copy_is_not_needed_when_everything_after_it_is_there_again() -> None:
    """The whole second run is there: resuming after either copy would be right; the first costs three records."""
    finding = ask(log_of(*letters("abcd abcde")), anchor_of(letters("c")[0]))
    assert finding.resume_offset in (3, 7)
    assert finding.replay_at_most is not None


def test_a_record_without_id_before_a_doubtful_copy_counts_whatever_its_time() -> None:
    """The stated disorder is too small: x was processed before b, and is dated much later."""
    a, b, c = numbered("abc")
    nameless = Rec("x", 900, headers=())
    log = log_of(a, c, nameless, b, deleted_before=1)
    finding = ask(log, anchor_of(b, BY_INCREASING_ID), BY_INCREASING_ID)
    assert (finding.resume_offset, finding.replay_at_most) == (1, 2)
