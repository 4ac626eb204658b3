"""What a plan costs over a slow link: how much of the link it takes beside what it needs.

    python -m tests.bench.plans.links [--mbit 5,20,100] [--shape 40x100x10240] [--json FILE]

Starts a broker behind a proxy that delivers so many Mbit/s, all connections together, and plans one moved topic over
each link, once. Beside it: what the link delivered, and the time that all values of the topic take over it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from reconciler.artifacts import kafka_jars
from tests.bench.common import HEAD, measured, print_json
from tests.bench.plans.shapes import LARGEST, Shape, fill
from tests.bench.plans.speed import commands
from tests.lab.faults.slow_link import far_cluster

TOPIC = "events"
MBIT = 1_000_000 / 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", default="5,20,100", help="links, separated by commas")
    parser.add_argument("--shape", default="40x100x10240", help="partitions x records x bytes of a value")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shape = Shape(*map(int, options.shape.split("x")))
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place, large = Path(folder), {"message.max.bytes": str(LARGEST)}
        with far_cluster(place / "b", kafka_jars(print), large) as (cluster, link):
            fill(cluster, TOPIC, shape)
            plan = commands(cluster, place, TOPIC, shape.partitions, shape.records, size=shape.size)["reconciler plan"]
            all_bytes = shape.partitions * shape.records * shape.size
            print(f"{'':12}{HEAD} {'MB read':>8} {'all, MB':>8} {'all, s':>8}")
            for mbit in options.mbit.split(","):
                link.bytes_a_second, before = int(mbit) * MBIT, link.delivered
                cost = measured(plan)
                row = {"read_mb": (link.delivered - before) / 1e6, "all_mb": all_bytes / 1e6}
                row["all_s"] = all_bytes / link.bytes_a_second
                found[f"{mbit} Mbit/s"] = {"reconciler plan": cost._asdict() | row}
                cells = " ".join(f"{each:>8.1f}" for each in row.values())
                print(f"{mbit + ' Mbit/s':12}{cost.text()} {cells}", flush=True)
    print_json("plans.links", vars(options), found, options.json)


if __name__ == "__main__":
    main()
