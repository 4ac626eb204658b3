"""A bare store and the store of its anchors: no offset is believed with another's anchor, whatever goes wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from bare import BareStore, Faults, Faulty, Killed

from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.ports import Capabilities, Change, Row, TopicPartition
from reconciler.stores.common import PutBack
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import PairedStore
from reconciler.stores.paired_rules import Kept, by_cluster, by_offset, pair
from reconciler.stores.paired_steps import ASIDE, aside_of

GROUP, NOW = "readers", 1_700_000_000_000
KEY, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)


def anchor(offset: int, cluster: str = "a", **more: object) -> Anchor:
    named = {"timestamp_ms": 1_000 + offset, "fingerprint": fingerprint(b"%d" % offset, None)}
    return Anchor(offset, cluster_id=cluster, topic_id=f"{cluster}/events", **{**named, **more})


def made_for(offset: int, cluster: str = "a", record: int | None = None) -> StoredOffset:
    """A stored offset with the anchor that was made for it."""
    return StoredOffset(offset, anchor(offset - 1 if record is None else record, cluster), NOW)


class Pair:
    """Both stores, and what is in them by partition 0."""

    def __init__(self, *, atomic: bool = True, dated: bool = False) -> None:
        name = uuid.uuid4().hex
        self.faults = Faults()
        self.bare = BareStore(f"{name}-bare", atomic=atomic, dated=dated)
        self.anchors = MemoryStore(f"{name}-anchors")
        self.store = self.another()

    def another(self, faults: Faults | None = None) -> PairedStore:
        """The same two stores as another process opens them."""
        faults = faults or self.faults
        return PairedStore(Faulty(self.bare, "bare", faults), Faulty(self.anchors, "anchors", faults))

    def job_stores(self, offset: int | None, key: TopicPartition = KEY) -> None:
        self._put(self.bare, key, None if offset is None else StoredOffset(offset))

    def keep(self, stored: StoredOffset | None, key: TopicPartition = KEY) -> None:
        self._put(self.anchors, key, stored)

    def _put(self, store: MemoryStore, key: TopicPartition, stored: StoredOffset | None) -> None:
        there = {row.key: row.version for row in store.read(GROUP)}
        if stored is None and key not in there:
            return
        assert store.write(GROUP, [Change(key, there.get(key), stored)], reason="test", now_ms=NOW).written

    def row(self, key: TopicPartition = KEY) -> Row | None:
        return next((row for row in self.another(Faults()).read(GROUP) if row.key == key), None)

    def believed(self) -> tuple[int, tuple[int | None, str | None] | None] | None:
        """The stored offset, and record and cluster of the anchor that it is read with."""
        row = self.row()
        return None if row is None else named(row.stored)

    def write(self, new: StoredOffset | None, store: PairedStore | None = None, kind: type[Change] = Change) -> bool:
        row = self.row()
        change = kind(KEY, row.version if row else None, new)
        return bool((store or self.store).write(GROUP, [change], reason="test", now_ms=NOW).written)

    @property
    def left_aside(self) -> bool:
        return any(row.key.topic.endswith(ASIDE) for row in self.anchors.read(GROUP))


def named(stored: StoredOffset | None) -> tuple[int, tuple[int | None, str | None] | None] | None:
    if stored is None:
        return None
    return stored.offset, (stored.anchor.offset, stored.anchor.cluster_id) if stored.anchor else None


@pytest.fixture
def both() -> Pair:
    return Pair()


# ---------------------------------------------------------------- which anchor belongs to which offset


def test_an_anchor_that_was_made_for_the_stored_offset_is_exact_although_a_gap_parts_their_numbers(both: Pair) -> None:
    both.job_stores(50)
    both.keep(made_for(50, record=41))
    row = both.row()
    assert row is not None
    assert (row.stored.offset, row.stored.anchor, row.anchor_lag) == (50, anchor(41), 0)


def test_an_anchor_that_was_made_for_an_older_offset_lags_by_the_difference(both: Pair) -> None:
    both.job_stores(62)
    both.keep(made_for(50, record=41))
    row = both.row()
    assert row is not None
    assert (row.stored.offset, row.stored.anchor, row.anchor_lag) == (62, anchor(41), 12)


def test_an_anchor_that_was_made_for_a_later_offset_is_not_believed_and_the_row_says_why(both: Pair) -> None:
    both.job_stores(30)
    both.keep(made_for(50))
    row = both.row()
    assert row is not None
    assert (row.stored, row.anchor_lag) == (StoredOffset(30), None)
    assert row.note == "its anchor was made for the later offset 50: the stored offset went back since"


def test_an_anchor_that_names_nothing_belongs_only_to_the_offset_it_was_made_for(both: Pair) -> None:
    both.keep(StoredOffset(0, Anchor(cluster_id="a")))
    both.job_stores(0)
    assert both.believed() == (0, (None, "a"))
    both.job_stores(7)
    row = both.row()
    assert row is not None
    assert row.stored.anchor is None
    assert "no record was there to name" in row.note


def test_what_lies_aside_is_believed_in_an_exact_pair_only(both: Pair) -> None:
    main, aside = Row(KEY, made_for(50), "1"), Row(aside_of(KEY), made_for(30, "b"), "2")
    kept = Kept(main, aside)
    assert pair(30, kept).anchor == anchor(29, "b")
    assert pair(31, kept).anchor is None
    assert (pair(55, kept).anchor, pair(55, kept).lag) == (anchor(49), 5)
    assert pair(30, Kept(Row(KEY, made_for(30), "1"), aside)).anchor == anchor(29)


def test_a_row_without_a_kept_anchor_has_none_and_no_row_comes_of_an_anchor_alone(both: Pair) -> None:
    both.job_stores(50)
    both.keep(made_for(9), OTHER)
    rows = both.store.read(GROUP)
    assert [(row.key, row.stored, row.note) for row in rows] == [(KEY, StoredOffset(50), "")]


def test_a_sentinel_has_no_anchor(both: Pair) -> None:
    both.job_stores(-1)
    both.keep(made_for(50))
    row = both.row()
    assert row is not None
    assert (row.stored, row.note) == (StoredOffset(-1), "")


def test_the_rows_own_time_counts_where_the_bare_store_knows_it() -> None:
    for dated, at_ms in ((True, NOW), (False, 77)):
        both = Pair(dated=dated)
        both.job_stores(50)
        both.keep(replace(made_for(50), written_at_ms=77))
        row = both.row()
        assert row is not None
        assert row.stored.written_at_ms == at_ms


def test_a_version_changes_with_the_offset_and_with_the_anchor(both: Pair) -> None:
    seen = []
    for change in (
        lambda: both.job_stores(50),
        lambda: both.keep(made_for(50)),
        lambda: both.job_stores(50),
        lambda: both.keep(made_for(50)),
    ):
        change()
        row = both.row()
        assert row is not None
        seen.append(row.version)
    assert len({*seen}) == 4
    row = both.row()
    both.keep(made_for(50))
    assert row is not None
    result = both.store.write(GROUP, [Change(KEY, row.version, made_for(30, "b"))], reason="test", now_ms=NOW)
    assert (result.written, result.conflicts) == ((), (KEY,))
    assert both.believed() == (50, (49, "a"))


# ---------------------------------------------------------------- killed between any two writes

CASES: dict[str, tuple[StoredOffset | None, StoredOffset | None, StoredOffset | None]] = {
    # what the job has stored with what is kept for it; and what is to be written
    "to smaller numbers of another cluster": (made_for(50), made_for(50), made_for(30, "b")),
    "to larger numbers of another cluster": (made_for(50), made_for(50), made_for(80, "b")),
    "to the same number of another cluster": (made_for(50), made_for(50), made_for(50, "b")),
    "from a lagging pair": (StoredOffset(60), made_for(50), made_for(30, "b")),
    "from a pair that does not belong together": (StoredOffset(40), made_for(50), made_for(30, "b")),
    "from a row without an anchor": (StoredOffset(50), None, made_for(30, "b")),
    "on in the same numbers": (made_for(50, "b"), made_for(50, "b"), made_for(70, "b")),
    "back in the same numbers": (made_for(50, "b"), made_for(50, "b"), made_for(30, "b")),
    "a row that was not there": (None, None, made_for(30, "b")),
    "back to a row without an anchor": (made_for(30, "b"), made_for(30, "b"), StoredOffset(50)),
    "deleting": (made_for(30, "b"), made_for(30, "b"), None),
}


def prepared(case: str) -> tuple[Pair, StoredOffset | None]:
    own, kept, new = CASES[case]
    both = Pair()
    both.job_stores(own.offset if own else None)
    both.keep(kept)
    return both, new


def die() -> None:
    raise Killed


def killed_at_every_write(case: str) -> list[tuple[Pair, bool]]:
    """The stores as a write leaves them that is killed before and after each of its steps; True once X is written."""
    found = []
    for number in range(1, 9):
        for moment in ("before", "after"):
            both, new = prepared(case)
            dying = Faults(at=number, **{moment: die})
            try:
                both.write(new, both.another(dying))
            except Killed:
                done = dying.calls[:-1] if moment == "before" else dying.calls
                found.append((both, "bare" in done))
    assert len(found) >= 4
    assert {written for _, written in found} == {True, False}
    return found


@pytest.mark.parametrize("case", CASES)
def test_after_a_kill_a_row_reads_as_it_was_or_as_it_was_to_be(case: str) -> None:
    before, new = prepared(case)
    allowed = {before.believed(), named(new)}
    for both, _ in killed_at_every_write(case):
        assert both.believed() in allowed


@pytest.mark.parametrize("case", CASES)
def test_after_a_kill_the_second_run_finishes(case: str) -> None:
    for both, _ in killed_at_every_write(case):
        _, new = prepared(case)
        if both.believed() != named(new):
            assert both.write(new)
        assert both.believed() == named(new)
        assert not both.left_aside
        kept = [row.stored for row in both.anchors.read(GROUP)]
        assert kept == ([new] if new and new.anchor else [])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step", [-3, 3])
def test_a_job_that_goes_on_after_a_kill_is_never_given_the_anchor_of_another_numbering(case: str, step: int) -> None:
    """Its numbers are those of the side it is on. The other side's anchor may stand for it only where it lags."""
    own, _, new = CASES[case]
    for both, written in killed_at_every_write(case):
        last = new if written else own
        if last is None:
            continue
        both.job_stores(last.offset + step)
        believed = both.believed()
        assert believed is not None
        if believed[1] is None:
            continue
        cluster = believed[1][1]
        theirs = {item.anchor.cluster_id for item in (own, new) if item and item.anchor} - {cluster}
        if written and own is not None and cluster == "a":
            assert believed[0] > own.offset, "the source's anchor, of a record processed before the correction"
        elif not written:
            assert cluster != "b" or "a" not in theirs


