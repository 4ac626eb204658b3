"""A drill: for a stateful query with a copy of its checkpoint, and for a job with startingOffsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.state import journal
from reconciler.state.journal import StreamPartition
from reconciler.state.stored import Known
from tests.failover.checkpoint.checkpoint_files import command
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.starting import state_of, with_state

pytestmark = pytest.mark.system
GROUP = "drilled"


def value(number: int) -> Sent:
    return Sent(number % 2, b"k", b"%d" % number, BASE_MS + 1000 * number)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def counted(spark: Any, kafka: Kafka, topic: str, checkpoint: Path) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafka").options(**options).load().groupBy("value").count()
    writer = frame.writeStream.outputMode("update").foreachBatch(lambda batch, number: batch.collect())
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def folder(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> Path:
    """Records 0 to 9 were counted on a source, which had three more before; the mirror has 0 to 19.

    The anchors of what was stored are in its journal, or beside it: of another cluster.
    """
    there = f"a.{topic_name}"
    for name in (topic_name, there):
        kafka.create(name, 2)
    kafka.send(topic_name, [Sent(number % 2) for number in range(6)] + [value(number) for number in range(10)])
    for first in range(0, 20, 4):
        kafka.send(there, [value(number) for number in range(first, first + 4)], transaction=there)
    counted(spark, kafka, topic_name, tmp_path / "checkpoint")
    rows = {}
    for partition, last in enumerate((8, 9)):
        sent = value(last)
        anchor = Anchor(7, sent.timestamp_ms, None, fingerprint(sent.key, sent.value), "the-source-cluster")
        rows[TopicPartition(topic_name, partition)] = StoredOffset(8, anchor, sent.timestamp_ms)
    store = open_store(f"sqlite:///{tmp_path / 'offsets.db'}")
    store.create()
    store.write(GROUP, [Change(key, None, new) for key, new in rows.items()], reason="test", now_ms=BASE_MS)
    store.close()
    jobs = "".join(
        f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{GROUP}"\ntopics = ["{topic_name}"]\noffsets = "{store}"\n'
        for name, store in (
            ("counts", f"checkpoint:{tmp_path / 'checkpoint'}"),
            ("clicks", f"sqlite:///{tmp_path / 'offsets.db'}"),
        )
    )
    (tmp_path / "reconciler.toml").write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{kafka.bootstrap}"\n{jobs}'
    )
    known = {StreamPartition(key.topic, "a", key.partition): Known(new.offset, new.anchor) for key, new in rows.items()}
    state = state_of(with_state(tmp_path / "reconciler.toml"), "counts", "a")
    assert state.append_journal(1, 1, journal.opening(known, journal.OUTSIDE, BASE_MS))
    (tmp_path / "temp").mkdir()
    return tmp_path


def test_jobs_are_drilled_and_nothing_is_touched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(folder / "checkpoint")
    rows = everything_in(folder / "offsets.db")
    for job in ("counts", "clicks"):
        capsys.readouterr()
        arguments = ("-c", folder / "reconciler.toml", "--job", job, "--temp", folder / "temp", "--format", "json")
        assert command("drill", *arguments) == 0
        found = json.loads(capsys.readouterr().out)
        for each, last in zip(found["partitions"], (8, 9), strict=True):
            assert (each["finding"], each["read"], each["fault"]) == ("exact", 5, None)
            assert each["starts_at"] == each["resume_offset"]
            assert each["first"]["timestamp_ms"] == value(last + 2).timestamp_ms
            assert each["found"].startswith("after ")
        copy = found["checkpoint"]
        assert (copy is not None) == (job == "counts")
        if copy is not None:
            original = read_checkpoint(str(folder / "checkpoint"))
            assert (copy["query_id"], copy["next_batch"]) == (original.query_id, original.next_batch)
            (offsets,) = (source["start"] for source in copy["sources"])
            assert set(offsets.popitem()[1].values()) == {each["starts_at"] for each in found["partitions"]}
        assert list((folder / "temp").iterdir()) == []
    assert files_of(folder / "checkpoint") == before
    assert everything_in(folder / "offsets.db") == rows


def everything_in(path: Path) -> list[Any]:
    store = open_store(f"sqlite:///{path}")
    try:
        return list(store.read(GROUP))
    finally:
        store.close()
