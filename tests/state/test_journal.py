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


def recorded(steps: list[dict[StreamPartition, Known[Anchor]]]) -> list[Entry]:
    """A journal whose recorder looked up these numbers, one step a second."""
    recorder = Recorder("run")
    entries = [journal.opening({key: known(0) for key in KEYS}, "hook", 0)]
    recorder.known.update(entries[0].numbers)
    for second, step in enumerate(steps):
        recorder.note(step)
        entry = recorder.next_entry(second * 1000)
        if entry is not None:
            entries.append(entry)
            recorder.appended(entry)
    return [journal.load(number, journal.dump(each)) for number, each in enumerate(entries, 1)]


STEPS = st.lists(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 50).map(known)), max_size=40)


@given(STEPS)
def test_the_newest_entries_know_every_partition(steps: list[dict[StreamPartition, Known[Anchor]]]) -> None:
    entries = recorded(steps)
    wanted = {key: known(0) for key in KEYS}
    for step in steps:
        wanted |= step
    assert journal.latest(entries) == wanted
    assert journal.latest(entries[-FULL_EVERY:]) == wanted


@given(STEPS)
def test_an_entry_reads_back_as_it_was_written(steps: list[dict[StreamPartition, Known[Anchor]]]) -> None:
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
    entries = [Entry("r", 0, {KEYS[0]: each}) for each in (first, known(7), again, known(9, processed=False))]
    assert journal.known_of(entries, KEYS[0]) == [known(7), again, known(9, processed=False)]


def test_one_full_entry_of_each_day_is_kept() -> None:
    def full_at(hour: int, *, full: bool = True) -> Entry:
        return Entry("run", hour * 3600 * 1000, {}, full=full)

    assert journal.is_of_new_day(full_at(5), None)
    assert not journal.is_of_new_day(full_at(23), full_at(5))
    assert journal.is_of_new_day(full_at(24), full_at(5))
    assert not journal.is_of_new_day(full_at(24, full=False), full_at(5))
    assert not journal.is_of_new_day(full_at(24), full_at(49))  # a clock that was set back
