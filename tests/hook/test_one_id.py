"""Clusters that report one id: the default ids of images, and clones. No job moves because of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.formats.start import Side
from reconciler.hook.side import Chosen, choose
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import ClusterInfo
from tests.in_memory import Memory, found, stored

IDENTITY = '[topics]\npolicy = "identity"\n'
WORDS = (None, Side.SOURCE, Side.DESTINATION)


def row(topic_id: str | None) -> StoredOffset:
    before = stored(4)
    assert before.anchor is not None
    return replace(before, anchor=replace(before.anchor, cluster_id="b", topic_id=topic_id))


class OneId:
    """The destination's topic is ``here``, both clusters are ``b``, and the job has the anchor of record 4."""

    def __init__(self, memory: Memory, anchored: str | None, at_source: str | None, here: str = "here") -> None:
        memory.log.create("events", 1, here)
        memory.deliver(range(3, 10), topic="events")
        memory.save({0: row(anchored)})
        source = MemoryLog("b")
        if at_source is not None:
            source.create("events", 1, at_source)
        self.memory, self.asked = memory, 0

        def ask(topics: Iterable[str]) -> ClusterInfo | None:
            self.asked += 1
            return None if at_source is None else source.describe(topics)

        self._ask = ask

    def choose(self, word: Side | None = None) -> Chosen:
        config = self.memory.config(IDENTITY)
        outside = replace(self.memory.outside, ask_source=self._ask)
        return choose(config, config.jobs[0], outside, word=word, mark=None)

    def sides(self) -> list[Side | str]:
        """Where the job starts: without a word, and by each."""
        ends: list[Side | str] = []
        for word in WORDS:
            try:
                ends.append(self.choose(word).side)
            except NeedsPerson as error:
                ends.append(error.message)
        return ends


def test_an_anchor_of_the_sources_topic_keeps_the_job_at_the_source(memory: Memory) -> None:
    assert OneId(memory, "there", "there").sides() == [Side.SOURCE, Side.SOURCE, Side.DESTINATION]


@pytest.mark.parametrize("at_source", ["there", None])
def test_an_anchor_of_the_destinations_topic_keeps_the_job_there(memory: Memory, at_source: str | None) -> None:
    """Also where the source is lost."""
    without, at, word = OneId(memory, "here", at_source).sides()
    assert (without, word) == (Side.DESTINATION, Side.DESTINATION)
    assert "lives at the destination" in at


UNCLEAR: dict[str, tuple[str | None, str | None, str]] = {
    "and the topic's id is not known for events-0": (None, "there", "here"),
    "and topic events has the id cloned on both": ("cloned", "cloned", "cloned"),
    "and the anchor of events-0 is of a topic id that neither has (older)": ("older", "there", "here"),
    "or the source reports the same cluster id (b). The source does not answer": ("there", None, "here"),
}


@pytest.mark.parametrize("why", UNCLEAR)
def test_where_nothing_tells_the_side_a_person_says_it(memory: Memory, why: str) -> None:
    without, source, destination = OneId(memory, *UNCLEAR[why]).sides()
    assert 'On which side job "clicks" is to start is not clear: ' in without
    assert why in without
    assert (source, destination) == (Side.SOURCE, Side.DESTINATION)


def test_a_source_with_an_id_of_its_own_leaves_the_destinations_row_alone(memory: Memory) -> None:
    """Its topic was created again at the destination."""
    one = OneId(memory, "older", None)
    one._ask = lambda topics: MemoryLog("a", {"events": 1}).describe(topics)
    assert one.choose().side is Side.DESTINATION


def test_the_source_is_asked_only_where_the_cluster_id_is_the_destinations(memory: Memory) -> None:
    one = OneId(memory, "there", "there")
    memory.save({0: stored(4)})
    assert (one.choose().side, one.asked) == (Side.SOURCE, 0)


@pytest.mark.parametrize("anchored", ["there", None, "here"])
def test_the_offset_is_found_by_the_record_whatever_the_ids(memory: Memory, anchored: str | None) -> None:
    OneId(memory, anchored, "there")
    assert found(memory.row(IDENTITY)) == (Verdict.MOVED, 2)
