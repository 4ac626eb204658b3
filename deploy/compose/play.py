"""The script that docker-compose.yml's containers run: a PySpark job loses the cluster that it reads, and fails over.

python play.py traffic   writes the records on a, before the mirror starts
python play.py job       has the job run on a, has broker a killed, fails over to b, and counts every record
python play.py on-a      the job, which `reconciler hook` starts on a; it is lost in the middle of a batch
python play.py on-b      the same on b, where it goes on in the checkpoint's copy, and reads all there is
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from reconciler.core.errors import ReconcilerError
from reconciler.demo import proof
from reconciler.demo.job import IDS, KILLED, Query, Work, run
from reconciler.demo.lab import in_use
from reconciler.demo.lab.in_use import ClusterAt, Event, delete_all, make_events
from reconciler.state.start import START_VARIABLE

TOPIC, MIRRORED, PARTITIONS = "events", "a.events", 4
DELETED, PRODUCED, PER_BATCH, DIES_AT_BATCH = 3_000, 24_000, 3_000, 5
BEGIN_MS = 1_700_000_000_000
"""The first record's event time: fixed, so that each process can generate the same records."""
CONFIG = Path(__file__).with_name("reconciler.toml")
RECONCILER: list[str | Path] = [sys.executable, "-m", "reconciler"]
HOOK: list[str | Path] = [*RECONCILER, "hook", "-c", CONFIG, "--job", "clicks", "--", sys.executable, __file__]
FOLDER, DISASTER = Path("/data"), Path("/stage/disaster")
METRICS = "http://watcher:9464/metrics"
PATIENCE_S = 300
ROUNDS = 5
"""Rounds of the watcher for which each state lasts, so that Grafana shows it."""
A, B = ClusterAt("a", "a:9092"), ClusterAt("b", "b:9092")


def main(part: str) -> None:
    {"traffic": produce, "job": play, "on-a": on_source, "on-b": on_destination}[part]()


def say(line: str) -> None:
    print(line, flush=True)


def clicks() -> list[Event]:
    return list(make_events("click", PRODUCED, PARTITIONS, BEGIN_MS, seed=2))


def produce() -> None:
    """Write records in transactions, after other records that are deleted, so that the two clusters' offsets differ."""
    if A.partitions(TOPIC) or B.partitions(MIRRORED):
        sys.exit("This was played already. First: docker compose down")
    A.create_topic(TOPIC, PARTITIONS)
    in_use.produce(A, TOPIC, make_events("old", DELETED, PARTITIONS, BEGIN_MS - 1_000_000, seed=1), "old")
    delete_all(A, TOPIC)
    in_use.produce(A, TOPIC, iter(clicks()), "new")
    say(f"1  {PRODUCED:,} records are on a; {DELETED:,} older ones were deleted before the mirror saw them")


def play() -> None:
    say("2  the hook starts the job, which reads a")
    _expect(KILLED, [*HOOK, "on-a"], FOLDER / "job-a.log")
    say(f"   and is lost in the middle of batch {DIES_AT_BATCH}, after {len(proof.ids_in(FOLDER / 'ids-a')):,} records")

    say("3  the mirror has everything; the watcher says what a failover would find")
    wanted = Counter(event.partition for event in clicks())  # at the destination: without the transactions' markers
    _wait(lambda: wanted <= Counter(B.end_offsets(MIRRORED)), "the mirror")
    _wait_for_checks(ROUNDS)

    say("4  disaster: broker a is killed")
    DISASTER.touch()
    _wait_for_checks(ROUNDS)
    _expect(3, [*RECONCILER, "plan", "-c", CONFIG])

    say("5  the job moves: its hook copies the checkpoint to b's offsets and starts it, and it reads b")
    _expect(0, [*RECONCILER, "move", "-c", CONFIG, "--to", "b", "--yes"])
    _expect(0, [*HOOK, "on-b"])
    _expect(0, [*RECONCILER, "plan", "-c", CONFIG, "--to", "b"])
    _wait_for_checks(ROUNDS)

    found = proof.prove((event.id for event in clicks()), [FOLDER / "ids-a", FOLDER / "ids-b"])
    lost, doubled = len(found.lost), len(found.doubled)
    say(f"6  produced {found.produced:,} · processed {found.seen:,} · lost {lost:,} · doubled {doubled:,}")
    if not found.is_clean:
        sys.exit("The failover lost or doubled records.")


def on_source() -> None:
    run(_work("ids-a", {"maxOffsetsPerTrigger": str(PER_BATCH)}, DIES_AT_BATCH))


def on_destination() -> None:
    run(_work("ids-b", {}))


def _work(folder: str, options: dict[str, str], die_at_batch: int = -1) -> Work:
    return Work([Query(IDS, str(FOLDER / folder), options, start=os.environ[START_VARIABLE])], die_at_batch)


def _expect(code: int, command: list[str | Path], log: Path | None = None) -> None:
    words = [str(word) for word in command]
    if command[: len(RECONCILER)] == RECONCILER:
        say(f"\n   $ reconciler {' '.join(words[len(RECONCILER) :])}")
    with log.open("w") if log else nullcontext() as output:
        ended = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if ended != code:
        last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log else ""
        sys.exit(f"{' '.join(words)} ended with {ended} instead of {code}. {last_lines}")


def _wait_for_checks(count: int) -> None:
    """Wait until the watcher has checked the job ``count`` more times, so that Prometheus sees this state, too."""
    before = _checks()
    _wait(lambda: _checks() >= before + count, "the watcher's next checks")


def _checks() -> float:
    with urllib.request.urlopen(METRICS, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = (sample for family in families for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == "reconciler_checks_total")


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"Waited for {what} for {PATIENCE_S} s.")
        time.sleep(0.5)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ReconcilerError as error:
        sys.exit(str(error))
