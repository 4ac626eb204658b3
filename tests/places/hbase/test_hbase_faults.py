"""The stores in HBase when a writer dies at any step, an answer is lost, or the server is killed or frozen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.places.hbase.cdap import TRANSACTIONS_PER_MS, CdapStore, LogSaver, Metrics
from reconciler.places.hbase.cloudera import ClouderaStore
from reconciler.ports import Change, Row, TopicPartition
from tests.places.hbase.fake_table import FakeConnection, FakeTable
from tests.places.hbase.fixtures import KEY, Tables, change, only
from tests.places.store_cases import NOW
from tests.sizes import sampled

SYSTEM = pytest.mark.system
LAYOUTS = ["cloudera", "cdap-logsaver&prefix=100", "cdap-metrics"]
MADE: dict[str, Callable[[Any], Any]] = {
    "cloudera": lambda table: ClouderaStore(table, "hbase:"),
    "cdap-logsaver&prefix=100": lambda table: CdapStore(table, LogSaver(100), "hbase:"),
    "cdap-metrics": lambda table: CdapStore(table, Metrics(), "hbase:"),
}
OLD = StoredOffset(5065, Anchor(offset=5064, timestamp_ms=NOW - 99, id=b"1", cluster_id="a", topic_id="s"))
NEW = StoredOffset(100, Anchor(99, NOW - 7, b"17", fingerprint(b"k", b"v"), "b", "t"))
NEWER = StoredOffset(200, Anchor(199, NOW - 5, b"18", fingerprint(b"k", b"w"), "b", "t"))
OTHER = TopicPartition("events", 1)
WRITES = ("check_and_put", "put", "delete_row")
ROWS = {
    "cdap-logsaver&prefix=100": (b"\0\0\0devents\0\0\0\0", b"d:nextOffset", (300).to_bytes(8, "big")),
    "cdap-metrics": (b"events.00", b"d:o", (300).to_bytes(8, "big")),
}


class Killed(BaseException):
    """The end of the process. No product code may catch it."""


class Steps:
    """A store's writing calls to HBase, one step each; ``at`` replaces the call of one step."""

    def __init__(self, store: Any) -> None:
        self.count = 0
        self._at: dict[int, Callable[[Callable[[], Any]], Any]] = {}
        for name in WRITES:
            setattr(store._table, name, self._counting(getattr(store._table, name)))

    def at(self, step: int, instead: Callable[[Callable[[], Any]], Any]) -> None:
        """``instead`` receives the call that it replaces."""
        self._at[step] = instead

    def _counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            instead = self._at.get(self.count)
            return instead(lambda: real(*args, **kwargs)) if instead else real(*args, **kwargs)

        return call


def do_and_die(call: Callable[[], Any]) -> None:
    call()
    raise Killed


def lose_the_answer(call: Callable[[], Any]) -> None:
    call()
    raise OutcomeUnknown("The answer was lost.", hint="Run this again.")


def lose_the_request(_: object) -> None:
    raise OutcomeUnknown("The request was lost.", hint="Run this again.")


class Place:
    """One layout's rows, and the clock of those who write them. ``open``: the store as another process opens it."""

    def __init__(self, layout: str, open_store: Callable[[], Any], plain: Callable[[bytes, dict[bytes, bytes]], Any]):
        self.layout, self.open, self.write_plainly = layout, open_store, plain
        self._now_ms = int(time.time() * 1000)

    def put(self, store: Any, new: StoredOffset, row: Row | None, *, key: TopicPartition = KEY) -> Any:
        """Each write is three seconds later than the one before."""
        self._now_ms += 3_000
        changes = [Change(key, row.version if row else None, new)]
        return store.write("g", changes, reason="apply", now_ms=self._now_ms)

    def set(self, new: StoredOffset, key: TopicPartition = KEY) -> None:
        store = self.open()
        row = next((row for row in store.read("g") if row.key == key), None)
        assert self.put(store, new, row, key=key).written == (key,)

    def found(self) -> StoredOffset:
        """The offset of KEY, which is one of the three."""
        stored = only(self.open(), partition=0).stored
        return {each.offset: each for each in (OLD, NEW, NEWER)}[stored.offset]

    def job_writes(self) -> None:
        """As the job itself does, offset 300."""
        if self.layout == "cloudera":
            self._now_ms += 60_000
            self.write_plainly(b"events:g:%d" % self._now_ms, {b"offsets:0": b"300"})
        else:
            name, column, value = ROWS[self.layout]
            self.write_plainly(name, {column: value})