def test_a_reader_finishes_what_was_killed_and_the_job_may_go_on(both: Pair) -> None:
    both.job_stores(50)
    both.keep(made_for(50))
    with pytest.raises(Killed):
        both.write(made_for(30, "b"), both.another(Faults(at=2, after=die)))
    assert both.left_aside
    assert both.believed() == (30, (29, "b"))
    assert not both.left_aside
    both.job_stores(45)
    row = both.row()
    assert row is not None
    assert (named(row.stored), row.anchor_lag) == ((45, (29, "b")), 15)


def test_a_reader_that_may_not_write_reads_what_was_killed_all_the_same(both: Pair) -> None:
    both.job_stores(50)
    both.keep(made_for(50))
    with pytest.raises(Killed):
        both.write(made_for(30, "b"), both.another(Faults(at=2, after=die)))

    def refuse() -> None:
        raise Refused("This user may not write there.")

    (row,) = both.another(Faults(at=1, before=refuse)).read(GROUP)
    assert named(row.stored) == (30, (29, "b"))


def test_a_write_that_nothing_disturbs_leaves_nothing_aside(both: Pair) -> None:
    for new in (made_for(50), made_for(60), made_for(30, "b"), made_for(30), StoredOffset(12), made_for(9), None):
        assert both.write(new)
        assert both.believed() == named(new)
        assert not both.left_aside


