"""The numbers of a job where it lives: one table of histories, over stores of several systems."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor, Malformed, Names, StoredOffset
from reconciler.core.errors import NeedsPerson, Refused, Unreachable
from reconciler.core.question import TopicPolicy
from reconciler.failover.checking.recorded import (
    Basis,
    Gathered,
    JobPlace,
    Recorded,
    Undecided,
    ends,
    gather,
    judge,
    names_shared,
)
from reconciler.places.registry import open_store
from reconciler.ports import UNKNOWN_PARTITION, Change, OffsetReader, OffsetStore, Row, TopicPartition, Traits, by_key
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry, StreamPartition
from reconciler.state.locations import Location, Stamp
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import open_state
from reconciler.state.stored import Doubt, Known, PlanRow, Stored

ANA = Stamp("ana", lambda: 1)
EVENTS = Stream("events", "a")
AT, NEW = StreamPartition("events", "a", 0), StreamPartition("events", "a", 1)
ONE, TWO = Naming(TopicPolicy.IDENTITY), Naming()
PLAIN, A_GROUP = Traits(), Traits(holds_commits=True)
LEFT = Stored(40, Anchor(39, cluster_id="id of a"), 0, 0)


def record(number: int) -> Anchor:
    """The record before a number."""
    return Anchor(number - 1, timestamp_ms=1000 + number, cluster_id="id of b")


def known(number: int, **more: int) -> Known[Anchor]:
    return Known(number, record(number), **more)


@dataclass(frozen=True)
class History:
    """A job that came from a, where it was at 40, to b, where it began at 30; or one that is still at home.

    ``journal``: the processed numbers since, and ``begun``, the end of the batch that runs. ``held``: its place's row.
    """

    journal: tuple[int, ...] = ()
    held: StoredOffset | None = None
    begun: int | None = None
    naming: Naming = TWO
    moved: bool = True
    of_stay: int | None = None
    of_mirror: frozenset[int] = frozenset()
    at: StreamPartition = AT
    marker: int = 0
    """Offsets between a record and the number in the journal."""

    @property
    def cluster(self) -> str:
        return "b" if self.moved else "a"

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.naming.name_on(EVENTS, self.cluster), self.at.partition)


def stored(number: int, *, anchor: bool = False, of: str | None = "id of b") -> StoredOffset:
    return StoredOffset(number, replace(record(number), id=b"the row's own", cluster_id=of) if anchor else None)


def own(number: int) -> Anchor | None:
    return stored(number, anchor=True).anchor


def is_at(number: int, before: int | None, again: int, ahead: int, basis: Basis = Basis.JOURNAL) -> Recorded:
    """At a number, proven up to the record before ``before``."""
    return Recorded(Stored(number, None if before is None else record(before), again, ahead), basis)


def beyond(recorded: Recorded) -> Recorded:
    """The place holds a number beyond it."""
    return replace(recorded, is_beyond=True)


def by_row(number: int, *, again: int = 0) -> Recorded:
    return Recorded(Stored(number, own(number), again, again), Basis.ROW)


HISTORIES: dict[str, tuple[History, Recorded | Doubt | None]] = {
    "N1: the journal has it": (History((35,), stored(35)), is_at(35, 35, 0, 0)),
    "N1: it was set back to an earlier entry": (History((35, 38), stored(35)), is_at(35, 35, 3, 3)),
    "N1: a batch has begun since": (History((35,), stored(35), begun=50), is_at(35, 35, 15, 15)),
    "N1: only as the end of a begun batch": (History((32,), stored(35), begun=35), is_at(35, 32, 0, 3)),
    "N2: nothing is there": (History((), None), is_at(30, 30, 0, 0)),
    "N2: nothing is there any more": (History((35,), None), is_at(30, 30, 5, 5)),
    "N2: what the plan replaced": (History((), stored(40), naming=ONE), is_at(30, 30, 10, 10)),
    "N2: that, with an anchor of the cluster that was left": (
        History((), stored(40, anchor=True, of="id of a"), naming=ONE),
        is_at(30, 30, 10, 10),
    ),
    "N2: nothing, after a number was set back": (History((35, 30), None, begun=50), is_at(30, 30, 20, 20)),
    "N3: a mirror's": (History((35,), stored(38), of_mirror=frozenset({38})), beyond(is_at(35, 35, 3, 3))),
    "N3: a mirror's, with an anchor": (
        History((35,), stored(38, anchor=True), of_mirror=frozenset({38})),
        beyond(is_at(35, 35, 3, 3)),
    ),
    "N4: below everything": (History((35,), stored(12)), Doubt.UNKNOWN),
    "N4: below everything, with an anchor": (History((35,), stored(12, anchor=True)), Doubt.UNKNOWN),
    "N4: of another stay": (History((35,), stored(38), of_stay=1), Doubt.ANOTHER_STAY),
    "N5: beyond an entry": (History((35,), stored(38)), is_at(38, 35, 0, 3)),
    "N5: under one name, and of this stay": (
        History((35,), stored(38), naming=ONE, of_stay=2),
        is_at(38, 35, 0, 3),
    ),
    "N6: under one name": (History((35,), stored(38), naming=ONE), beyond(is_at(35, 35, 3, 3))),
    "R8: in front of a transaction's marker": (
        History((33, 35), stored(34), naming=ONE, marker=1),
        is_at(34, 34, 0, 0),
    ),
    "R8: beyond it": (History((33, 35), stored(36), naming=ONE, marker=1), beyond(is_at(35, 34, 1, 1))),
    "R1: the row's own anchor": (History((35,), stored(38, anchor=True)), by_row(38)),
    "R1: the journal's outranks it": (History((35,), stored(35, anchor=True)), is_at(35, 35, 0, 0)),
    "R1: it was set back": (History((35, 39), stored(36, anchor=True)), by_row(36, again=3)),
    "R1: under one name, and of this stay": (
        History((35,), stored(38, anchor=True), naming=ONE, of_stay=2),
        by_row(38),
    ),
    "R2: under one name, and of this cluster": (History((35,), stored(38, anchor=True), naming=ONE), by_row(38)),
    "R2: under one name, of this cluster, and equal to what was replaced": (
        History((35,), stored(40, anchor=True), naming=ONE),
        by_row(40),
    ),
    "R2: under one name, and of the cluster that was left": (
        History((35,), stored(38, anchor=True, of="id of a"), naming=ONE),
        beyond(is_at(35, 35, 3, 3)),
    ),
    "R2: under one name, and of no known cluster": (
        History((35,), stored(38, anchor=True, of=None), naming=ONE),
        beyond(is_at(35, 35, 3, 3)),
    ),
    "R2: under one name, a new partition of this cluster": (
        History((), stored(5, anchor=True), at=NEW, naming=ONE),
        by_row(5),
    ),
    "R3: at home, nothing is recorded": (
        History((), stored(40), moved=False),
        is_at(40, None, 0, 0, Basis.NOT_CHECKED),
    ),
    "R3: at home, with an anchor": (History((), stored(40, anchor=True), moved=False), by_row(40)),
    "R3: at home, a mirror's": (
        History((), stored(40), moved=False, of_mirror=frozenset({40})),
        Doubt.UNKNOWN,
    ),
    "R3: at home, an anchor beyond an entry": (History((38,), stored(40, anchor=True), moved=False), by_row(40)),
    "R3: at home, an anchor beyond an entry, under one name": (
        History((38,), stored(40, anchor=True), moved=False, naming=ONE),
        by_row(40),
    ),
    "at home, beyond an entry, under one name": (
        History((38,), stored(40), moved=False, naming=ONE),
        is_at(40, 38, 0, 2),
    ),
    "at home, nothing is there any more": (History((38,), None, moved=False), Doubt.UNKNOWN),
    "at home, it says that nothing was processed": (History((), stored(-1), moved=False), None),
    "R3: a new partition": (History((), stored(5), at=NEW), is_at(5, None, 0, 0, Basis.NOT_CHECKED)),
    "R3: a new partition under one name": (History((), stored(5), at=NEW, naming=ONE), Doubt.UNKNOWN),
    "R3: a new partition under one name, and of this stay": (
        History((), stored(5), at=NEW, naming=ONE, of_stay=2),
        is_at(5, None, 0, 0, Basis.NOT_CHECKED),
    ),
    "R3: a new partition of another stay": (History((), stored(5), at=NEW, of_stay=1), Doubt.ANOTHER_STAY),
    "a new partition that is recorded, under one name": (
        History((5,), stored(7), at=NEW, naming=ONE),
        beyond(is_at(5, 5, 2, 2)),
    ),
    "a new partition, of which only a batch has begun": (History((), None, begun=9, at=NEW), None),
}


def job_of(history: History) -> tuple[JobState, Location]:
    """The job's state, and where it lives."""
    state = open_state(f"memory:{uuid.uuid4().hex}")
    state.create()
    job = JobState(state, "clicks")
    here = job.move_on(None, locations.first("a", ANA))
    if history.moved:
        here = moved(job, here, history.naming)
    journal_of(job, here.stay, history)
    return job, here


