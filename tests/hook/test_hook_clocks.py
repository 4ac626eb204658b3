"""The hook before a job whose row of the source is dated far ahead: it does what ``apply`` would, and stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NeedsPerson
from reconciler.failover.check import check
from reconciler.failover.writing.refusals import AHEAD_MS
from reconciler.hook.start import Start
from reconciler.ports import Change, OffsetStore, TopicPartition
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import HandedPair
from tests.in_memory import GROUP, NOW, Memory, stored

KEY = TopicPartition("events", 0)
LATER = stored(6, written_at_ms=NOW + AHEAD_MS + 1)


def saved(store: OffsetStore, row: StoredOffset) -> OffsetStore:
    change = Change(KEY, None, row, restores=row.anchor is None)
    assert store.write(GROUP, [change], reason="test", now_ms=NOW).written == (KEY,)
    return store


@pytest.mark.parametrize("store", ["memory:", "delta:/t?layout=commit&number=next"], ids=["written", "handed over"])
def test_the_job_does_not_start_and_nothing_is_kept(memory: Memory, store: str) -> None:
    """What is handed over counts as the job's row does: the source's would set the job back just the same."""
    job = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{store}"\n'
    config = memory.config(jobs=job)
    memory.deliver(range(3, 50))
    kept = saved(MemoryStore(f"{memory.folder}/kept"), LATER)
    pair = HandedPair(saved(MemoryStore(f"{memory.folder}/bare"), StoredOffset(LATER.offset)), kept)
    outside = replace(memory.outside, open_store=lambda _: pair if "delta" in store else kept)
    checked = check(config, config.jobs, outside)
    folder = memory.folder / "plans"
    start = Start.of(config, config.jobs[0], plans=folder, clone_to=None, config_file=memory.folder)
    with pytest.raises(NeedsPerson, match=r"(?s)\"clicks\" must not start: a\.events-0: the row of events-0 is dated"):
        start.correct(checked, outside, lambda plan: None)
    assert [row.key for row in kept.read(GROUP)] == [KEY]
