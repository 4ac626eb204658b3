"""What a real MirrorMaker left out and began again, as watch counts it by the offset syncs at the destination."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from reconciler.cli.main import main
from reconciler.places.registry import open_store
from tests.demo.lab.kafka import KafkaCluster, MirrorMaker

pytestmark = [pytest.mark.system, pytest.mark.thorough]

TOPIC = "events"


def produce(cluster: KafkaCluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def watched(config: Path, capsys: pytest.CaptureFixture[str]) -> Mapping[str, float]:
    """The metrics by name: the one job has one topic."""
    capsys.readouterr()
    assert main(["watch", "-c", str(config), "--once"]) == 0
    families = text_string_to_metric_families(capsys.readouterr().out)
    return {sample.name.removeprefix("reconciler_"): sample.value for family in families for sample in family.samples}


def test_records_that_were_deleted_under_a_stopped_mirror_and_a_recreated_topic_are_counted(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        KafkaCluster("a", tmp_path / "a", kafka_jars) as a,
        KafkaCluster("b", tmp_path / "b", kafka_jars) as b,
    ):
        a.create_topic(TOPIC)
        offsets = f"sqlite:///{tmp_path}/offsets.db"
        with closing(open_store(offsets)) as store:
            store.create()
        config = tmp_path / "reconciler.toml"
        config.write_text(
            f'[clusters.a]\nbootstrap_servers = "{a.bootstrap}"\n[clusters.b]\nbootstrap_servers = "{b.bootstrap}"\n'
            f'[[jobs]]\nhome = "a"\nname = "j"\ntopics = ["{TOPIC}"]\noffsets = "{offsets}"\n'
        )
        settings = {"offset-syncs.topic.location": "target"}
        mirror = MirrorMaker(a, b, [TOPIC], tmp_path / "mirror", kafka_jars, properties=settings)
        with mirror:
            produce(a, 300)
            mirror.wait_until_mirrored(TOPIC)
        produce(a, 500)
        a.delete_records(TOPIC, 0, before=700)
        with mirror:
            mirror.wait_until_mirrored(TOPIC, {0: 400})
        found = watched(config, capsys)
        assert 300 <= found["mirror_skipped_records"] <= 400, "400, less what could be markers since the sync before"
        assert found["mirror_began_again"] == 0

        a.admin().delete_topics([TOPIC])[TOPIC].result()
        a.wait_until(lambda: TOPIC not in a.admin().list_topics(timeout=30).topics, 60, "the topic to be gone")
        a.create_topic(TOPIC)
        produce(a, 20)
        with mirror:
            mirror.wait_until_mirrored(TOPIC, {0: 420})
        assert watched(config, capsys)["mirror_began_again"] == 1
