"""The journal: what is appended, what can be read back, and what may go."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, fingerprint
from reconciler.state import journal
from reconciler.state.journal import FULL_EVERY, Entry, Recorder, StreamPartition
from reconciler.state.stored import Known

KEYS = [StreamPartition("events", "a", 0), StreamPartition("events", "a", 1), StreamPartition("x@y", "b", 0)]


def known(number: int, *, processed: bool = True) -> Known[Anchor]:
    if number == 0:
        return Known(0, None)
    anchor = Anchor(number - 1, 1_700_000_000_000 + number, b"id", fingerprint(b"k", b"v"), "cluster", "topic")
    return Known(number, anchor, processed=processed)


Step = tuple[dict[StreamPartition, Known[Anchor]], dict[StreamPartition, Known[Anchor]]]
"""The numbers that were looked up, and where the running batch ends."""


def recorded(steps: list[Step]) -> list[Entry]:
    """A journal whose recorder looked up these numbers, one step a second."""
    recorder = Recorder("run")
    entries = [journal.opening({key: known(0) for key in KEYS}, "hook", 0)]
    recorder.known.update(entries[0].numbers)
    for second, step in enumerate(steps):
        recorder.note(*step)
        entry = recorder.next_entry(second * 1000)
        if entry is not None:
            entries.append(entry)
            recorder.appended(entry)
    return [journal.load(number, journal.dump(each)) for number, each in enumerate(entries, 1)]


def _numbers(*, processed: bool) -> st.SearchStrategy[dict[StreamPartition, Known[Anchor]]]:
    numbers = st.integers(1, 50).map(lambda number: known(number, processed=processed))
    return st.dictionaries(st.sampled_from(KEYS), numbers)


STEPS = st.lists(st.tuples(_numbers(processed=True), _numbers(processed=False)), max_size=40)


@given(STEPS)
def test_the_newest_entries_know_every_partition(steps: list[Step]) -> None:
    entries = recorded(steps)
    wanted = {key: known(0) for key in KEYS}
    for numbers, _ in steps:
        wanted |= numbers
    assert journal.latest(entries) == wanted
    assert journal.latest(entries[-FULL_EVERY:]) == wanted
    for key, end in (steps[-1][1] if steps else {}).items():
        assert end in journal.known_of(entries[-FULL_EVERY:], key)


@given(STEPS)
def test_the_next_run_begins_with_all_that_is_known(steps: list[Step]) -> None:
    entries = recorded(steps)
    recorder = Recorder.continuing("next", entries[-FULL_EVERY:])
    entry = recorder.next_entry(0)
    assert entry == Entry("next", 0, journal.latest(entries), full=True)
    recorder.appended(entry)
    assert recorder.next_entry(1) is None


@given(STEPS)
def test_an_entry_reads_back_as_it_was_written(steps: list[Step]) -> None:
    for entry in recorded(steps):
        fields = json.loads(json.dumps(journal.dump(entry)))
        assert journal.load(entry.number, {**fields, "nonce": "n"}) == entry


def test_nothing_is_appended_if_nothing_changed() -> None:
    recorder = Recorder("run")
    recorder.note({KEYS[0]: known(3)})
    entry = recorder.next_entry(0)
    assert entry is not None
    assert recorder.next_entry(1) == Entry("run", 1, entry.numbers)  # it was not appended: it is offered again
    recorder.appended(entry)
    recorder.note({KEYS[0]: known(3)})
    assert recorder.next_entry(2) is None


def test_a_number_is_known_once_with_the_newest_of_its_entries() -> None:
    first, again = known(5), Known(5, known(5).record, again=2)
    entries = [Entry("r", 0, {KEYS[0]: each}) for each in (first, known(7))]
    entries.append(Entry("r", 0, {KEYS[0]: again}, begun={KEYS[0]: known(9, processed=False)}))
    assert journal.known_of(entries, KEYS[0]) == [known(7), again, known(9, processed=False)]


def test_one_full_entry_of_each_day_is_kept() -> None:
    def full_at(hour: int, *, full: bool = True) -> Entry:
        return Entry("run", hour * 3600 * 1000, {}, full=full)

    assert journal.is_of_new_day(full_at(5), None)
    assert not journal.is_of_new_day(full_at(23), full_at(5))
    assert journal.is_of_new_day(full_at(24), full_at(5))
    assert not journal.is_of_new_day(full_at(24, full=False), full_at(5))
    assert not journal.is_of_new_day(full_at(24), full_at(49))  # a clock that was set back
