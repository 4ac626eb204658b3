"""``python -m tests.soak.summary FILE …``: the JSON lines of soaks as the figures of ``docs/explanation/soak.md``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HEAD = ("names", "moves", "records", "processed", "shown to come again", "came again", "of these, not shown")


def tables(texts: Iterable[str]) -> str:
    """A row for each policy, and the faults. A run that was stopped counts as far as it came."""
    runs = [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]
    played = [[line for line in run if "move" in line] for run in runs]
    moves = [move for run in played for move in run]
    policies = sorted({move["policy"] for move in moves})
    rows = [HEAD, *(_row(policy, [run for run in played if run and run[0]["policy"] == policy]) for policy in policies)]
    kinds = Counter(
        kind for move in moves for kind in (f"cluster {move['loss']}", f"mirrors {move['mirror']}", *move["faults"])
    )
    faults = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    missed = sum(len(move.get("missed", ())) for move in moves)
    head = "Moves by how the cluster was left, by the mirrors, and by fault"
    return f"{_table(rows)}\n{head}: {faults}. Missed: {missed}.\n"


def _row(policy: str, runs: Sequence[Sequence[dict[str, Any]]]) -> tuple[str, ...]:
    jobs = [job for run in runs for move in run for job in move["jobs"].values()]
    beyond = sum(job["before"] + max(0, job["again"] - job["shown"]) for job in jobs)
    ends = [run[-1] for run in runs]
    numbers = (
        sum(map(len, runs)),
        sum(end["produced"] for end in ends),
        sum(job["processed"] for end in ends for job in end["jobs"].values()),
        sum(job["shown"] for job in jobs),
        sum(job["again"] + job["before"] for job in jobs),
        beyond,
    )
    return policy, *(f"{number:,}" for number in numbers)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *others = (f"| {' | '.join(row)} |\n" for row in rows)
    return f"{head}|{'---|' * len(rows[0])}\n{''.join(others)}"


if __name__ == "__main__":
    print(tables(Path(name).read_text() for name in sys.argv[1:]), end="")