# ---------------------------------------------------------------- errors


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_answer_that_got_lost_is_told_as_such_and_a_second_write_finishes(both: Pair, moment: str) -> None:
    both.write(made_for(50))
    unknown = raising(OutcomeUnknown("The answer got lost."))
    with pytest.raises(OutcomeUnknown, match=r"^The answer got lost\.$"):
        both.write(made_for(30, "b"), both.another(Faults(at=2, **{moment: unknown})))
    assert both.believed() == ((30, (29, "b")) if moment == "after" else (50, (49, "a")))
    if moment == "before":
        assert both.write(made_for(30, "b"))
    assert both.believed() == (30, (29, "b"))


@pytest.mark.parametrize("error", [Unreachable("It is away."), Refused("It said no.")])
def test_a_bare_store_that_says_no_has_nothing_written(both: Pair, error: Exception) -> None:
    both.write(made_for(50))
    before = both.row()
    with pytest.raises(type(error), match=str(error)):
        both.write(made_for(30, "b"), both.another(Faults(at=2, before=raising(error))))
    assert both.row() == before
    assert not both.left_aside


@pytest.mark.parametrize("error", [Unreachable("It is away."), OutcomeUnknown("The answer got lost.")])
def test_an_anchor_store_that_fails_first_leaves_the_offsets_alone(both: Pair, error: Exception) -> None:
    both.write(made_for(50))
    with pytest.raises(Unreachable, match=r"The \[anchors\] store: "):
        both.write(made_for(30, "b"), both.another(Faults(at=1, before=raising(error))))
    assert both.believed() == (50, (49, "a"))
    assert [row.stored.offset for row in both.bare.read(GROUP)] == [50]