@pytest.fixture(params=["in memory", pytest.param("in HBase", marks=[SYSTEM, pytest.mark.thorough])])
def place(request: pytest.FixtureRequest, layout: str) -> Place:
    if request.param == "in memory":
        table = FakeTable()
        table.clock = int(time.time() * 1000)
        return Place(layout, lambda: MADE[layout](cast(Any, FakeConnection(table))), table.put)
    tables: Tables = request.getfixturevalue("tables")
    tables.made(layout)
    return Place(layout, lambda: tables.open(layout), lambda row, cells: tables.table(layout).put(row, cells))


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def end_of(write: Callable[[], Any]) -> str:
    """How a write ends: written, lost (to another writer), unknown or killed."""
    try:
        return "written" if write().written else "lost"
    except OutcomeUnknown:
        return "unknown"
    except Killed:
        return "killed"


def each_step(place: Place, instead: Callable[[Callable[[], Any]], Any]) -> Iterator[tuple[int, str]]:
    """Write NEW over OLD once for each step of that write, with ``instead`` in the step's place.

    Yields the step and the write's end.
    """
    for step in range(1, 20):
        place.set(OLD)
        store = place.open()
        before = only(store, partition=0)
        steps = Steps(store)
        steps.at(step, instead)
        end = end_of(lambda store=store, before=before: place.put(store, NEW, before))
        if steps.count < step:
            assert step > 1
            return
        yield step, end
    pytest.fail("the write never ended")


# ---------------------------------------------------------------- a writer that dies


def test_after_a_kill_at_any_step_a_row_is_old_or_new_and_a_second_write_completes_it(place: Place) -> None:
    place.set(StoredOffset(7), OTHER)
    for _, end in each_step(place, do_and_die):
        assert end == "killed"
        if place.found() == OLD:
            place.set(NEW)
        assert place.found() == NEW
        assert only(place.open(), partition=1).stored.offset == 7


@pytest.mark.parametrize("layout", ["cdap-logsaver&prefix=100", "cdap-metrics"])
def test_after_a_kill_at_any_step_of_a_new_row_a_second_write_completes_it(layout: str) -> None:
    for step in range(1, 9):
        table = FakeTable()
        store = MADE[layout](FakeConnection(table))
        steps = Steps(store)
        steps.at(step, do_and_die)
        change = [Change(KEY, None, NEW)]
        if end_of(lambda store=store, change=change: store.write("g", change, reason="a", now_ms=1)) == "written":
            assert steps.count < step
            return
        again = MADE[layout](FakeConnection(table))
        if not again.read("g"):
            again.write("g", change, reason="a", now_ms=1)
        assert only(again).stored.offset == NEW.offset
    pytest.fail("the write never ended")


# ---------------------------------------------------------------- answers that are lost


def test_a_write_with_a_lost_answer_is_reported_right_or_as_unknown(place: Place) -> None:
    """At no step does a write count as done that did not happen, or as lost that did."""
    for _, end in each_step(place, lose_the_answer):
        assert end in ("written", "unknown")
        if end == "written":
            assert place.found() == NEW
        elif place.found() == OLD:
            place.set(NEW)
        assert place.found() == NEW


def test_a_lost_request_is_not_reported_as_written(place: Place) -> None:
    for _, end in each_step(place, lose_the_request):
        assert end != "written" or place.found() == NEW
        if place.found() == OLD:
            place.set(NEW)


def test_a_delayed_request_does_not_undo_later_writes(place: Place) -> None:
    """A server that was frozen carries out its pending requests later, when no client waits for them any more."""
    late: list[Callable[[], Any]] = []

    def hold_up(call: Callable[[], Any]) -> None:
        late.append(call)
        lose_the_request(call)

    for _ in each_step(place, hold_up):
        place.set(NEWER)
        late.pop()()
        assert place.found() == NEWER


# ---------------------------------------------------------------- others at the same time


def test_of_two_writers_with_interleaved_steps_at_most_one_wins(place: Place) -> None:
    """A writer that reports success has its row in place."""
    ends: list[str] = []

    def write_newer(call: Callable[[], Any]) -> Any:
        other = place.open()
        ends.append(end_of(lambda: place.put(other, NEWER, only(other, partition=0))))
        return call()

    for _, end in each_step(place, write_newer):
        other_end, found = ends.pop(), place.found()
        assert [end, other_end].count("written") <= 1
        assert end != "written" or found == NEW
        assert other_end != "written" or found == NEWER


@pytest.mark.parametrize("layout", LAYOUTS[1:], indirect=True)
def test_a_job_that_writes_before_any_step_is_detected_and_its_row_stays(place: Place) -> None:
    def job_writes(call: Callable[[], Any]) -> Any:
        place.job_writes()
        return call()

    for _, end in each_step(place, job_writes):
        assert end == "lost"
        assert only(place.open()).stored.offset == 300


