"""What a read of many partitions costs the process that reads, thread by thread, without a broker.

    python -m tests.bench.plans.reads [--partitions 10000] [--topics 1,20] [--windows 250,500,1000,2000]
        [--set key=value] [--bulk] [--json FILE]

The broker is the one that librdkafka simulates for its own tests, in a process of its own. Each read takes 117 records
of 120 from each partition, as many partitions at a time as the window says, and packs them for the other process.
``--set`` overrides a setting of the client; ``--bulk`` reads without it (``kafka.bulk``). ``main`` is librdkafka's main
thread, ``broker`` the one of the connection.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections import Counter
from ctypes import CDLL, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

from reconciler.kafka import connection, reader, sent
from reconciler.ports import ReadRequest, TopicPartition
from tests.bench.common import print_json
from tests.bench.plans.speed import produce

RECORDS, FROM, WANTED = 120, 2, 117
MOST_BYTES = 64 * 1024 * 1024
TICK_S = 0.01
PRODUCER = 0
COLUMNS = ("topics", "window", "cpu_s", "python_s", "main_s", "broker_s", "close_s", "records")
HEAD = "topics  window  CPU s  python   main  broker  close   records"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", default="1,20", help="topics that the partitions are divided into, by commas")
    parser.add_argument("--windows", default="250,500,1000,2000", help="partitions at a time, by commas")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bulk", action="store_true", help="by plain requests")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", metavar="SERVERS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = [int(each) for each in options.topics.split(",")]
    windows = [int(each) for each in options.windows.split(",")]
    if options.serve:
        serve(counts, options.partitions)
        return
    if options.one is not None:
        connection.POINT_READS.update(each.split("=", 1) for each in options.set)
        read(options.one, counts[0], options.partitions, windows[0], bulk=options.bulk)
        return
    module = [sys.executable, "-m", "tests.bench.plans.reads", "--partitions", str(options.partitions)]
    serving = [*module, "--serve", "--topics", options.topics]
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
        print(HEAD)
        rows = []
        for count in counts:
            for window in windows:
                own = ["--one", servers, "--topics", str(count), "--windows", str(window)]
                command = [*module, *own, *(f"--set={each}" for each in options.set), *["--bulk"] * options.bulk]
                line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()
                print(line, flush=True)
                figures = (float(each.replace(",", "")) for each in line.split())
                rows.append(dict(zip(COLUMNS, figures, strict=True)))
        broker.stdin.close()
    print_json("plans.reads", vars(options), rows, options.json)


def partitions_of(count: int, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(f"of-{count}-{n:02}", at) for n in range(count) for at in range(partitions // count)]


def serve(counts: list[int], partitions: int) -> None:
    """Simulate a broker with the topics, print its address, and wait for the end of the input."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = CDLL(str(next(beside.glob("librdkafka-*"))))
    library.rd_kafka_conf_new.restype = c_void_p
    library.rd_kafka_new.restype = c_void_p
    library.rd_kafka_new.argtypes = [c_int, c_void_p, c_char_p, c_size_t]
    library.rd_kafka_mock_cluster_new.restype = c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = [c_void_p, c_int]
    library.rd_kafka_mock_topic_create.argtypes = [c_void_p, c_char_p, c_int, c_int]
    library.rd_kafka_mock_cluster_bootstraps.restype = c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [c_void_p]
    client = library.rd_kafka_new(PRODUCER, library.rd_kafka_conf_new(), create_string_buffer(512), 512)
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    servers = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.num.messages": 40})
    for places in (partitions_of(count, partitions) for count in counts):
        for topic, number in Counter(place.topic for place in places).items():
            library.rd_kafka_mock_topic_create(cluster, topic.encode(), number, 1)
        for place in places:
            for number in range(RECORDS):
                produce(producer, place.topic, place.partition, number)
        producer.flush()
    print(servers, flush=True)
    sys.stdin.read()


def read(servers: str, count: int, partitions: int, window: int, *, bulk: bool) -> None:
    gc.set_threshold(1_000_000, 50, 50)  # as the reading process does
    before, began_s = threads(), time.process_time()
    client = {"bootstrap.servers": servers}
    log: Any
    if bulk:
        from reconciler.kafka.bulk.batches import taken
        from reconciler.kafka.bulk.reading import BulkReader

        log = BulkReader(client, timeout_s=10, most_bytes=MOST_BYTES)
        ask, pack = log.read, partial(sent.pack, taken=taken)
    else:
        log = reader.KafkaLogReader(client, most_bytes=MOST_BYTES)
        ask, pack = log.read_each, sent.pack
    places, records = partitions_of(count, partitions), 0
    for at in range(0, len(places), window):
        requests = [ReadRequest(place, FROM, WANTED) for place in places[at : at + window]]
        for answers in ask(requests):
            records += sum(len(chunk.records) for _, chunk in answers)
            for frame in sent.frames(answers):
                pack(frame)
    used_s, spent = time.process_time() - began_s, threads()
    spent.subtract(before)
    closing_s = time.process_time()
    log.close()
    closing_s = time.process_time() - closing_s
    each = (spent["python"] + spent["python3"], spent["rdk:main"], sum(spent[at] for at in spent if "broker" in at))
    shares = "{:>7.2f} {:>6.2f} {:>7.2f}".format(*(ticks * TICK_S for ticks in each))
    print(f"{count:>6} {window:>7} {used_s:>6.2f} {shares} {closing_s:>6.2f} {records:>9,}", flush=True)


def threads() -> Counter[str]:
    """The ticks of the processor that this process's threads have used, by their names."""
    found: Counter[str] = Counter()
    for path in Path("/proc/self/task").glob("*/stat"):  # none ends while it is read: close() has not been called
        name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        found[name] += int(fields[11]) + int(fields[12])
    return found


if __name__ == "__main__":
    main()
