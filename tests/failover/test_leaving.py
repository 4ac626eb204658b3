"""A group is as far as its commits say on the cluster that its job leaves, while that answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.failover.leaving import Leaving, Left, LivingGroups, beside
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.memory import MemoryStore

HERE, THERE = TopicPartition("a.events", 0), TopicPartition("events", 0)
KEPT = Anchor(14, 5, None, None, "b", None)
"""Of the record before 15, as ``track`` has kept it."""


def copied(offset: int = 15) -> Row:
    return Row(HERE, StoredOffset(offset, KEPT), "copy", anchor_lag=0, is_copy=True)


class Known(MemoryStore):
    """What is known at the destination."""

    def __init__(self, *rows: Row) -> None:
        super().__init__("known")
        self.rows = rows

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [row for row in self.rows if topics is None or row.key.topic in topics]


def read(*known: Row, commit: StoredOffset | None, was_there: bool = False) -> dict[TopicPartition, Row]:
    def commits(group: str, topics: Collection[str]) -> Iterable[Row]:
        assert (group, set(topics)) == ("clicks", {HERE.topic})
        return [] if commit is None else [Row(HERE, commit, "1")]

    groups = {"clicks": Leaving([HERE.topic], was_there)}
    store = LivingGroups(Known(*known), groups, Left(lambda: "b", commits))
    return {row.key: row for row in store.read("clicks", [HERE.topic, THERE.topic])}


def test_work_since_the_last_copy_is_counted() -> None:
    assert read(copied(), commit=StoredOffset(22))[HERE] == replace(copied(), anchor_lag=7)


def test_a_copy_of_the_commit_itself_is_exact_whatever_lies_before_it() -> None:
    assert read(copied(16), commit=StoredOffset(16))[HERE] == copied(16)


def test_a_commit_that_names_its_own_record_needs_no_copy() -> None:
    own = StoredOffset(22, Anchor(21, 6, b"x", None, "b", None))
    assert read(commit=own)[HERE].stored == own
    assert read(copied(), commit=own)[HERE].stored.anchor == own.anchor


def test_a_number_at_the_destination_stays_what_a_correction_replaces() -> None:
    """Under one name: the group's own commit there, with the record that the copy names."""
    joined = Row(HERE, StoredOffset(704, KEPT), "v", anchor_lag=0)
    found = read(joined, commit=StoredOffset(22))[HERE]
    assert (found.stored.offset, found.version, found.anchor_lag) == (704, "v", 7)


@pytest.mark.parametrize("known", [(), (Row(HERE, StoredOffset(704), "v"),)], ids=["nothing", "its earlier stay's"])
def test_a_group_that_comes_back_is_not_where_it_was(known: tuple[Row, ...]) -> None:
    """Its commit of the earlier stay would pass for the job's: all work since would come again, and not be counted."""
    found = read(*known, commit=StoredOffset(22), was_there=True)[HERE]
    assert found.malformed is not None
    assert "has committed 22 of a.events-0 where its job lives" in found.malformed.message
    assert "reconciler track --once" in found.malformed.hint
    assert read(*known, commit=StoredOffset(22)) == {row.key: row for row in known}, "the mirror's evidence counts"


def test_a_commit_below_its_copy_was_set_back() -> None:
    assert read(copied(), commit=StoredOffset(9))[HERE].malformed is not None


@pytest.mark.parametrize("commit", [None, StoredOffset(0)])
def test_a_group_that_has_committed_nothing_says_nothing(commit: StoredOffset | None) -> None:
    assert read(copied(), commit=commit)[HERE] == copied()


def test_a_cluster_that_is_lost_is_needed_for_nothing() -> None:
    def lost(*_: object) -> Iterable[Row]:
        raise Unreachable("No answer.")

    groups = {"clicks": Leaving([HERE.topic], was_there=True)}
    store = LivingGroups(Known(copied()), groups, Left(lambda: "b", lost))
    assert store.read("clicks") == [copied()]
    assert store.read("others") == [copied()]


def test_all_else_is_the_stores_own() -> None:
    known = Known()
    store = LivingGroups(known, {}, Left(lambda: "b", lambda *_: ()))
    assert store.capabilities == known.capabilities
    assert store.write("g", [Change(HERE, None, StoredOffset(1))], reason="test", now_ms=1).written == (HERE,)


def test_what_a_move_has_written_is_read_back_as_it_is() -> None:
    row = Row(HERE, StoredOffset(704), "v")
    groups = {"clicks": Leaving([HERE.topic], was_there=True)}
    store = LivingGroups(Known(row), groups, Left(lambda: "b", lambda *_: [Row(HERE, StoredOffset(22), "1")]))
    assert store.read("clicks")[0].malformed is not None
    store.write("clicks", [], reason="test", now_ms=1)
    assert store.read("clicks") == [row]


def test_jobs_that_share_a_group_are_looked_at_together(tmp_path: Path) -> None:
    table = '[[jobs]]\nname = "{0}"\nhome = "a"\ngroup = "clicks"\ntopics = ["{0}"]\noffsets = "kafka-group:"\n'
    path = tmp_path / "reconciler.toml"
    clusters = '[clusters.a]\nbootstrap_servers = "a:1"\n[clusters.b]\nbootstrap_servers = "b:1"\n'
    path.write_text(clusters + table.format("events") + table.format("more"))
    config = load_config(path, {})
    at_home = beside(config, lambda address: MemoryStore(address))("kafka-group:")
    assert isinstance(at_home, MemoryStore), "where no location is known, there is nothing to compare"
    leaving = replace(config, jobs=tuple(replace(job, moved=False) for job in config.jobs))
    store = beside(leaving, lambda address: MemoryStore(address))("kafka-group:")
    assert isinstance(store, LivingGroups)
    assert store._groups == {"clicks": Leaving({"events", "more"}, was_there=False)}
