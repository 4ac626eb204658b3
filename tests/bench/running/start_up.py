"""How long commands take to start: ``--help``, and the hook on a job that is right, each beside an empty Python.

    python -m tests.bench.running.start_up

The hook finds a job of four partitions whose anchors it verifies on a real broker, and becomes ``true``. The commands
run in turn, so that what else the machine does hits all of them; printed are medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import TopicCollection

from reconciler.artifacts import kafka_jars
from tests.bench.common import HEAD, in_turn, print_json, this_program
from tests.bench.plans.speed import FEW, fill, store, write_config
from tests.lab.kafka import KafkaCluster

EMPTY = "python -c pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with KafkaCluster("b", place / "b", kafka_jars(print)) as cluster:
            found = in_turn(
                {
                    "reconciler --help": this_program("--help"),
                    "reconciler hook": hook(cluster, place, options.records),
                    EMPTY: [sys.executable, "-c", "pass"],
                },
                options.runs,
            )
    print(f"{'':24}{HEAD}   more than an empty Python: wall, CPU")
    for name, cost in found.items():
        more = cost.wall_s - found[EMPTY].wall_s, cost.cpu_s - found[EMPTY].cpu_s
        print(f"{name:24}{cost.text()}   {more[0] * 1000:.0f} ms {more[1] * 1000:.0f} ms")
    print_json("running.start_up", vars(options), {name: cost._asdict() for name, cost in found.items()}, options.json)


def hook(cluster: KafkaCluster, place: Path, records: int) -> Sequence[str]:
    """The hook of a job of four partitions that is right."""
    fill(cluster, FEW, 4, records)
    described = cluster.admin().describe_topics(TopicCollection([FEW]))[FEW].result()
    config = write_config(place, cluster.bootstrap, FEW)
    store(place, FEW, FEW, 4, records // 2, (cluster.cluster_id, str(described.topic_id)))
    return this_program("hook", "--to", "destination", "-c", str(config), "--plans", str(place), "--", "true")


if __name__ == "__main__":
    main()