def test_an_anchor_store_that_fails_last_is_an_unknown_outcome_that_the_next_reading_settles(both: Pair) -> None:
    both.write(made_for(50))
    away = raising(Unreachable("It is away."))
    with pytest.raises(OutcomeUnknown, match="and not yet all of their anchors"):
        both.write(made_for(30, "b"), both.another(Faults(at=3, before=away)))
    assert both.believed() == (30, (29, "b"))
    assert not both.left_aside


@pytest.mark.parametrize("atomic", [True, False])
def test_a_job_that_stores_in_the_middle_of_a_write_wins(atomic: bool) -> None:
    both = Pair(atomic=atomic)
    both.write(made_for(50))
    both.job_stores(7, OTHER)
    rows = {row.key: row for row in both.store.read(GROUP)}
    changes = [Change(KEY, rows[KEY].version, made_for(30, "b")), Change(OTHER, rows[OTHER].version, made_for(3, "b"))]
    midst = both.another(Faults(at=2, before=lambda: both.job_stores(60)))
    result = midst.write(GROUP, changes, reason="test", now_ms=NOW)
    assert result.conflicts == ((KEY, OTHER) if atomic else (KEY,))
    assert result.written == (() if atomic else (OTHER,))
    assert both.believed() == (60, (49, "a"))
    other = both.row(OTHER)
    assert other is not None
    assert named(other.stored) == ((7, None) if atomic else (3, (2, "b")))
    assert not both.left_aside


