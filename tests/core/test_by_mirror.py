"""Bare offsets by the mirror's own pairs, each line of the argument in ``core.mirrored.by_pairs`` on a log of letters.

The letter a is the source's offset 0, b is 1, and so on.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.anchors import Identity, StoredOffset
from reconciler.core.mirrored.pairs import MirrorCheckpoint, MirrorEvidence, Pairs, Sync, evidence_for
from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding, Verdict
from tests.core.stories import BY_CONTENT, BY_ID, BY_INCREASING_ID, Marker, ask, letters, log_of
from tests.memory_log import MemoryLog

LATER = 10_000
IDENTITIES = (BY_ID, BY_CONTENT, BY_INCREASING_ID)
"""The letters are ids that increase, too."""


def by(
    log: MemoryLog,
    stored: int,
    *syncs: tuple[int, int],
    checkpoint: tuple[int, int] | None = None,
    identity: Identity = BY_ID,
    written_ms: int = LATER,
    own: dict[str, Any] | None = None,
    **words: Any,
) -> Finding:
    """The answer for the number ``stored``, with these pairs."""
    checkpoints = () if checkpoint is None else (MirrorCheckpoint("others", *checkpoint, written_ms),)
    pairs = Pairs(tuple(Sync(*sync, written_ms) for sync in syncs), checkpoints)
    return ask(log, StoredOffset(stored), identity, mirror=evidence_for(stored, pairs, **(own or {})), **words)


def place(finding: Finding) -> tuple[Verdict, int | None, int | None]:
    return finding.verdict, finding.resume_offset, finding.replay_at_most


@pytest.mark.parametrize("identity", IDENTITIES)
def test_a_sync_of_the_offset_itself_is_exact(identity: Identity) -> None:
    log = log_of(*letters("cdefgh"))
    assert place(by(log, 5, (5, 3), identity=identity)) == (Verdict.EXACT, 3, 0)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_between_two_syncs_of_equal_distance_every_offset_is_exact(identity: Identity) -> None:
    log = log_of(*letters("cdefghijk"))
    for stored in range(3, 11):
        found = by(log, stored, (2, 0), (10, 8), identity=identity)
        assert place(found) == (Verdict.EXACT, stored - 2, 0), stored


def test_numbers_that_are_missing_in_between_are_the_replay() -> None:
    """d and e are missing at the source: which of the numbers f takes, the distance does not tell."""
    log = log_of(*letters("abcfghij"))
    assert place(by(log, 5, (2, 2), (9, 7))) == (Verdict.EARLY, 3, 2)
    assert place(by(log, 7, (2, 2), (9, 7))) == (Verdict.EARLY, 5, 2)


def test_records_sent_again_between_two_syncs_do_not_count() -> None:
    log = log_of(*letters("abcde bcd fghij"))
    for stored in range(1, 10):
        found = by(log, stored, (0, 0), (9, 12))
        assert found.resume_offset == (stored if stored <= 4 else stored + 3), stored


def test_records_up_to_a_number_that_may_be_the_jobs_own_here_may_repeat() -> None:
    log = log_of(*letters("cdefgh"))
    assert place(by(log, 5, (5, 3), own={"own": 5})) == (Verdict.EARLY, 3, 2)
    assert place(by(log, 9, (9, 3), own={"own": 9})) == (Verdict.EXACT, 3, 0), "this log has no such number"


def test_more_records_than_numbers_contradict_the_syncs() -> None:
    log = log_of(*letters("abcdefgh"))
    found = by(log, 4, (0, 0), (5, 7))
    assert found.verdict is Verdict.UNRESOLVED
    assert "contradict the log" in found.detail


def test_markers_between_two_syncs_are_no_records() -> None:
    log = log_of(*letters("abc"), Marker(900), *letters("def"), Marker(900), *letters("ghi"))
    assert [by(log, stored, (0, 0), (8, 10)).resume_offset for stored in (2, 3, 5, 6)] == [2, 4, 6, 8]


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_of_the_offset_is_a_bound() -> None:
    log = log_of(*letters("cdefgh"))
    assert place(by(log, 5, checkpoint=(5, 3))) == (Verdict.EARLY, 3, 3)


def test_a_checkpoint_at_the_logs_end_follows_the_record_before_it() -> None:
    log = log_of(*letters("cdefgh"))
    assert place(by(log, 8, checkpoint=(8, 6))) == (Verdict.EARLY, 6, 0)


def test_a_checkpoint_leads_further_than_a_far_sync() -> None:
    log = log_of(*letters("abcdefgh"))
    assert place(by(log, 6, (0, 0), checkpoint=(5, 4))) == (Verdict.EARLY, 4, 4)


# ---------------------------------------------------------------- checkpoints of MirrorMaker before 3.5


def test_a_checkpoint_that_may_be_the_groups_own_number_proves_nothing() -> None:
    """The partition was empty at the source: z came to 5 later, and is the source's 10. It may be dated early."""
    log = log_of(*letters("uvwxyz"))
    found = by(log, 5, checkpoint=(5, 5))
    assert found.verdict is Verdict.UNRESOLVED
    assert 'MirrorMaker\'s checkpoint 5→5 of group "others" proves nothing' in found.detail
    assert by(log, 7, checkpoint=(5, 5)).verdict is Verdict.UNRESOLVED, "the group has gone on since"
    assert place(by(log, 5, (5, 0), checkpoint=(5, 5))) == (Verdict.EXACT, 0, 0)
    assert place(by(log, 7, (5, 0), (8, 3), checkpoint=(5, 5))) == (Verdict.EXACT, 2, 0)