def moved(job: JobState, here: Location, naming: Naming) -> Location:
    key = TopicPartition(naming.name_on(EVENTS, "b"), 0)
    replaced = frozenset({40 if naming is ONE else None})
    row = PlanRow(30, record(30), 0, 0, replaced, LEFT)
    here = job.move_on(here, locations.moving(here, "b", ANA))
    number = job.add_plan(Numbers("a", here.stay, "b", {AT: Planned(key, row)}))
    here = job.move_on(here, locations.writing(here, number, ANA))
    job.append_journal(number + 1, 1, journal.opening({AT: row.first()}, "plan", 0))
    return job.move_on(here, locations.lives(here, None, ANA))


def journal_of(job: JobState, stay: int, history: History) -> None:
    at, first = history.at, len(job.journal(stay)) + 1
    entries = [
        Entry("run", 0, {at: replace(known(number - history.marker), number=number)}) for number in history.journal
    ]
    if history.begun is not None:
        entries.append(Entry("run", 0, {}, begun={at: known(history.begun, processed=False)}))
    for number, entry in enumerate(entries, first):
        assert job.append_journal(stay, number, entry)


def place_of(history: History, reader: OffsetReader | None, traits: Traits = PLAIN, group: str = "g") -> JobPlace:
    names = history.naming.by_name([EVENTS], history.cluster)
    shared = names_shared(history.naming, [EVENTS], history.cluster, ["a", "b"], traits)
    return JobPlace(reader, group, traits, names, shared)