def test_a_job_that_stores_while_its_row_is_deleted_keeps_its_anchor(both: Pair) -> None:
    both.write(made_for(50))
    row = both.row()
    assert row is not None
    midst = both.another(Faults(at=3, before=lambda: both.job_stores(60)))
    result = midst.write(GROUP, [Change(KEY, row.version, None)], reason="test", now_ms=NOW)
    assert result.conflicts == (KEY,)
    assert both.believed() == (60, (49, "a"))
    assert not both.left_aside


def test_a_tracker_that_saves_in_the_middle_of_a_write_does_not_have_the_last_word(both: Pair) -> None:
    both.write(made_for(50))
    midst = both.another(Faults(at=2, after=lambda: both.keep(made_for(50, record=48))))
    assert both.write(made_for(30, "b"), midst)
    assert both.believed() == (30, (29, "b"))


def test_what_a_third_wrote_right_after_is_not_given_this_writes_anchor(both: Pair) -> None:
    both.write(made_for(50))
    midst = both.another(Faults(at=2, after=lambda: both.write(made_for(90))))
    both.write(made_for(30, "b"), midst)
    assert both.believed() == (90, (89, "a"))
    assert not both.left_aside


def test_anchors_that_never_stand_still_are_not_read(both: Pair) -> None:
    both.write(made_for(50))

    class Restless(MemoryStore):
        def read(self, group: str, topics: object = None) -> list[Row]:
            both.keep(made_for(50))
            return both.anchors.read(group)

    with pytest.raises(Unreachable, match="changed each of 8 times"):
        PairedStore(both.bare, Restless()).read(GROUP)


@pytest.mark.parametrize("new", [made_for(30, "b"), made_for(80, "b")])
def test_a_write_between_the_two_readings_is_not_read_half(both: Pair, new: StoredOffset) -> None:
    both.write(made_for(50))

    class Interrupted(BareStore):
        times = 0

        def read(self, group: str, topics: object = None) -> list[Row]:
            found = both.bare.read(group)
            self.times += 1
            if self.times == 1:
                both.write(new)
            return found

    (row,) = PairedStore(Interrupted("unused"), both.anchors).read(GROUP)
    assert named(row.stored) == named(new)


# ---------------------------------------------------------------- the rest


def test_a_row_put_back_brings_its_text_and_is_not_dated(both: Pair) -> None:
    seen: list[Change] = []

    class Watched(BareStore):
        def write(self, group, changes, **more):  # type: ignore[no-untyped-def]
            seen.extend(changes)
            return super().write(group, changes, **more)

    store = PairedStore(Watched(f"{uuid.uuid4()}"), both.anchors)
    store.write(GROUP, [Change(KEY, None, made_for(30, "b"))], reason="apply", now_ms=NOW)
    (row,) = store.read(GROUP)
    before = replace(made_for(50), written_at_ms=None)
    store.write(GROUP, [PutBack(KEY, row.version, before, "to the byte")], reason="rollback", now_ms=NOW)
    assert isinstance(seen[-1], PutBack)
    assert (seen[-1].text, seen[-1].new) == ("to the byte", before)
    assert [kept.stored for kept in both.anchors.read(GROUP)] == [before]


def test_what_the_pair_can_do_is_what_the_bare_store_can_and_keep_anchors() -> None:
    both = Pair(atomic=False)
    assert both.store.capabilities == Capabilities(keeps_anchors=True, atomic_batches=False)
    assert both.store.address == both.bare.address


@pytest.mark.parametrize(
    "able",
    [
        Capabilities(keeps_anchors=False),
        Capabilities(writable=False),
        Capabilities(translated_by_mirror=True),
    ],
)
def test_a_store_that_cannot_keep_anchors_is_refused(both: Pair, able: Capabilities) -> None:
    class Unable(MemoryStore):
        capabilities = able  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="cannot keep the anchors of other stores"):
        PairedStore(both.bare, Unable())


