"""Offset stores in Kafka: a group's commits (``kafka-group:``) and a compacted topic (``kafka-topic:NAME``).

``group`` and ``topic`` are the stores; they load Kafka's client only when a store is first used.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.core.errors import ConfigError


def require_client(scheme: str, kafka_client: Mapping[str, str] | None) -> Mapping[str, str]:
    """The destination's client settings. Raises ConfigError if they name no cluster."""
    if not kafka_client or not kafka_client.get("bootstrap.servers"):
        raise ConfigError(
            f"The store {scheme}: needs the destination's client settings, and there are none.",
            hint="Set bootstrap_servers under [destination].",
        )
    return kafka_client
