"""Signs that the mirror did not keep records in their partitions, so that partition numbers mean nothing.

MirrorMaker 2 keeps partitions. Another mirror, or a person who recreated the topic with another count, may not. Two
signs: the destination has fewer partitions than there are stored offsets; or an anchor is not in its own partition
while a partition without any stored offset holds records older than all anchors, which the job would have read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.core.anchors import StoredOffset
from reconciler.core.question import Question
from reconciler.core.verdicts import Finding, Verdict
from reconciler.ports import LogReader, ReadRequest, TopicPartition

IN_ITS_PLACE = frozenset({Verdict.MATCH, Verdict.MOVED})


def times_of(stored: Sequence[StoredOffset | None]) -> list[int] | None:
    """The anchors' times of all partitions; None if one of them has none, or there is none.

    A sentinel says that nothing of its partition was read: no time bounds what may be unprocessed then.
    """
    read = [item for item in stored if item is not None]
    times = [item.anchor.timestamp_ms for item in read if item.anchor is not None]
    known = [time for time in times if time is not None]
    return known if known and len(known) == len(read) else None


def all_in_place(findings: Mapping[TopicPartition, Finding], questions: Mapping[TopicPartition, Question]) -> bool:
    """True if every stored anchor was found in the partition of its own number."""
    read_from = [tp for tp, question in questions.items() if question.stored is not None]
    return all(findings[tp].verdict in IN_ITS_PLACE for tp in read_from)


def old_in_silence(
    questions: Mapping[TopicPartition, Question], reader: LogReader
) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions without a stored offset that begin with a record older than every anchor, with their [start, end).

    A job that read the topic would have read them, unless it began at the latest, or they were numbered otherwise.
    Reads one record a silent partition.
    """
    silent = [tp for tp, question in questions.items() if question.stored is None]
    times = times_of([question.stored for question in questions.values()])
    if not silent or times is None:
        return {}
    starts, ends = reader.log_starts(silent), reader.log_ends(silent)
    chunks = reader.read([ReadRequest(tp, starts[tp], 1) for tp in silent])
    disorder = max(question.limits.max_disorder_ms for question in questions.values())
    found = {}
    for tp, chunk in zip(silent, chunks, strict=True):
        for record in chunk.records[:1]:
            time = questions[tp].identity.timestamp_of(record)
            if time is not None and time < min(times) - disorder:
                found[tp] = (starts[tp], ends[tp])
    return found
