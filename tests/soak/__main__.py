"""``python -m tests.soak --moves 20 --seed 1``: one line of JSON a move, and a last one with all sinks' counts."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from reconciler.artifacts import kafka_jars
from tests.demo.lab.kafka import Policy
from tests.demo.lab.servers.postgresql import PostgresServer
from tests.soak.choices import mirror, moves
from tests.soak.estate import Estate, SoakFailed
from tests.soak.jobs import Jobs
from tests.soak.story import Soak
from tests.spark.archived import share_classes


def soak(folder: Path, seed: int, count: int, policy: Policy, *, with_faults: bool) -> None:
    """Play ``count`` moves below ``folder``. Raises SoakFailed at the first broken promise."""
    share_classes()
    with ExitStack() as stack:
        sink, state = (stack.enter_context(PostgresServer(folder / name)) for name in ("sink", "state"))
        jobs = Jobs(folder, sink.url())
        stack.callback(jobs.close)
        story = Soak(Estate(folder, kafka_jars(lambda _: None), state, stack, policy, mirror(seed)), jobs)
        stack.callback(story.close)
        story.begin()
        for line in story.play(moves(seed, count, with_faults=with_faults)):
            print(json.dumps(line), flush=True)
        end = {"moves": count, "seed": seed, "policy": policy, "produced": len(story.estate.produced)}
        print(json.dumps({**end, "jobs": story.finish()}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=("default", "identity"), default="default")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one is deleted")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as after Ctrl-C, the servers and the jobs are ended
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        try:
            soak(folder, given.seed, given.moves, given.policy, with_faults=not given.no_faults)
        except SoakFailed as failed:
            print(f"FAILED: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
