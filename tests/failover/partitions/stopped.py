"""Jobs that stopped somewhere in a source's partitions, and what a check of them must hold, record by record."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as a log holds it; its value is its number among all of its source topic's."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that has processed the first records of each source partition; ``done`` are their numbers."""

    rows: Mapping[int, StoredOffset]
    done: frozenset[int]


def stopped(sent: Sequence[Sent], counts: Mapping[int, int]) -> Stopped:
    """``counts``: how many records it has processed of each partition; where it is none there is no row."""
    rows, done = {}, set()
    for partition, count in counts.items():
        processed = [record for record in sent if record.partition == partition][:count]
        done |= {record.number for record in processed}
        if processed:
            last = processed[-1]
            digest = fingerprint(last.key, last.value)
            anchor = Anchor(last.offset, last.timestamp_ms, None, digest, "the-source", "the-source-topic")
            rows[partition] = StoredOffset(last.offset + 1, anchor, last.timestamp_ms)
    return Stopped(rows, frozenset(done))


def somewhere(sent: Sequence[Sent], seed: int) -> Stopped:
    """Stopped at a random place of each partition, behind its first record."""
    rng = random.Random(seed)
    sizes = Counter(record.partition for record in sent)
    return stopped(sent, {partition: rng.randint(1, sizes[partition]) for partition in sorted(sizes)})


def broken_promises(rows: Mapping[int, Mapping[str, Any]], held: Sequence[Sent], job: Stopped) -> Iterator[str]:
    """``rows``: a plan's, as JSON values, by partition; ``held``: all records of the destination."""
    for partition, row in rows.items():
        resume, replay = row["resume_offset"], row["replay"]
        what = f"{row['finding']} {partition}, resume {resume}:"
        if resume is None:
            continue
        here = [record for record in held if record.partition == partition]
        lost = [record.offset for record in here if record.offset < resume and record.number not in job.done]
        again = sum(record.offset >= resume and record.number in job.done for record in here)
        if lost:
            yield f"{what} skips {lost}"
        if again > replay["at_most"]:
            yield f"{what} replays {again}, promised at most {replay['at_most']}"
        if replay["exact"] not in (None, again):
            yield f"{what} replays {again}, promised exactly {replay['exact']}"
