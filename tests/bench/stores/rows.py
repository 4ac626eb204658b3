"""What a plan, its apply and its rollback cost by the store: 10,000 moved rows each.

    python -m tests.bench.stores.rows [--only sqlite,files,kafka-group,…] [--rows 10000] [--runs 3] [--beside FOLDER]
        [--json FILE]

Starts a broker with so many partitions, and for each store its server. Every run has a group of its own, so that each
apply writes all rows; the first of several runs is a warm-up. ``--beside``: another version's sources, whose programs
run in turn with these. Prints a table of medians, start included, and the same as JSON.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from reconciler.artifacts import kafka_jars
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.bench.common import HEAD, Cost, measured, print_json, this_python
from tests.bench.plans.speed import BEGIN_MS, LONG, SMALL_INDEXES, TOPIC, fill, value
from tests.lab.kafka import KafkaCluster
from tests.lab.servers.jars import hbase_jars, zookeeper_jars

RECORDS = 20
GROUP = "each-groups-own"
"""In the address of a store without groups, the place of one."""
WAIT_S = 60
"""For a store's answer: 10,000 rows are one batch for some."""


@contextmanager
def sqlite(place: Path) -> Iterator[str]:
    yield f"sqlite:///{place}/offsets.db"


@contextmanager
def files(place: Path) -> Iterator[str]:
    yield f"files:{place}/offsets"


@contextmanager
def kafka_group(_: Path) -> Iterator[str]:
    yield "kafka-group:"


@contextmanager
def postgresql(place: Path) -> Iterator[str]:
    from tests.lab.servers.postgresql import PostgresServer

    for folder in (place, *place.parents[:-2]):
        folder.chmod(0o755)  # the server does not run as root
    with PostgresServer(place / "postgresql") as server:
        yield server.url()


@contextmanager
def zookeeper(place: Path) -> Iterator[str]:
    from tests.lab.servers.zookeeper import ZooKeeperServer

    with ZooKeeperServer(place / "zookeeper", zookeeper_jars(), heap="512m") as server:
        yield f"zookeeper://{server.hosts}/bench?layout=consumers"


@contextmanager
def zookeeper_single(place: Path) -> Iterator[str]:
    from tests.lab.servers.zookeeper import ZooKeeperServer

    with ZooKeeperServer(place / "zookeeper-single", zookeeper_jars(), heap="512m") as server:
        yield f"zookeeper://{server.hosts}/{GROUP}?layout=single"


@contextmanager
def hbase(place: Path) -> Iterator[str]:
    from tests.lab.servers.hbase import HBase

    with HBase(place / "hbase", hbase_jars()) as server:
        yield f"hbase://{server.address}/offsets?layout=anchored&timeout={WAIT_S}"


STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "sqlite": sqlite,
    "files": files,
    "kafka-group": kafka_group,
    "postgresql": postgresql,
    "zookeeper": zookeeper,
    "zookeeper-single": zookeeper_single,
    "hbase": hbase,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STORES), help="stores, separated by commas")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beside", metavar="FOLDER", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g", properties=SMALL_INDEXES) as cluster:
            fill(cluster, TOPIC, options.rows, RECORDS)
            print(f"{'':18}{'':16}{HEAD}")
            for name in options.only.split(","):
                with STORES[name](place) as address:
                    found[name] = medians(cluster.bootstrap, place, name, address, options)
                for step, cost in found[name].items():
                    print(f"{name:18}{step:16}{cost.text()}", flush=True)
    rows = {name: {step: cost._asdict() for step, cost in each.items()} for name, each in found.items()}
    print_json("stores.rows", {**vars(options), "records": RECORDS}, rows, options.json)


def medians(bootstrap: str, place: Path, name: str, address: str, options: argparse.Namespace) -> dict[str, Cost]:
    taken: dict[str, list[Cost]] = {}
    warm_up = int(options.runs > 1)
    sides = {"": None} if options.beside is None else {"": None, " beside": options.beside}
    for number in range(options.runs + warm_up):
        for side, sources in sides.items():
            group = f"group{number}{side.strip()}"
            its_own = address.replace(GROUP, group)
            write_rows(its_own, group, options.rows, bootstrap)
            config, plan = write_config(place, bootstrap, group, its_own), place / f"{name}-{group}.json"
            costs = {
                "plan": cost_of(sources, "plan", "-c", str(config), "-o", str(plan)),
                "apply": cost_of(sources, "apply", str(plan), "-c", str(config), "--yes"),
                "rollback": cost_of(sources, "rollback", str(plan), "-c", str(config), "--yes"),
            }
            for step, cost in costs.items() if number >= warm_up else ():
                taken.setdefault(step + side, []).append(cost)
    return {step: Cost(*map(statistics.median, zip(*costs, strict=True))) for step, costs in taken.items()}


def cost_of(sources: Path | None, *arguments: str) -> Cost:
    """The cost of the program with these ``sources``, or with those that are installed."""
    if sources is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = str(sources.resolve())
    return measured(this_python("-P", "-m", "reconciler", *arguments))


def write_rows(address: str, group: str, rows: int, bootstrap: str) -> None:
    """The offsets of another cluster, right behind a record in the middle."""
    number, changes = RECORDS // 2, []
    for partition in range(rows):
        print_of = fingerprint(b"k%d" % number, value(partition, number))
        anchor = Anchor(9_000, BEGIN_MS + number * 1000, None, print_of, "another-cluster", "another-topic")
        changes.append(Change(TopicPartition(TOPIC, partition), None, StoredOffset(9_001, anchor)))
    store = open_store(address, kafka_client={"bootstrap.servers": bootstrap})
    store.create()
    store.write(group, changes, reason="benchmark", now_ms=0)
    store.close()


def write_config(place: Path, bootstrap: str, group: str, address: str) -> Path:
    path, secret = place / f"{group}.toml", place / f"{group}.address"
    secret.touch(0o600)
    secret.write_text(address)  # a server's holds a password
    path.write_text(
        f'[destination]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n{LONG}'
        f'[[jobs]]\nname = "{group}"\ngroup = "{group}"\ntopics = ["{TOPIC}"]\nstore = "file:{secret}"\n'
    )
    return path


if __name__ == "__main__":
    main()