def gathered(job: JobState, here: Location, place: JobPlace) -> Gathered:
    """What is recorded, beside the rows that the place has under all names."""
    rows = None if place.reader is None else by_key(place.reader.read(place.group, ["events", "a.events"]))
    return gather(job, here, place, rows)


def judged(
    history: History, reader: OffsetReader | None, traits: Traits = PLAIN, group: str = "g"
) -> Recorded | Undecided | None:
    job, here = job_of(history)
    of_mirror = {(history.key, number) for number in history.of_mirror}
    return judge(gathered(job, here, place_of(history, reader, traits, group)), of_mirror).get(history.at)


def address_of(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "postgresql":
        return f"{request.getfixturevalue('database')}&timeout=60"
    return {
        "memory": f"memory:{uuid.uuid4().hex}",
        "sqlite": f"sqlite:///{request.getfixturevalue('tmp_path')}/offsets.db",
    }[kind]


def put(store: OffsetStore, history: History, group: str = "g") -> None:
    store.create()
    if history.held is not None:
        change = Change(history.key, None, history.held, stay=history.of_stay)
        assert store.write(group, [change], reason="test", now_ms=1).written


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_a_number_means_what_is_recorded(kind: str, request: pytest.FixtureRequest) -> None:
    address = address_of(kind, request)
    wrong = {}
    for name, (history, expected) in HISTORIES.items():
        with closing(open_store(address)) as store:
            put(store, history, name)
            found = judged(history, store, group=name)
            if (found.doubt if isinstance(found, Undecided) else found) != expected:
                wrong[name] = found
    assert wrong == {}


# ---------------------------------------------------------------- places that are not a plain table


def test_a_job_whose_place_is_the_journal_is_at_its_newest_processed_entry() -> None:
    history = History((35,), begun=50)
    assert judged(history, None) == is_at(35, 35, 15, 15)
    assert judged(History(), None) == is_at(30, 30, 0, 0)


def test_a_group_on_a_cluster_that_does_not_answer_is_at_the_journals_newest_entry() -> None:
    history = History((35,), begun=50)
    job, here = job_of(history)
    found = judge(gather(job, here, place_of(history, None, A_GROUP), None, Unreachable("down")))
    assert found.get(history.at) == is_at(35, 35, 15, 15, Basis.UNSEEN)


class Rows:
    """A place that holds these rows."""

    address = "table:"

    def __init__(self, *rows: Row) -> None:
        self._rows = rows

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        assert topics is not None
        return [row for row in self._rows if row.key.topic in topics]


@pytest.mark.parametrize("of_mirror", [frozenset(), frozenset({5})])
def test_a_groups_number_of_a_new_partition_is_its_own_unless_a_mirror_has_a_checkpoint_of_it(
    of_mirror: frozenset[int],
) -> None:
    row = Row(TopicPartition("a.events", 1), StoredOffset(5), "v")
    found = judged(History(at=NEW, of_mirror=of_mirror), Rows(row), A_GROUP)  # type: ignore[arg-type]
    if of_mirror:
        assert isinstance(found, Undecided)
    else:
        assert found == is_at(5, None, 0, 0, Basis.NOT_CHECKED)


def test_an_anchor_that_was_kept_apart_does_not_outrank_what_the_plan_replaced() -> None:
    """It may be of an earlier stay here: the row was put back, or its job has not stored any number since."""
    row = Row(TopicPartition("events", 0), stored(40, anchor=True), "v", anchor_lag=0)
    assert judged(History(naming=ONE), Rows(row)) == is_at(30, 30, 10, 10)  # type: ignore[arg-type]


def test_an_anchor_that_lags_bounds_what_is_ahead_of_it() -> None:
    row = Row(TopicPartition("events", 0), StoredOffset(40, record(33)), "v", anchor_lag=7)
    expected = Recorded(Stored(40, record(33), 0, 7), Basis.ROW)
    assert judged(History(moved=False), Rows(row)) == expected  # type: ignore[arg-type]


def test_the_batch_that_a_checkpoint_has_begun_counts_at_its_end_alone() -> None:
    history, row = History(journal=(35,), begun=38), Row(TopicPartition("a.events", 0), StoredOffset(35), "v")
    copied = Traits(corrected_in_copy=True)
    assert judged(history, Rows(row)) == is_at(35, 35, 3, 3)  # type: ignore[arg-type]
    assert judged(history, Rows(row), copied) == is_at(35, 35, 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "earlier", "record_before"),
    [(known(38, older=2), None, record(38)), (None, known(38, older=2), record(38)), (None, None, None)],
)
def test_the_end_of_a_batch_is_where_a_journal_of_this_cluster_has_it(
    begun: Known[Anchor] | None, earlier: Known[Anchor] | None, record_before: Anchor | None
) -> None:
    """A move that was cancelled begins a stay within the same batch."""
    job, here = job_of(History(journal=(35,)))
    entries = [Entry("run", 0, {}, begun={} if each is None else {AT: each}) for each in (begun, earlier)]
    rows = {TopicPartition("a.events", 0): Row(TopicPartition("a.events", 0), StoredOffset(38), "v")}
    found = gather(job, here, place_of(History(), Rows(), Traits(corrected_in_copy=True)), rows)  # type: ignore[arg-type]
    end = ends(replace(found, journal=[*found.journal, entries[0]]), entries[1:])[AT]
    lag = 2 if record_before else 0
    assert isinstance(end, Recorded)
    assert end.stored == Stored(38, record_before, 0, lag)


