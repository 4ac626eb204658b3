"""A bare store and the store of its anchors: which anchor belongs to which offset."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, NotCreated
from reconciler.ports import Capabilities, Change, Row
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired.rules import AnchorRows, by_cluster, pair
from reconciler.stores.paired.steps import aside_of
from reconciler.stores.paired.store import PairedStore
from tests.stores.paired.pairs import GROUP, KEY, NOW, OTHER, Pair, anchor, made_for, named

BEFORE = replace(made_for(50), written_at_ms=NOW - 1)
"""A row that a correction replaced."""


@pytest.fixture
def both() -> Pair:
    return Pair()


# ---------------------------------------------------------------- which anchor belongs to which offset


GONE_BACK = "its anchor was made for the later offset 50: the stored offset went back since"


@pytest.mark.parametrize(
    ("offset", "used", "lag", "note"),
    [(50, anchor(41), 0, ""), (62, anchor(41), 12, ""), (30, None, None, GONE_BACK), (-1, None, None, "")],
)
def test_an_anchor_is_exact_for_its_offset_lags_behind_later_ones_and_is_not_used_for_earlier_ones(
    both: Pair, offset: int, used: Anchor | None, lag: int | None, note: str
) -> None:
    both.job_stores(offset)
    both.keep(made_for(50, record=41))
    both.keep(made_for(9), OTHER)
    (row,) = both.store.read(GROUP)
    assert (row.stored.offset, row.stored.anchor, row.anchor_lag, row.note) == (offset, used, lag, note)


def test_an_anchor_without_a_record_still_says_whose_number_a_later_offset_is(both: Pair) -> None:
    both.keep(StoredOffset(0, Anchor(cluster_id="a")))
    both.job_stores(0)
    assert both.believed() == (0, (None, "a"))
    both.job_stores(7)
    row = both.row()
    assert row is not None
    assert (both.believed(), row.anchor_lag) == ((7, (None, "a")), 7)
    assert "with no record before it" in row.note


@pytest.mark.parametrize(
    ("offset", "main", "aside", "expected"),
    [
        (55, made_for(50), made_for(30, "b"), (49, 25)),  # from 50 of a, or on from 30 of b
        (55, made_for(50), made_for(80, "b"), (49, 5)),
        (55, made_for(30, "b"), BEFORE, (49, 25)),  # a rollback: the row that it puts back was first
        (45, made_for(30, "b"), BEFORE, None),
        (45, made_for(80, "b"), replace(BEFORE, offset=40), (49, 5)),
        (55, made_for(30, "b"), replace(BEFORE, written_at_ms=None), (49, 25)),
        (55, made_for(30, "b"), StoredOffset(50), (None, 25)),  # to a row without an anchor
        (55, made_for(30, "b"), StoredOffset(-1), (None, 55)),
        (20, made_for(30, "b"), StoredOffset(10), None),
        (55, StoredOffset(0, Anchor(cluster_id="a")), made_for(30, "b"), (None, 55)),
    ],
)
def test_an_offset_in_either_of_two_numberings_has_the_first_anchor_and_no_numbering(
    offset: int, main: StoredOffset, aside: StoredOffset, expected: tuple[int | None, int] | None
) -> None:
    """An anchor of the destination would be at its own offset there, and prove the source's number."""
    found = pair(offset, AnchorRows(Row(KEY, main, "1"), Row(aside_of(KEY), aside, "2")))
    if expected is None:
        assert (found.anchor, "the stored offset went back since" in found.why) == (None, True)
        return
    assert found.anchor is not None
    assert (found.anchor.offset, found.lag) == expected
    assert (found.anchor.cluster_id, found.anchor.topic_id) == (None, None)
    assert found.why.startswith("a write was interrupted and the job has gone on")


def test_the_rows_own_time_counts_if_the_bare_store_has_it() -> None:
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


# ---------------------------------------------------------------- the rest


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


def test_a_topic_with_the_reserved_suffix_is_refused(both: Pair) -> None:
    with pytest.raises(ConfigError, match=r"cannot be called 'events\.being-written'"):
        both.store.read(GROUP, ["events", aside_of(KEY).topic])


# ---------------------------------------------------------------- a group's commits, and what track copied of them

HERE = "b"
group_rule = by_cluster(lambda: HERE)


