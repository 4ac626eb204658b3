"""Offsets that the operator's own function reads, of any system: ``python:package.module:function``.

``function(group, topics)`` gives the group's rows of these topics (a frozenset; None: all), each as (topic, partition,
next offset), or with the last processed record's time (epoch ms, or None) and id (bytes, or None) behind these. It only
reads: a correction is recorded, and the job starts there by its hook. ``[policy] python`` lists the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reconciler.config.identity import load_function
from reconciler.core.anchors import UNKNOWN_PARTITION, Anchor, StoredOffset, shown
from reconciler.core.errors import ReconcilerError, Refused, Unreachable
from reconciler.places import common
from reconciler.ports import OffsetStore, Row, TopicPartition


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """The store of ``python:package.module:function``. Raises ConfigError if there is no such function."""
    return PythonStore(address, load_function("offsets", address))


class PythonStore(common.JobsOwnStore):
    """The rows that ``function`` gives. ``read`` raises Unreachable for its OSError, Refused for its other errors."""

    def __init__(self, address: str, function: Callable[..., Any]) -> None:
        self.address = address
        self._function = function

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        common.check_name("group's name", group)
        wanted = common.wanted_topics(topics)
        try:
            given = list(self._function(group, wanted))
        except ReconcilerError:
            raise
        except Exception as error:
            kind: type[Unreachable] = Unreachable if isinstance(error, OSError) else Refused
            raise kind(
                f"The function of {self.address} failed: {type(error).__name__}: {error}.",
                hint="Correct the function, or what it reads.",
            ) from error
        rows = [self._row(group, each) for each in given]
        times = Counter(row.key for row in rows)
        twice = [self._malformed(group, key, "it is given twice") for key, count in times.items() if count > 1]
        return common.rows_of_topics([*twice, *(row for row in rows if times[row.key] == 1)], wanted)

    def check_writable(self, group: str) -> None:
        raise common.written_by_job(f"What {self.address} reads")

    def _row(self, group: str, given: Any) -> Row:
        if not isinstance(given, tuple) or len(given) not in (3, 5) or not isinstance(given[0], str):
            raise Refused(  # it may be of any topic
                f"The function of {self.address} gave {shown(given)}, which is not (topic, partition, next offset).",
                hint="Correct the function.",
            )
        topic, partition, offset, *of_record = given
        key = TopicPartition(topic, UNKNOWN_PARTITION)
        try:
            key = TopicPartition(topic, common.partition_of(partition))
            time_ms, id = of_record or (None, None)
            anchor = None if time_ms is None and id is None else Anchor(timestamp_ms=time_ms, id=id)
            return Row(key, StoredOffset(offset, anchor), str(offset))
        except (TypeError, ValueError) as error:
            return self._malformed(group, key, f"{shown(given)} is not a row ({error})")

    def _malformed(self, group: str, key: TopicPartition, problem: str) -> Row:
        return common.malformed_row(key, problem, group=group, place=self.address, hint="Correct the function.")