@pytest.mark.parametrize("names", list(Names))
def test_anchors_of_every_kind_count(names: Names) -> None:
    anchor = Anchor(37, timestamp_ms=5, names=names)
    row = Row(TopicPartition("a.events", 0), StoredOffset(38, anchor), "v")
    found = judged(History((35,)), Rows(row))  # type: ignore[arg-type]
    assert found == Recorded(Stored(38, anchor, 0, 0), Basis.ROW)


# ---------------------------------------------------------------- what needs a decision, in words


def test_a_number_that_needs_a_decision_is_shown_with_what_the_journal_has() -> None:
    row = Row(TopicPartition("a.events", 0), StoredOffset(1200), "v", of_stay=1)
    found = judged(History((35,)), Rows(row))  # type: ignore[arg-type]
    assert isinstance(found, Undecided)
    assert found.why == (
        "table: holds offset 1,200 for a.events-0, stored in stay 1. "
        "The journal of stay 2 on b has offsets 30 to 35 of it."
    )
    assert "--set TOPIC:PARTITION=OFFSET" in found.hint


def test_nothing_and_a_mirrors_number_are_said_to_be_so() -> None:
    key = TopicPartition("events", 0)
    nothing = judged(History((38,), moved=False), Rows())  # type: ignore[arg-type]
    of_mirror = judged(
        History(moved=False, of_mirror=frozenset({7})),
        Rows(Row(key, StoredOffset(7), "v")),  # type: ignore[arg-type]
    )
    assert isinstance(nothing, Undecided)
    assert isinstance(of_mirror, Undecided)
    assert nothing.why.startswith("table: holds no offset for events-0. The journal of stay 1 on a has offset 38 ")
    assert of_mirror.why == (
        "table: holds offset 7 for events-0, which a mirror has committed. The journal of stay 1 on a has none of it."
    )