def test_a_topic_that_would_be_taken_for_what_lies_aside_is_refused(both: Pair) -> None:
    with pytest.raises(ConfigError, match=r"cannot be called 'events\.being-written'"):
        both.store.read(GROUP, ["events", aside_of(KEY).topic])


def test_what_may_not_be_written_is_refused_by_whichever_store_it_is(both: Pair) -> None:
    class Closed(MemoryStore):
        def check_writable(self, group: str) -> None:
            raise Refused("The file may not be written.", hint="Make it writable.")

    with pytest.raises(Refused, match=r"^The \[anchors\] store: The file may not be written\. Make it writable\.$"):
        PairedStore(both.bare, Closed()).check_writable(GROUP)


# ---------------------------------------------------------------- a group's commits, and what track copied of them

HERE = "b"
ours, theirs = TopicPartition("a.events", 0), KEY
group_rule = by_cluster(lambda: HERE)


def commit(offset: int, stored: Anchor | None = None, at_ms: int | None = None) -> Row:
    return Row(KEY, StoredOffset(offset, stored, at_ms), "own")


def kept(stored: StoredOffset) -> Kept:
    return Kept(Row(KEY, stored, "kept"))


def read(own: Row | None, of: Kept) -> tuple[int, tuple[int | None, str | None] | None, int | None] | None:
    row = group_rule(KEY, own, of)
    return None if row is None else (*named(row.stored), row.anchor_lag)  # type: ignore[misc]


def test_what_was_copied_of_the_sources_group_is_a_row_where_the_destination_has_none() -> None:
    assert read(None, kept(made_for(50, "a", record=41))) == (50, (41, "a"), 0)


def test_an_anchor_of_this_cluster_makes_no_row_of_its_own() -> None:
    assert read(None, kept(made_for(30, HERE))) is None


def test_an_offset_that_the_mirror_translated_has_the_anchor_that_was_copied() -> None:
    """With the identity topic policy both have one name; their numbers have nothing to do with each other."""
    for translated in (12, 50, 900):
        assert read(commit(translated), kept(made_for(50, "a"))) == (translated, (49, "a"), 0)


def test_a_job_that_goes_on_at_the_destination_is_paired_with_what_apply_wrote_there() -> None:
    assert read(commit(45), kept(made_for(30, HERE))) == (45, (29, HERE), 15)
    assert read(commit(30), kept(made_for(30, HERE))) == (30, (29, HERE), 0)
    assert read(commit(45), Kept(None, Row(aside_of(KEY), made_for(30, HERE), "x"))) == (45, (29, HERE), 15)
    gone_back = group_rule(KEY, commit(20), kept(made_for(30, HERE)))
    assert gone_back is not None
    assert (gone_back.stored.anchor, "later offset 30" in gone_back.note) == (None, True)


def test_of_an_anchor_in_the_commit_and_a_copy_the_later_speaks() -> None:
    carried = anchor(40, "a")
    copied = StoredOffset(50, anchor(49), 200)
    assert read(commit(33, carried, 100), kept(copied)) == (33, (49, "a"), 0)
    assert read(commit(33, carried, 300), kept(copied)) == (33, (40, "a"), None)
    assert read(commit(33, anchor(32, HERE), 300), kept(copied)) == (33, (32, HERE), None)


def test_a_commit_that_nothing_is_kept_for_stays_as_it_is_and_no_cluster_is_asked() -> None:
    def never() -> str:
        raise AssertionError("asked")

    row = by_cluster(never)(KEY, commit(33), Kept())
    assert row is not None
    assert row.stored == StoredOffset(33)


def test_by_offset_an_anchor_that_names_the_next_record_lags_too() -> None:
    following = StoredOffset(50, anchor(50, names=Names.NEXT))
    row = by_offset(KEY, commit(60), kept(following))
    assert row is not None
    assert (row.stored.anchor, row.anchor_lag) == (following.anchor, 10)
