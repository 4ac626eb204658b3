"""Corrections that the job itself stores: what is kept before its start, and when that is refused."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import Intended, JobChanges
from reconciler.failover.writing.handed import hand_over
from reconciler.formats import snapshot
from reconciler.stores.registry import open_store
from tests.cli.page.shown_plans import job, plan, row

pytest.importorskip("deltalake")
pytest.importorskip("pyarrow")

from tests.in_memory import on_disk
from tests.stores.sink_job import append_delta

NEW = StoredOffset(3_679, Anchor(3_678, 5, fingerprint=fingerprint(b"k", b"v"), cluster_id="destination"), 7)


def configured(folder: Path) -> Config:
    append_delta(folder / "t", [("x", 0, 0, "id")], {"userMetadata": json.dumps({"events": {"0": 4_514}})})
    path = folder / "reconciler.toml"
    path.write_text(
        '[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:1"\n[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "g"\n'
        f'topics = ["events"]\noffsets = "delta:{folder}/t?layout=commit&number=next"\n'
    )
    return load_config(path)


def handing(folder: Path, config: Config, topic: str, *, anchors: str | None) -> Path:
    """Hand one offset over; the path of its plan."""
    planned = row(0, topic=topic)
    made = plan(job(planned))
    item = Intended(planned, TopicPartition(topic, 0), None, NEW, None)
    opener: Any = partial(open_store, anchors=anchors)
    outside = Outside(reader=None, open_store=opener, monotonic=time.monotonic, now_ms=lambda: 9)  # type: ignore[arg-type]
    path = on_disk(made, folder / "failover.plan.json")
    hand_over([JobChanges(config.jobs[0], (item,))], made, path, outside)
    return path


def test_the_anchors_are_kept_once_and_mark_a_new_stay(tmp_path: Path) -> None:
    config, anchors = configured(tmp_path), f"sqlite:///{tmp_path}/anchors.db"
    marked = snapshot.path_for(handing(tmp_path, config, "a.events", anchors=anchors))
    (kept,) = open_store(anchors).read("g")
    assert (kept.key, kept.stored) == (TopicPartition("a.events", 0), NEW)
    marked.unlink()
    handing(tmp_path, config, "a.events", anchors=anchors)
    assert not marked.exists(), "the next start is of the same stay"
    assert open_store(anchors).read("g") == [kept]


def test_one_topic_name_on_both_sides_is_refused(tmp_path: Path) -> None:
    config, anchors = configured(tmp_path), f"sqlite:///{tmp_path}/anchors.db"
    with pytest.raises(ConfigError, match=r'Topic "events" of job "clicks" has one name on both sides'):
        handing(tmp_path, config, "events", anchors=anchors)
    assert not (tmp_path / "anchors.db").exists()


def test_without_a_store_of_anchors_nothing_could_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing keeps the anchors of corrected offsets"):
        handing(tmp_path, configured(tmp_path), "a.events", anchors=None)