def test_a_row_that_cannot_be_read_hides_no_other() -> None:
    bad = Row(TopicPartition("a.events", 1), Malformed("The row is damaged.", "Correct it."), "v")
    good = Row(TopicPartition("a.events", 0), StoredOffset(35), "v")
    job, here = job_of(History((35,)))
    found = judge(gathered(job, here, place_of(History(), Rows(bad, good))))  # type: ignore[arg-type]
    assert found[AT] == is_at(35, 35, 0, 0)
    damaged = found[NEW]
    assert isinstance(damaged, Undecided)
    assert damaged.why == "The row is damaged. The journal of stay 2 on b has none of it."
    assert damaged.hint == "Correct it."


def test_a_row_whose_partition_cannot_be_read_may_be_any_of_its_topics() -> None:
    bad = Row(TopicPartition("a.events", UNKNOWN_PARTITION), Malformed("The row is damaged.", "Correct it."), "v")
    job, here = job_of(History((35,)))
    found = judge(gathered(job, here, place_of(History(), Rows(bad))))  # type: ignore[arg-type]
    assert len(found) == 2
    assert all(isinstance(each, Undecided) for each in found.values())


# ---------------------------------------------------------------- stays


def test_while_numbers_are_written_they_are_the_plans() -> None:
    job, here = job_of(History(moved=False))
    here = job.move_on(here, locations.moving(here, "b", ANA))
    row = PlanRow(30, record(30), 2, 3, frozenset({None}), LEFT)
    number = job.add_plan(Numbers("a", 1, "b", {AT: Planned(TopicPartition("a.events", 0), row)}))
    here = job.move_on(here, locations.writing(here, number, ANA))
    place = place_of(History(), Rows())  # type: ignore[arg-type]
    assert judge(gathered(job, here, place)) == {AT: is_at(30, 30, 2, 5, Basis.PLAN)}


