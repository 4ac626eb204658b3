"""The stores in HBase when a writer dies at any step, an answer is lost, or the server is killed or frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.ports import Change, Row, TopicPartition
from tests.sizes import sampled
from tests.stores.hbase.fixtures import KEY, Tables, change, only
from tests.stores.store_cases import NOW

pytestmark = pytest.mark.system

LAYOUTS = ["anchored", "cloudera&anchor_family=anchors", "cdap-logsaver&prefix=100", "cdap-metrics"]
OLD = StoredOffset(5065, Anchor(offset=5064, timestamp_ms=NOW - 99, id=b"1", cluster_id="a", topic_id="s"), NOW - 50)
NEW = StoredOffset(100, Anchor(99, NOW - 7, b"17", fingerprint(b"k", b"v"), "b", "t"), NOW)
NEWER = StoredOffset(200, Anchor(199, NOW - 5, b"18", fingerprint(b"k", b"w"), "b", "t"), NOW + 1)
OTHER = TopicPartition("events", 1)
WRITES = ("check_and_put", "put", "delete", "delete_row")


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


def writing(store: Any, new: StoredOffset | None, row: Row | None) -> Any:
    changes = [Change(KEY, row.version if row else None, new)]
    return store.write("g", changes, reason="apply", now_ms=new.written_at_ms if new else NOW + 5)


def put_back(store: Any, now: Row, before: Row) -> Any:
    back = Change.restoring(KEY, now.version, before.stored, before.text)
    return store.write("g", [back], reason="rollback", now_ms=NOW + 5)


def rows(store: Any) -> dict[TopicPartition, StoredOffset]:
    return {row.key: row.stored for row in store.read("g")}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_again(tables: Tables, layout: str) -> Callable[[], Any]:
    """The store of the layout, as another process opens it."""
    tables.made(layout)
    return lambda: tables.open(layout)


def end_of(write: Callable[[], Any]) -> str:
    """How a write ends: written, lost (to another writer), unknown or killed."""
    try:
        return "written" if write().written else "lost"
    except OutcomeUnknown:
        return "unknown"
    except Killed:
        return "killed"


def each_step(open_again: Callable[[], Any], instead: Callable[[Callable[[], Any]], Any]) -> Iterator[tuple[int, str]]:
    """Write NEW over OLD once for each step of that write, with ``instead`` in the step's place.

    Yields the step and the write's end.
    """
    for step in range(1, 20):
        change(open_again(), OLD)
        store = open_again()
        before = only(store, partition=0)
        steps = Steps(store)
        steps.at(step, instead)
        end = end_of(lambda store=store, before=before: writing(store, NEW, before))
        if steps.count < step:
            assert step > 1
            return
        yield step, end
    pytest.fail("the write never ended")


# ---------------------------------------------------------------- a writer that dies


def test_after_a_kill_at_any_step_a_row_is_old_or_new_and_a_second_write_completes_it(open_again):
    """An offset never has the anchor of the other."""
    change(open_again(), StoredOffset(7, OLD.anchor), OTHER)
    for _, end in each_step(open_again, do_and_die):
        assert end == "killed"
        after = open_again()
        found = only(after, partition=0)
        assert found.stored in (OLD, NEW)
        assert rows(after)[OTHER].offset == 7
        if found.stored == OLD:
            assert writing(after, NEW, found).written == (KEY,)
        assert only(open_again(), partition=0).stored == NEW
        assert rows(open_again())[OTHER].anchor == OLD.anchor


def test_after_a_kill_at_any_step_of_a_rollback_a_second_one_completes_it(open_again):
    for step in range(1, 20):
        store = open_again()
        change(store, OLD)
        before = only(store)
        writing(store, NEW, before)
        now = only(store)
        steps = Steps(store)
        steps.at(steps.count + step, do_and_die)
        try:
            store.write("g", [Change.restoring(KEY, now.version, before.stored, before.text)], reason="r", now_ms=NOW)
            assert step > 1
            return
        except Killed:
            store.close()
        after = open_again()
        found = only(after)
        assert found.stored in (OLD, NEW)
        assert put_back(after, found, before).written == (KEY,)
        assert only(open_again()).stored == OLD
    pytest.fail("the write never ended")


# ---------------------------------------------------------------- answers that are lost


def test_a_write_with_a_lost_answer_is_reported_right_or_as_unknown(open_again):
    """At no step does a write count as done that did not happen, or as lost that did."""
    for step, end in each_step(open_again, lose_the_answer):
        found = only(open_again())
        assert end == "written" or step > 1  # after a compare-and-set the cell itself decides
        if end == "written":
            assert found.stored == NEW
        else:
            assert end == "unknown"
            assert found.stored in (OLD, NEW)
            if found.stored == OLD:
                writing(open_again(), NEW, found)
        assert only(open_again()).stored == NEW


def test_a_lost_request_is_not_reported_as_written(open_again):
    for _, end in each_step(open_again, lose_the_request):
        found = only(open_again())
        assert found.stored == NEW if end == "written" else found.stored in (OLD, NEW)
        if found.stored == OLD:
            assert writing(open_again(), NEW, found).written == (KEY,)


def test_a_delayed_request_does_not_undo_later_writes(open_again):
    """A server that was frozen carries out its pending requests later, when no client waits for them any more."""
    late: list[Callable[[], Any]] = []

    def hold_up(call: Callable[[], Any]) -> None:
        late.append(call)
        lose_the_request(call)

    for _ in each_step(open_again, hold_up):
        change(open_again(), NEWER)
        late.pop()()
        assert only(open_again()).stored == NEWER


# ---------------------------------------------------------------- others at the same time


def test_of_two_writers_with_interleaved_steps_at_most_one_wins(open_again):
    """A writer that reports success has its row in place."""
    ends: list[str] = []

    def write_newer(call: Callable[[], Any]) -> Any:
        other = open_again()
        ends.append(end_of(lambda: writing(other, NEWER, only(other))))
        return call()

    for _, end in each_step(open_again, write_newer):
        other_end = ends.pop()
        found = only(open_again()).stored
        assert found in (NEW, NEWER)
        assert [end, other_end].count("written") <= 1
        if end == "written":
            assert found == NEW
        if other_end == "written":
            assert found == NEWER


PLAIN = {
    "cdap-logsaver&prefix=100": (b"\0\0\0devents\0\0\0\0", b"d:nextOffset", (300).to_bytes(8, "big")),
    "cdap-metrics": (b"events.00", b"d:o", (300).to_bytes(8, "big")),
    "cloudera&anchor_family=anchors": (b"events:g:%d" % (NOW + 9), b"offsets:0", b"300"),
}


@pytest.mark.parametrize("layout", PLAIN, indirect=True)
def test_a_job_that_writes_between_any_two_steps_is_detected_and_its_row_stays(tables, open_again, layout):
    name, column, value = PLAIN[layout]

    def write_plainly(call: Callable[[], Any]) -> Any:
        tables.table(layout).put(name, {column: value})
        return call()

    for _, end in each_step(open_again, write_plainly):
        if end != "written":
            assert only(open_again()).stored.offset == 300
        tables.table(layout).delete(name)


# ---------------------------------------------------------------- servers


def test_after_a_dropped_connection_the_same_store_works_and_the_client_prints_nothing(hbase, tables, capfd, caplog):
    store = tables.made("anchored")
    change(store, OLD)
    hbase.thrift.kill()
    with pytest.raises(Unreachable, match="No HBase Thrift server answers"):
        tables.open("anchored", "&timeout=0.3").read("g")
    hbase.start()
    assert only(store).stored == OLD
    assert writing(store, NEW, only(store)).written == (KEY,)
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


def writing_again(store: Any, found: Row, step: int) -> bool:
    result = store.write("g", [Change(KEY, found.version, NEW)], reason="again", now_ms=NOW + step)
    return bool(result.written)


@pytest.mark.parametrize("layout", sampled(LAYOUTS, keep=1), indirect=True)
def test_a_frozen_server_gives_an_unknown_outcome_and_a_second_write_completes_it(hbase, tables, layout):
    tables.made(layout)
    patient, store = tables.open(layout), tables.open(layout)
    change(patient, OLD)
    for step in range(1, 20):
        change(patient, OLD)
        before = only(store)
        steps = Steps(store)
        frozen: list[bool] = []
        with frozen_server(hbase, store) as freeze:

            def frozen_at(call: Callable[[], Any], frozen: list[bool] = frozen, freeze: Any = freeze) -> Any:
                freeze()
                frozen.append(True)
                return call()

            steps.at(steps.count + step, frozen_at)
            ended = end_of(lambda before=before: writing(store, NEW, before))
        if not frozen:
            return
        assert ended == "unknown" or step > 1
        for _ in range(2):  # the one delayed request may come between the read and the write
            found = only(patient)
            assert found.stored in (OLD, NEW)
            if found.stored == NEW or writing_again(patient, found, step):
                break
        assert only(patient).stored == NEW
        assert only(store).stored == NEW  # and not the answer of an abandoned call
    pytest.fail("the write never ended")


def test_with_hbase_dead_behind_its_thrift_server_calls_time_out_and_no_row_is_lost(hbase, tables):
    """The Thrift server retries for minutes. Acknowledged writes are there when HBase is back."""
    stores = {layout: tables.made(layout) for layout in LAYOUTS}
    for store in stores.values():
        change(store, OLD)
    before = {layout: only(store) for layout, store in stores.items()}
    hbase.region.kill()
    impatient = tables.open("anchored", "&timeout=1")
    with pytest.raises(ReconcilerError) as caught:
        impatient.read("g")
    assert isinstance(caught.value, Unreachable)
    hbase.start()
    for layout, store in stores.items():
        assert only(store) == before[layout]
        assert writing(store, NEW, before[layout]).written == (KEY,)
        assert only(store).stored == NEW
