"""Real servers for the stores' tests, each started when a test first asks for it."""

from fixtures_zookeeper import (  # noqa: F401
    chroot,
    kazoo,
    open_zookeeper,
    zookeeper,
    zookeeper_consumers_case,
    zookeeper_single_case,
)