def test_a_job_that_is_about_to_move_is_where_it_was() -> None:
    job, here = job_of(History((35,)))
    here = job.move_on(here, locations.moving(here, "a", ANA))
    row = Row(TopicPartition("a.events", 0), StoredOffset(35), "v")
    assert judge(gathered(job, here, place_of(History(), Rows(row)))) == {AT: is_at(35, 35, 0, 0)}  # type: ignore[arg-type]


def test_a_new_partition_of_a_cluster_where_the_job_was_before_needs_a_decision() -> None:
    job, here = job_of(History())
    here = job.move_on(here, locations.moving(here, "a", ANA))
    number = job.add_plan(Numbers("b", here.stay, "a", {}))
    here = job.move_on(here, locations.writing(here, number, ANA))
    here = job.move_on(here, locations.lives(here, None, ANA))
    row = Row(TopicPartition("events", 1), StoredOffset(5), "v")
    found = judge(gathered(job, here, place_of(History(moved=False), Rows(row))))  # type: ignore[arg-type]
    assert isinstance(found[NEW], Undecided)


def test_numbers_found_anew_on_one_cluster_are_not_told_from_those_before_by_their_key() -> None:
    job, here = job_of(History())
    key = TopicPartition("a.events", 0)
    row = PlanRow(10, record(10), 0, 0, frozenset({35}), Stored(35, record(35), 0, 0))
    here = job.move_on(here, locations.moving(here, "b", ANA))
    number = job.add_plan(Numbers("b", here.stay, "b", {AT: Planned(key, row)}))
    here = job.move_on(here, locations.writing(here, number, ANA))
    here = job.move_on(here, locations.lives(here, None, ANA))
    put_back = Rows(Row(key, StoredOffset(33), "v"))
    found = judge(gathered(job, here, place_of(History(), put_back)))  # type: ignore[arg-type]
    assert found == {AT: beyond(is_at(10, 10, 23, 23))}


@pytest.mark.parametrize("topic", ["a.events", "events"])
def test_a_number_of_a_later_stay_on_any_cluster_shows_an_old_state_store(topic: str) -> None:
    job, here = job_of(History((35,)))
    rows = Rows(Row(TopicPartition(topic, 0), StoredOffset(35), "v", of_stay=3))
    place = place_of(History(), rows)  # type: ignore[arg-type]
    with pytest.raises(NeedsPerson, match=f"{topic}-0 of job .* was stored in stay 3, and the newest location"):
        gathered(job, here, place)


def test_rows_of_other_clusters_are_not_the_jobs() -> None:
    job, here = job_of(History((35,)))
    rows = Rows(Row(TopicPartition("events", 0), StoredOffset(40), "v", of_stay=1))
    place = place_of(History(), rows)  # type: ignore[arg-type]
    assert judge(gathered(job, here, place)) == {AT: is_at(30, 30, 5, 5)}


def test_a_stream_without_a_topic_on_this_cluster_is_left_out() -> None:
    job, here = job_of(History((35,)))
    place = replace(place_of(History(), Rows()), names={})  # type: ignore[arg-type]
    assert judge(gathered(job, here, place)) == {}


def test_a_plan_that_the_state_store_has_lost_is_an_error() -> None:
    job, here = job_of(History())
    with pytest.raises(Refused, match="lost plan 9"):
        gathered(job, replace(here, plan=9), place_of(History(), None))


SHARED: Mapping[str, tuple[Naming, tuple[Stream, ...], Traits, set[str]]] = {
    "one name": (ONE, (EVENTS,), Traits(), {"events"}),
    "two names": (TWO, (EVENTS,), Traits(), set()),
    "two origins": (TWO, (EVENTS, Stream("events", "b")), Traits(), {"events"}),
    "a group": (ONE, (EVENTS,), A_GROUP, set()),
    "a checkpoint": (ONE, (EVENTS,), Traits(corrected_in_copy=True), set()),
}


@pytest.mark.parametrize("case", SHARED)
def test_a_name_is_shared_where_two_clusters_numbers_can_be_under_it(case: str) -> None:
    naming, streams, traits, expected = SHARED[case]
    assert names_shared(naming, streams, "b", ["a", "b"], traits) == expected
