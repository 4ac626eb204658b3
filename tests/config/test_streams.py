"""Streams: which topic a stream is on each cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config.streams import Naming, Stream
from reconciler.core.question import TopicPolicy

CLUSTERS = ("a", "b", "c")
NAMINGS = [
    Naming(),
    Naming(separator="_"),
    Naming(template="{topic}.replica.{cluster}"),
    Naming(TopicPolicy.IDENTITY),
]


def test_each_origin_has_its_own_name_on_each_cluster() -> None:
    naming = Naming()
    streams = naming.streams(["events"], "a", ["a", "b"])
    assert streams == (Stream("events", "a"), Stream("events", "b"))
    assert list(naming.by_name(streams, "a")) == ["events", "b.events"]
    assert list(naming.by_name(streams, "b")) == ["a.events", "events"]


def test_under_one_name_there_is_one_stream() -> None:
    naming = Naming(TopicPolicy.IDENTITY)
    assert naming.streams(["events", "clicks"], "a", ["a", "b"]) == (Stream("events", "a"), Stream("clicks", "a"))
    assert naming.name_on(Stream("events", "a"), "b") == "events"


def test_names_of_a_table_come_first() -> None:
    naming = Naming(names={"c": {Stream("events", "a"): "b.a.events"}})
    assert [naming.name_on(Stream("events", "a"), each) for each in CLUSTERS] == ["events", "a.events", "b.a.events"]


def test_two_streams_of_one_name_are_refused() -> None:
    naming = Naming(names={"b": {Stream("events", "a"): "events"}})
    with pytest.raises(ValueError, match="events@a and events@b are both events on b"):
        naming.by_name(naming.streams(["events"], "a", ["a", "b"]), "b")


def test_a_name_is_shared_if_it_is_a_stream_of_another_cluster() -> None:
    both = Naming().streams(["events"], "a", ["a", "b"])
    assert Naming().is_shared(both, both[0], "a", ("a", "b"))  # events: a's own there, b's own on b
    assert not Naming().is_shared(both[:1], both[0], "a", ("a", "b"))
    identity = Naming(TopicPolicy.IDENTITY)
    assert identity.is_shared(both[:1], both[0], "a", ("a", "b"))


@pytest.mark.parametrize("naming", NAMINGS, ids=["default", "underscore", "template", "identity"])
@given(topics=st.sets(st.sampled_from(["events", "clicks", "a", "x-y"]), min_size=1))
def test_a_name_leads_back_to_its_stream(naming: Naming, topics: set[str]) -> None:
    streams = naming.streams(sorted(topics), "a", CLUSTERS)
    for cluster in CLUSTERS:
        named = naming.by_name(streams, cluster)
        assert [named[naming.name_on(each, cluster)] for each in streams] == list(streams)


def test_a_stream_is_read_from_text() -> None:
    assert Stream.parse("x@y@a") == Stream("x@y", "a")
    for wrong in ("events", "@a", "events@"):
        with pytest.raises(ValueError, match="TOPIC@CLUSTER"):
            Stream.parse(wrong)
