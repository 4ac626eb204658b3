"""Spark's own Kafka source gets in with the settings of librdkafka's client, through every door."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.spark.batches.planning import OffsetRange
from reconciler.spark.batches.reading import ClusterAccess, look_up_edges, options_for
from tests.kafka.security.certificates import CLIENT
from tests.kafka.security.secured import USER, Acl, Secured
from tests.sizes import sampled
from tests.world import World

pytestmark = pytest.mark.system


@pytest.mark.parametrize("door", sampled(["scram", "key store", "PLAIN", "token"], keep=1))
def test_spark_reads_with_the_login_of_the_client_settings(
    spark: Any, secured: Secured, secured_world: World, door: str
) -> None:
    world = secured_world
    world.deliver(5)
    for user in (USER, CLIENT):
        secured.allow(user, [Acl("Read", "topic", world.mirrored)])
    store = {"ssl.keystore.location": str(secured.certificates.client_store)}
    store |= {"ssl.keystore.password": secured.certificates.password}
    trust = {name: secured.mutual[name] for name in ("security.protocol", "ssl.ca.location")}
    address, settings = {
        "scram": (secured.sasl, secured.scram),
        "key store": (secured.tls, trust | store),
        "PLAIN": (secured.logins, secured.login("PLAIN")),
        "token": (secured.logins, secured.token),
    }[door]
    access = ClusterAccess.at(address, settings)
    reader = access.reader()
    try:
        edges = look_up_edges(reader, [world.mirrored])
    finally:
        reader.close()
    ranges = [OffsetRange(place.topic, place.partition, edges.starts[place], end) for place, end in edges.ends.items()]
    found = spark.read.format("kafka").options(**options_for(ranges, address, access.options)).load()
    assert found.count() == 5