def commit(offset: int, stored: Anchor | None = None, at_ms: int | None = None) -> Row:
    return Row(KEY, StoredOffset(offset, stored, at_ms), "own")


def kept(stored: StoredOffset) -> AnchorRows:
    return AnchorRows(Row(KEY, stored, "kept"))


def read(own: Row | None, of: AnchorRows) -> tuple[int, tuple[int | None, str | None] | None, int | None] | None:
    row = group_rule(KEY, own, of)
    return None if row is None else (*named(row.stored), row.anchor_lag)  # type: ignore[misc]


def test_a_copied_row_of_the_sources_group_counts_if_the_destination_has_none() -> None:
    assert read(None, kept(made_for(50, "a", record=41))) == (50, (41, "a"), 0)


@pytest.mark.parametrize("now", ["b/events", ""])
def test_where_both_clusters_report_one_id_the_topics_id_tells_a_copied_row(now: str) -> None:
    """Under the source's name there may be no topic here."""
    one_id = by_cluster(lambda: "a", lambda _: now)
    row = one_id(KEY, None, kept(made_for(50, "a")))
    assert row is not None
    assert (row.stored.offset, row.is_copy) == (50, True)
    own = replace(made_for(50, "a"), anchor=replace(anchor(49), topic_id=now or None))
    assert one_id(KEY, None, kept(own)) is None


def test_an_offset_translated_by_the_mirror_gets_the_copied_anchor() -> None:
    """With the identity topic policy both topics have one name; their offsets are unrelated."""
    for translated in (12, 50, 900):
        assert read(commit(translated), kept(made_for(50, "a"))) == (translated, (49, "a"), 0)


def test_a_job_that_continues_at_the_destination_is_paired_with_applys_anchor() -> None:
    assert read(commit(45), kept(made_for(30, HERE))) == (45, (29, HERE), 15)
    assert read(commit(30), kept(made_for(30, HERE))) == (30, (29, HERE), 0)
    assert read(commit(45), AnchorRows(None, Row(aside_of(KEY), made_for(30, HERE), "x"))) == (45, (29, HERE), 15)
    gone_back = group_rule(KEY, commit(20), kept(made_for(30, HERE)))
    assert gone_back is not None
    assert (gone_back.stored.anchor, "later offset 30" in gone_back.note) == (None, True)


def test_of_an_anchor_in_the_commit_and_a_copy_the_later_counts() -> None:
    carried = anchor(40, "a")
    copied = StoredOffset(50, anchor(49), 200)
    assert read(commit(33, carried, 100), kept(copied)) == (33, (49, "a"), 0)
    assert read(commit(33, carried, 300), kept(copied)) == (33, (40, "a"), 0)
    assert read(commit(33, anchor(32, HERE), 300), kept(copied)) == (33, (32, HERE), None)


# ---------------------------------------------------------------- a store of anchors that does not exist yet


class NotYet(MemoryStore):
    """A store of anchors that its first write creates."""

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        rows = super().read(group, topics)
        if not rows:
            raise NotCreated("There is no store.")
        return rows


def test_a_store_of_anchors_that_does_not_exist_yet_keeps_none_and_the_row_says_what_to_run(both: Pair) -> None:
    both.job_stores(50)
    (row,) = PairedStore(both.bare, NotYet(uuid.uuid4().hex)).read(GROUP)
    assert (row.stored.offset, row.stored.anchor) == (50, None)
    assert re.match(r"no anchors yet: the \[anchors\] store memory:\w+ does not exist\. Run reconciler track", row.note)


# ---------------------------------------------------------------- the groups of a pair


class Unlisted(MemoryStore):
    """A store that cannot name the groups it holds rows of."""

    groups = None  # type: ignore[assignment]


def test_a_pair_names_groups_where_one_of_its_stores_can() -> None:
    name = uuid.uuid4().hex
    first = [Change(KEY, None, StoredOffset(1, None))]
    table, anchors = Unlisted(f"{name}-table"), MemoryStore(f"{name}-anchors")
    anchors.write(GROUP, first, reason="test", now_ms=NOW)
    assert PairedStore(table, anchors).groups() == [GROUP]
    assert PairedStore(MemoryStore(f"{name}-anchors"), Unlisted(f"{name}-others")).groups() == [GROUP]
    assert PairedStore(table, Unlisted(f"{name}-others")).groups() is None