# ---------------------------------------------------------------- offset 0


@pytest.mark.parametrize("mirror", [None, evidence_for(0, Pairs()), evidence_for(0, Pairs(), own=0)])
def test_nothing_was_processed_before_offset_0_so_the_logs_start_is_right(mirror: MirrorEvidence | None) -> None:
    for log in (log_of(*letters("abc")), log_of()):
        found = ask(log, StoredOffset(0), mirror=mirror)
        assert (place(found), found.replay_exact) == ((Verdict.EXACT, 0, 0), 0)
    assert ask(log_of(*letters("abc")), StoredOffset(1), mirror=mirror).verdict is Verdict.UNRESOLVED


def test_records_that_retention_has_deleted_behind_offset_0_were_never_processed() -> None:
    found = ask(log_of(*letters("abc"), deleted_before=2), StoredOffset(0))
    assert place(found) == (Verdict.LOST, 2, 0)
    assert found.detail == "the job has processed nothing, and retention has deleted the records before 2"


def test_offset_0_that_the_mirror_put_there_for_another_number_follows_from_its_checkpoint() -> None:
    """Retention has deleted the first two, and the group had processed them at the source."""
    log = log_of(*letters("abcdef"), deleted_before=2)
    pairs = Pairs((Sync(2, 2, LATER),), (MirrorCheckpoint("group", 2, 0, LATER),))
    assert place(ask(log, StoredOffset(0), mirror=evidence_for(2, pairs))) == (Verdict.EXACT, 2, 0)


# ---------------------------------------------------------------- pairs of other topics of the same name


def test_numbers_that_begin_again_with_a_new_record_are_of_a_topic_that_was_recreated() -> None:
    log = log_of(*letters("abcdef uvwxyz"))
    syncs = ((0, 0), (4, 4), (0, 6), (3, 9))
    for stored in range(1, 6):
        found = by(log, stored, *syncs)
        assert found.verdict is Verdict.UNRESOLVED
        assert "the source's topic was recreated" in found.detail
    again = log_of(*letters("abcdef abcdefgh"))
    assert [by(again, stored, *syncs).resume_offset for stored in range(1, 6)] == [1, 2, 3, 4, 5]


RENEWED = "abcdef uvwxyz"
"""a to f are 0 to 5 of the old topic, of the times 100 to 150, and u to z are 0 to 5 of the new one, from 300 on."""


def renewed(stored: int, pairs: Pairs, deleted_before: int = 0, letters_here: str = RENEWED, **words: Any) -> Finding:
    log = log_of(*letters(letters_here), deleted_before=deleted_before)
    return ask(log, StoredOffset(stored), BY_ID, mirror=evidence_for(stored, pairs), **words)


def test_a_record_that_is_newer_than_a_pair_of_a_larger_number_is_of_a_topic_that_was_recreated() -> None:
    """Also where that is a checkpoint's, or retention has passed the place where the numbers begin again."""
    by_checkpoints = Pairs((Sync(5, 5, 160),), (MirrorCheckpoint("other", 2, 8, 500),))
    by_syncs = Pairs((Sync(4, 4, 160), Sync(0, 6, 400), Sync(3, 9, 500)))
    for pairs, deleted in ((by_checkpoints, 0), (by_syncs, 7)):
        found = renewed(4, pairs, deleted)
        assert found.verdict is Verdict.UNRESOLVED
        assert "a record that is newer than a sync of a larger number" in found.detail
        assert "the source's topic was recreated" in found.detail
    disordered = renewed(4, by_syncs, 7, limits=Limits(max_disorder_ms=300))
    assert "newer than a sync" not in disordered.detail, "records may be dated so much later than those behind them"


def test_a_group_that_is_behind_another_one_is_no_sign_of_a_topic_that_was_recreated() -> None:
    pairs = Pairs((), (MirrorCheckpoint("one", 5, 5, 160), MirrorCheckpoint("other", 2, 8, 500)))
    assert renewed(4, pairs, letters_here="abcdef abcdef").resume_offset == 2
    assert (
        renewed(4, Pairs((), (MirrorCheckpoint("one", 5, 4, 160), MirrorCheckpoint("other", 2, 2, 500)))).resume_offset
        == 2
    )
