"""The log in memory answers as a real broker does: seeded logs are carried out on both, and everything is compared.

What simulations prove about searches, they prove of this model. A failure names a seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.ports import LogReader, ReadRequest
from tests.demo.lab.kafka import KafkaCluster
from tests.kafka.bulk.readers import Both
from tests.kafka.model import twin_differences
from tests.kafka.model.broker_twins import BROKER, Twin, make_twins, memory_log, patient_reader
from tests.kafka.model.seeded_logs import make_log
from tests.kafka.model.twin_differences import Whole, first_since, times_of, told
from tests.waiting import wait_until

pytestmark = pytest.mark.system

SEEDS = range(72)
"""As many of each kind of topic."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[KafkaCluster]:
    """A broker of this file's own: its cleaner comes by at once, and nothing else removes anything."""
    with KafkaCluster("model", tmp_path_factory.mktemp("model"), kafka_jars, properties=BROKER) as cluster:
        yield cluster


@pytest.fixture
def reader(broker: KafkaCluster) -> Iterator[LogReader]:
    with closing(patient_reader(broker)) as opened:
        yield opened


@pytest.fixture(scope="module")
def twins(broker: KafkaCluster) -> list[Twin]:
    return make_twins(broker, [make_log(seed) for seed in SEEDS])


def some_of(differences: Iterable[str]) -> str:
    """The first differences, to read; empty if there is none."""
    found = list(differences)
    return "\n".join([f"{len(found)} differences"] * bool(found) + found[:5])


# ---------------------------------------------------------------- what a broker does


def test_the_log_cleaner_leaves_the_batches_and_segments_that_the_model_says(
    broker: KafkaCluster, twins: list[Twin]
) -> None:
    assert some_of(twin_differences.on_disk(broker, twins)) == ""


def test_a_brokers_own_time_lookups_are_the_models(broker: KafkaCluster, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_broker_lookups(broker, twins)) == ""


def test_the_largest_timestamps_a_broker_knows_are_the_models(broker: KafkaCluster, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_largest_times(broker, twins)) == ""


def test_the_seeds_make_everything_that_can_mislead_a_search(twins: list[Twin]) -> None:
    seen: Counter[str] = Counter()
    for twin in twins:
        memory, written = twin.memory, bool(twin.log.operations)
        batches = [batch for segment in memory.segments for batch in segment.batches]
        segments, markers = memory.segments, {offset for offset, _ in memory.markers}
        seen["never written to"] += memory.end == 0
        seen["emptied by deletion"] += 0 < memory.start == memory.end
        seen["deleted in front"] += 0 < memory.start < memory.end
        seen["several segments"] += len(segments) > 1
        seen["segments before the start"] += len(segments) > 1 and segments[1].base <= memory.start
        seen["batches that the cleaner emptied"] += sum(batch.emptied for batch in batches)
        seen["segments that the cleaner emptied"] += written and any(not segment.batches for segment in segments)
        seen["aborted batches"] += any(batch.abort_marker is not None and batch.records for batch in batches)
        seen["no largest timestamp"] += memory.broker_latest_ms() is None and memory.start < memory.end
        for stamp in times_of(twin):
            found = memory.broker_lookup(stamp)
            overlooked = found is None and first_since(twin, stamp) is not None
            seen["lookups that name a marker"] += found in markers
            seen["lookups of none in a log from 0 on, though a record is there"] += overlooked and memory.start == 0
            seen["lookups of none in a log deleted in front, though a record is there"] += (
                overlooked and memory.start > 0
            )
    assert [what for what, count in seen.items() if count == 0] == []


# ---------------------------------------------------------------- what the product makes of it


def test_batches_are_the_same(reader: LogReader, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_edges(reader, twins)) == ""


def test_lookups_are_the_same_and_never_overlook_a_record(reader: LogReader, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_lookups(reader, twins)) == ""


def test_reads_of_many_partitions_are_the_same_and_the_reference_is_rarely_asked(
    broker: KafkaCluster, twins: list[Twin]
) -> None:
    with closing(Both({"bootstrap.servers": broker.bootstrap})) as both:
        assert some_of(twin_differences.in_reads(both, twins)) == ""
        found = list(twin_differences.in_counted(both, twins))
    starts = {twin.place: (twin.memory.start, twin.memory.end) for twin in twins}
    within = [r for r in both.left if starts[r.partition][0] <= r.offset <= starts[r.partition][1]]
    assert some_of(filter(None, found)) == ""
    assert len(found) > 500, "of so many reads some records were counted"
    assert len(both.in_bulk) > 1_000
    assert len(within) < len(both.in_bulk) / 20, within[:5]


def test_reads_from_every_offset_are_the_same(reader: LogReader, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_reads(reader, twins)) == ""


def test_reads_of_committed_records_are_the_same(reader: LogReader, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_reads(reader, twins, committed=True)) == ""


def test_a_read_goes_over_batches_that_the_log_cleaner_emptied_again_and_again(
    broker: KafkaCluster, twins: list[Twin]
) -> None:
    """The client makes its fetches larger each time it is given no record, and reports an error at the 11th."""
    twin, offset = next(
        (twin, segment.batches[-1].base)
        for twin in twins
        for segment in twin.memory.segments
        if segment.batches and segment.batches[-1].emptied and segment.batches[-1].base >= twin.memory.start
    )
    wanted = twin.memory.read(offset, 5)
    with closing(patient_reader(broker)) as own:
        for _ in range(12):
            (chunk,) = Whole(own).read([ReadRequest(twin.place, offset, 5)])
            assert list(map(told, chunk.records)) == list(map(told, wanted.records))


def test_searches_find_the_same_with_the_same_number_of_probes(reader: LogReader, twins: list[Twin]) -> None:
    assert some_of(twin_differences.in_findings(reader, twins)) == ""


# ---------------------------------------------------------------- topics


def test_topics_are_described_the_same(broker: KafkaCluster, reader: LogReader, twins: list[Twin]) -> None:
    topics = {twin.place.topic for twin in twins}
    described = reader.describe([*topics, "no-such-topic"])
    assert described.cluster_id == broker.cluster_id
    model = memory_log(twins).describe([*topics, "no-such-topic"])
    assert {name: (info.partitions, info.compacted) for name, info in described.topics.items()} == {
        name: (info.partitions, info.compacted) for name, info in model.topics.items()
    }
    ids = [info.topic_id for info in described.topics.values()]
    assert all(ids)
    assert len(set(ids)) == len(topics)


def test_a_topic_recreated_under_its_name_is_another_log(broker: KafkaCluster, reader: LogReader) -> None:
    """The reader has seen the first one: nothing of it may come back."""
    first, second = make_log(8), make_log(72)
    assert first.kind.name == second.kind.name == "one-segment"
    ids = []
    for log in (first, second):
        (twin,) = make_twins(broker, [log], name=lambda kind: f"{kind}-anew")
        ids.append(reader.describe([twin.place.topic]).topics[twin.place.topic].topic_id)
        for compare in (twin_differences.in_edges, twin_differences.in_lookups, twin_differences.in_reads):
            assert some_of(compare(reader, [twin])) == ""
        delete_topic(broker, twin.place.topic)
    assert ids[0] != ids[1]


def delete_topic(broker: KafkaCluster, topic: str) -> None:
    broker.admin().delete_topics([topic], operation_timeout=30)[topic].result(30)
    wait_until(lambda: broker.partitions(topic) == 0, f"the end of {topic}")