def test_a_transactions_row_is_written_between_it_and_the_present() -> None:
    """So neither a later transaction nor a later write of this product is hidden by one that comes late."""
    table, row, column = FakeTable(), b"events.00", b"d:o"
    begin = NOW * TRANSACTIONS_PER_MS
    table.put(row, {column: (7).to_bytes(8, "big")}, at=begin)
    first, second = (MADE["cdap-metrics"](FakeConnection(table)) for _ in range(2))
    before = only(first)
    late: list[Callable[[], Any]] = []
    steps = Steps(first)
    steps.at(1, lambda call: (late.append(call), lose_the_request(call)))
    assert end_of(lambda: first.write("g", [Change(KEY, before.version, NEW)], reason="a", now_ms=NOW + 5)) == "unknown"
    assert second.write("g", [Change(KEY, before.version, NEWER)], reason="a", now_ms=NOW + 9).written
    late.pop()()
    assert only(second).stored.offset == NEWER.offset
    assert begin < table.data[row][column].at < begin + TRANSACTIONS_PER_MS
    table.put(row, {column: (9).to_bytes(8, "big")}, at=begin + TRANSACTIONS_PER_MS)
    assert only(second).stored.offset == 9


# ---------------------------------------------------------------- servers


@SYSTEM
def test_after_a_dropped_connection_the_same_store_works_and_the_client_prints_nothing(hbase, tables, capfd, caplog):
    store = tables.made("cdap-metrics")
    change(store, OLD)
    hbase.thrift.kill()
    with pytest.raises(Unreachable, match="No HBase Thrift server answers"):
        tables.open("cdap-metrics", "&timeout=0.3").read("g")
    hbase.start()
    change(store, NEW)
    assert only(store).stored.offset == NEW.offset
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


@contextmanager
def frozen_server(hbase: Any, store: Any) -> Iterator[Callable[[], None]]:
    """What freezes the server. From then on ``store`` waits a second: only a frozen server can be that slow."""
    table = store._table
    patient = table._endpoint

    def freeze() -> None:
        table._endpoint = replace(patient, timeout_s=1)
        table.close()  # a connection keeps the limit that it was made with
        table._client()
        hbase.pause()

    try:
        yield freeze
    finally:
        hbase.resume()
        table._endpoint = patient  # a connection whose call was abandoned must not be used again


@SYSTEM
@pytest.mark.parametrize("layout", sampled(LAYOUTS, keep=1), indirect=True)
def test_a_frozen_server_gives_an_unknown_outcome_and_a_second_write_completes_it(
    hbase: Any, tables: Tables, layout: str
) -> None:
    tables.made(layout)
    place, store = Place(layout, lambda: tables.open(layout), tables.table(layout).put), tables.open(layout)
    for step in range(1, 20):
        place.set(OLD)
        before = only(store)
        steps = Steps(store)
        frozen: list[bool] = []
        with frozen_server(hbase, store) as freeze:

            def frozen_at(call: Callable[[], Any], frozen: list[bool] = frozen, freeze: Any = freeze) -> Any:
                freeze()
                frozen.append(True)
                return call()

            steps.at(steps.count + step, frozen_at)
            ended = end_of(lambda before=before: place.put(store, NEW, before))
        if not frozen:
            return
        assert ended == "unknown" or step > 1
        for _ in range(2):  # the one delayed request may come between the read and the write
            again = place.open()
            if place.found() == NEW or place.put(again, NEW, only(again)).written:
                break
        assert place.found() == NEW
        assert only(store).stored.offset == NEW.offset  # and not the answer of an abandoned call
    pytest.fail("the write never ended")


@SYSTEM
def test_with_hbase_dead_behind_its_thrift_server_calls_time_out_and_no_row_is_lost(hbase: Any, tables: Tables) -> None:
    """The Thrift server retries for minutes. Acknowledged writes are there when HBase is back."""
    stores = {layout: tables.made(layout) for layout in LAYOUTS}
    for store in stores.values():
        change(store, OLD)
    before = {layout: only(store) for layout, store in stores.items()}
    hbase.region.kill()
    impatient = tables.open("cdap-metrics", "&timeout=1")
    with pytest.raises(ReconcilerError) as caught:
        impatient.read("g")
    assert isinstance(caught.value, Unreachable)
    hbase.start()
    for layout, store in stores.items():
        assert only(store) == before[layout]
        change(store, NEW)
        assert only(store).stored.offset == NEW.offset
