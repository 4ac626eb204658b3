"""The record in front of a drill's first batch must still be the one that its plan rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.probes import Chunk
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import Outside
from reconciler.jobs import drill as drills
from reconciler.jobs.drill import Drill, drill
from reconciler.places.registry import open_store
from reconciler.ports import Change, ReadRequest, TopicPartition
from tests.memory_log import MemoryLog

BEGIN = 1_700_000_000_000
ONCE, AGAIN = "abcdefgh", "abcdab"
"""Records as a mirror delivers them, and as one left them that was killed while it sent some again."""


def write(log: MemoryLog, names: Iterable[str]) -> None:
    log.create("a.events", 1)
    for name in names:
        text = name.encode()
        log.partition("a.events", 0).append(BEGIN + ord(name.lower()), text, text, (("id", b"id-" + text),))


def stored(*, by: str) -> StoredOffset:
    """What the job stored after record d, at offset 700 of the source."""
    named = {"id": b"id-d"} if by == "id" else {"fingerprint": fingerprint(b"d", b"d")}
    return StoredOffset(701, Anchor(700, BEGIN + ord("d"), **named), BEGIN)


def drilled(folder: Path, by: str, names: str, *, then: str) -> Drill:
    """A drill whose topic is made anew, with the records ``then``, once the plan is made."""
    return drilled_row(folder, TopicPartition("events", 0), stored(by=by), names, then=then)


def drilled_row(folder: Path, key: TopicPartition, row: StoredOffset, names: str, *, then: str) -> Drill:
    store = f"sqlite:///{folder}/offsets.db"
    with closing(open_store(store)) as rows:
        rows.create()
        rows.write("clicks", [Change(key, None, row)], reason="test", now_ms=BEGIN)
    file = folder / "reconciler.toml"
    file.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:9092"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "{store}"\n'
        f'[jobs.identity]\nid = "header:id"\nunique_ids = true\n'
    )
    log = MemoryLog("b")
    write(log, names)

    real = drills._find_ranges

    def find_ranges(*given: Any) -> Any:
        found = real(*given)
        log.delete("a.events")
        write(log, then)
        return found

    config = load_config(file)
    job = replace(config.jobs[0], moved=key.topic == "a.events")
    outside = Outside(log, open_store, lambda: 0.0, lambda: BEGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drills, "_find_ranges", find_ranges)
        return drill(replace(config, jobs=(job,)), job, outside, folder / "place")


@pytest.mark.parametrize(
    ("by", "names", "changed", "place"),
    [
        pytest.param("id", ONCE, "abcDefgh", 3, id="an id"),
        pytest.param("fingerprint", ONCE, "abcDefgh", 3, id="a fingerprint"),
        pytest.param("id", AGAIN, "abcdaB", 5, id="a record sent again"),
    ],
)
def test_the_record_that_the_plan_rests_on_is_told_from_another(
    tmp_path: Path, by: str, names: str, changed: str, place: int
) -> None:
    found = drilled(tmp_path, by, names, then=changed)
    (partition,) = found.partitions
    assert partition.row.record_offset == place
    assert found.faults == (f"a.events-0: the record at {place} is not the plan's anchor",)


def drilled_here(folder: Path, offset: int, names: str, *, then: str) -> Drill:
    """A drill of a job that stored ``offset`` at the destination, with record d as its anchor."""
    anchor = Anchor(3, BEGIN + ord("d"), fingerprint=fingerprint(b"d", b"d"), cluster_id="b", topic_id="b/a.events")
    return drilled_row(folder, TopicPartition("a.events", 0), StoredOffset(offset, anchor, BEGIN), names, then=then)


LONG = "abcd" + "e" * 200 + "fgh"


def test_the_records_between_an_old_anchor_and_the_batch_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[int] = set()
    real = MemoryLog.read

    def read(self: MemoryLog, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        chunks = real(self, requests)
        asked.update(record.offset for chunk in chunks for record in chunk.records)
        return chunks

    monkeypatch.setattr(MemoryLog, "read", read)
    found = drilled_here(tmp_path, LONG.index("f"), LONG, then=LONG)
    (partition,) = found.partitions
    assert (partition.row.finding, partition.found, found.faults) == (Verdict.EXACT, "after 3", ())
    assert (partition.starts_at, asked) == (204, {3, 204, 205, 206})


def test_an_old_anchor_whose_record_has_become_another_is_told(tmp_path: Path) -> None:
    found = drilled_here(tmp_path, LONG.index("f"), LONG, then=LONG.replace("d", "D"))
    assert found.faults == ("a.events-0: the record at 3 is not the plan's anchor",)
