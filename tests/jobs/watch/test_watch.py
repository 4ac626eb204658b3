"""``reconciler watch`` over real clusters: both situations, signals, and its listener."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.lab.kafka import KafkaCluster
from tests.jobs.watch.watching import Watching, runs_here, watching
from tests.starting import moved, state_of
from tests.waiting import LIMIT_S
from tests.world import World, environment, free_port

pytestmark = pytest.mark.system

SHORT = '[search]\ndeadline = "2s"\n'


# ---------------------------------------------------------------- the two situations


def test_one_watch_shows_what_a_failover_would_find_and_mismatches_of_a_job_that_runs_here(world: World) -> None:
    """The same job before and after it is handed over: its source is ahead of the mirror; its topic is replaced."""
    world.deliver(12, 4)
    world.processed(7, 9)
    config = world.config(lives="a")
    with watching(config, "--to", "b") as watch:
        where = {"job": "clicks", "topic": world.mirrored}
        watch.until(lambda: watch.value("up", job="clicks") == 1, "a whole check")
        assert watch.verdicts("clicks") == {(world.mirrored, "exact"): 1, (world.mirrored, "behind"): 1}
        assert watch.value("mirror_shortfall_partitions", **where) == 1
        assert watch.value("mismatched_partitions", **where) == watch.value("own_partitions", **where) == 0

        world.append({1: range(4, 12)})
        watch.until(lambda: watch.verdicts("clicks") == {(world.mirrored, "exact"): 2}, "the mirror has caught up")
        assert watch.value("mirror_shortfall_partitions", **where) == 0
        assert watch.value("replay_records", **where) == 0

        runs_here(world, 8, 10, topic=world.mirrored)
        moved(state_of(config, "clicks", "a"), "a", "b")
        reload(watch)
        watch.until(lambda: watch.value("own_partitions", **where) == 2, "the job was handed over")
        assert watch.verdicts("clicks") == {(world.mirrored, "exact"): 2}
        assert watch.value("mismatched_partitions", **where) == 0
        age = watch.value("anchor_age_seconds", job="clicks")
        assert age is not None
        assert 0 <= age < 600

        world.cluster.admin().delete_topics([world.mirrored], operation_timeout=30)[world.mirrored].result(timeout=30)
        watch.until(lambda: watch.value("mismatched_partitions", **where) == 2, "its topic was deleted")
        watch.until(lambda: world.cluster.partitions(world.mirrored) == 0, "the topic is gone")
        world.deliver(12, 12, burst=3)
        watch.until(
            lambda: (
                watch.value("up", job="clicks") == 1
                and set(watch.verdicts("clicks")) != {(world.mirrored, "unresolved")}
            ),
            "its topic is there again",
        )
        assert watch.value("mismatched_partitions", **where) == 2
        assert (world.mirrored, "exact") not in watch.verdicts("clicks")

        runs_here(world, 8, 10, topic=world.mirrored)
        watch.until(lambda: watch.value("mismatched_partitions", **where) == 0, "a person has corrected it")
        assert not [line for line in watch.lines if "bug" in line]


# ---------------------------------------------------------------- a cluster that shuts down


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[KafkaCluster]:
    """One that may be stopped."""
    with KafkaCluster("alone", tmp_path_factory.mktemp("alone"), kafka_jars) as cluster:
        yield cluster


ASKS = """
import sys, threading
from reconciler.core.errors import Unreachable
from reconciler.kafka.reader import KafkaLogReader
ends = threading.Event()
def ask():
    while not ends.is_set():
        reader = KafkaLogReader({"bootstrap.servers": sys.argv[1]}, timeout_s=2)
        try:
            while not ends.is_set():
                reader.describe(())
        except Unreachable:
            pass
        reader.close()
threads = [threading.Thread(target=ask) for _ in range(4)]
[thread.start() for thread in threads]
print("asking", flush=True)
sys.stdin.read()
ends.set()
[thread.join() for thread in threads]
"""


@pytest.mark.thorough
def test_a_last_broker_that_answers_while_it_shuts_down_does_not_end_who_asks(own_cluster: KafkaCluster) -> None:
    """It then names no broker at all, itself included: librdkafka aborts over a description of the cluster alone."""
    command = [sys.executable, "-c", ASKS, own_cluster.bootstrap]
    asking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    try:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"asking\n"
        for _ in range(2):
            own_cluster.stop()
            own_cluster.restart()
        asking.communicate(timeout=LIMIT_S)
        assert asking.returncode == 0
    finally:
        asking.kill()
        asking.wait()


# ---------------------------------------------------------------- signals


def reload(watch: Watching) -> None:
    watch.process.send_signal(signal.SIGHUP)


def test_a_changed_configuration_is_read_at_a_signal_and_a_bad_one_is_not_used(world: World) -> None:
    world.deliver(12)
    world.processed(7)
    one, other = world.job("one"), world.job("other")
    other = other.replace(world.group, f"{world.group} too")
    config = world.config(one, extra=SHORT)
    good = config.read_text()
    with watching(config) as watch:
        watch.until(lambda: watch.value("up", job="one") == 1, "the job was checked")
        checks = watch.value("checks_total", job="one", outcome="ok") or 0

        config.write_text(good.replace("[search]", "[serach]"))
        reload(watch)
        watch.until(lambda: watch.value("config_last_reload_successful") == 0, "the bad configuration is reported")
        said = "the previous one stays in use"
        watch.until(lambda: [line for line in watch.lines if said in line and "serach" in line], "it is said why")
        watch.next_rounds()
        assert watch.value("up", job="one") == 1

        config.write_text(f"{good}\n{other}\n")
        reload(watch)
        watch.until(lambda: watch.value("up", job="other") == 1, "the second job was checked")
        assert watch.value("config_last_reload_successful") == 1
        assert (watch.value("checks_total", job="one", outcome="ok") or 0) > checks > 0

        config.write_text(good.replace('name = "one"', 'name = "renamed"'))
        reload(watch)
        watch.until(lambda: watch.value("up", job="renamed") == 1, "the renamed job was checked")
        jobs = {dict(labels).get("job") for _, labels in watch.samples()}
        assert jobs == {None, "renamed"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_also_while_it_waits_for_a_cluster(world: World, number: int) -> None:
    config = world.config(bootstrap=f"127.0.0.1:{free_port()}", extra='[search]\ndeadline = "600s"\n')
    with watching(config) as watch:
        assert watch.get("/metrics")[0] == 200
        assert watch.end(number) == 0
        assert watch.lines[-1] == "stopped"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(watch.url.rpartition(":")[2])), timeout=30)


# ---------------------------------------------------------------- the listener, and what is a matter of usage


def test_listening_to_everybody_is_said(world: World) -> None:
    with watching(world.config(), listen="0.0.0.0:0") as watch:
        watch.until(lambda: [line for line in watch.lines if "any client of this port can read" in line], "the warning")
        port = int(watch.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass
