"""What a search costs by the length of the log: on a real broker, and on logs that are computed, of any length.

    python -m tests.bench.plans.lengths [--real 1000,10000,100000,1000000] [--computed 1000,1000000,…]
        [--partitions 4] [--searches 25] [--runs 3] [--json FILE]

Real: the anchor is the middle record of each partition, and the programs run in turn, start included (``plans.speed``);
half of the log is replay. Computed: no broker, and no records but those that a read asks for; ``--searches`` anchors at
both ends and at random, by the record's time, by an increasing id without a time, and by a time in the payload, without
an id and with a unique one. Counted are probes (requests of one partition) and the reads that follow on each other at
the end, which are the anchor's record and the replay behind it. A search that does not end right behind its anchor ends
the program. An empty list leaves either kind out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from reconciler.artifacts import kafka_jars
from reconciler.core.anchors import Identity, StoredOffset
from reconciler.core.probes import Answer, Chunk, Cleaning, Edges, LogRange, Probe, TimeLookup
from reconciler.core.question import Question
from reconciler.kafka.memory import MemoryRecord
from tests.bench.common import HEAD, in_turn, print_json
from tests.bench.plans.speed import BEGIN_MS, commands, fill, show
from tests.core.probe_counts import cost_of, places_of
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_UNIQUE_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
)
from tests.lab.kafka import KafkaCluster

STEP_MS, LATE_MS = 7, 3
"""Between two records; and between the time in a payload and the record's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", default="1000,10000,100000,1000000", help="records a partition, by commas")
    parser.add_argument("--computed", default="1000,1000000,1000000000,1000000000000", help="records, by commas")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--searches", type=int, default=25)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, Any] = {"computed": [], "real": {}}
    for length in map(int, filter(None, options.computed.split(","))):
        for name, identity in WAYS.items():
            rows["computed"].append(computed(length, name, identity, options.searches))
    if options.real:
        rows["real"] = real([int(each) for each in options.real.split(",")], options)
    print_json("plans.lengths", vars(options), rows, options.json)


# ---------------------------------------------------------------- real logs


def real(lengths: Iterable[int], options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder, KafkaCluster("b", Path(folder) / "b", kafka_jars(print)) as cluster:
        print(f"{'records':>10} {'':24}{HEAD}   against it: wall, CPU")
        for length in lengths:
            topic = f"events-{length}"
            fill(cluster, topic, options.partitions, length, batch=500)
            medians = in_turn(commands(cluster, Path(folder), topic, options.partitions, length), options.runs)
            show(f"{length:,}", medians)
            found[str(length)] = {name: cost._asdict() for name, cost in medians.items()}
    return found


# ---------------------------------------------------------------- computed ones

WAYS = {
    "record's time": BY_CONTENT,
    "increasing id": BY_INCREASING_ID,
    "time in the payload": BY_EVENT_TIME,
    "and a unique id": BY_EVENT_TIME_AND_UNIQUE_ID,
}


class Computed:
    """A partition whose records are made when they are read."""

    def __init__(self, length: int) -> None:
        self._length = length

    def answer(self, probe: Probe) -> Answer:
        if isinstance(probe, Edges):
            return LogRange(0, self._length)
        if isinstance(probe, TimeLookup):
            place = max(0, -((BEGIN_MS - probe.timestamp_ms) // STEP_MS))
            return place if place < self._length else None
        if isinstance(probe, Cleaning):
            return False
        end = min(self._length, probe.offset + probe.max_records)
        return Chunk(tuple(map(record, range(probe.offset, end))), end)


def record(number: int) -> MemoryRecord:
    stamp = BEGIN_MS + number * STEP_MS
    value = json.dumps({"ts": stamp - LATE_MS, "number": number}).encode()
    return MemoryRecord(number, stamp, b"k%d" % number, value, (("id", b"%d" % number),))


def computed(length: int, name: str, identity: Identity, searches: int) -> dict[str, Any]:
    partition, to_find, last = Computed(length), [], []
    began = time.process_time()
    for place in places_of(length, searches):
        anchor = identity.anchor_of(record(place), cluster_id="source", topic_id="source/events")
        if identity is BY_INCREASING_ID:
            anchor = replace(anchor, timestamp_ms=None)
        stored = StoredOffset(place + 700, replace(anchor, offset=place + 699))
        cost = cost_of(partition, Question(stored, HERE, HERE_TOPIC, identity, compacted=False))
        if cost.finding.resume_offset != place + 1:
            raise SystemExit(f"{place + 1} of {length} by {name}: {cost.finding}")
        to_find.append(cost.before)
        last.append(cost.final_scan)
    each_ms = (time.process_time() - began) / searches * 1000
    print(f"{length:>17,} {name:20}{median(to_find):>3.0f} probes, at most {max(to_find)}; ", end="")
    print(f"then {median(last):.0f} reads, at most {max(last)}; {each_ms:.1f} ms of CPU")
    found = {"probes": median(to_find), "probes_most": max(to_find), "reads": median(last), "reads_most": max(last)}
    return {"records": length, "way": name, **found, "cpu_ms": each_ms}


if __name__ == "__main__":
    main()
