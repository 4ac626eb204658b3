"""A store with no room for anchors, combined with the [anchors] store that keeps them.

Theory of operation. The two stores cannot be changed in one step, and a process can be killed between any two steps.
Two things keep an offset from being read with another offset's anchor: every kept anchor records the stored offset that
it was made for (``rules``), and the order of writing. To replace (offset X, anchor A) by (X', A'):

    1. A' for X' is laid aside, under the topic's name with the suffix ``ASIDE`` (no job's topic may be called that)
    2. X' is written, with the job's store's own compare-and-set
    3. A' for X' replaces A for X
    4. the row laid aside is removed

After a kill before step 2, the store holds X: A was made for X and is used; A' was made for another offset, and a row
laid aside is used only in an exact pair. After a kill behind step 2, the store holds X', and the row laid aside was
made for exactly X'. So at every step the row reads as before or as intended, never as a mixture, and a second ``apply``
and a ``rollback`` both find the rows that they expect. If X' = X in two numberings, the row reads as before until step
3; both anchors lead to the same offset then. An anchor that lagged behind X reads without its numbering (below).

A read that finds steps 3 and 4 missing does them, as a database finishes its journal; no row reads differently for it.
If a job has continued from X' to Y before any read, Y may come from X in one numbering or from X' in the other. With
two numberings, no anchor may say whose number Y is: after a rollback, a check at the destination would find A at its
own offset and take the source's number Y for its own. So the row of the two that was written first is used, without its
numbering, if it was made for an offset older than Y. Its record was processed before the other row was written, so
resuming after it skips nothing:

    a correction (also a failback's)    A was first; X' was found from its record
    a rollback                          A' was first; A may have been set by hand beyond unprocessed records
    a rollback to a row without A'      neither is proven: unresolved

The lag is counted from the smaller of X and X', so it bounds the replay in both numberings. With one numbering, A is
used as it is. Where such a row was corrected and a rollback puts it back, the correction stays laid aside: so the row
reads as it did, and is still in doubt.

To delete: 1. A is laid aside, 2. and removed, 3. X is deleted, 4. the row laid aside is removed. If A were removed
last, a kill could leave it for a row that a job creates later. A read removes a row laid aside for a row that does not
exist.

Anchors are read before and after the offsets, and both again if the anchors differ, so the combined state existed at
one time. A row's version is made of the versions of all rows in it. The writer whose offset write succeeds wins; the
anchors follow it, as long as the offset is still the one that it wrote.

Of two writers of one row, the second lays its row aside over the first's, and either may fail or be killed. So each
lays aside a row of its own, even over an equal one; and a writer that fails puts back what it found there, where the
row is still its own. Removing it would take it from the other, which may have written its offset. Their rows differ in
the time of writing, if in nothing else: two that write the same at the same millisecond are not told apart. If the
first one fails before the second does, its row stays, as after a kill, until the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NotCreated, NotNow, OutcomeUnknown, ReconcilerError, Refused
from reconciler.ports import (
    Change,
    HistoryEntry,
    KeepsHistory,
    NamesGroups,
    OffsetStore,
    Row,
    TopicPartition,
    WriteResult,
    groups_of,
    topic_counts,
)
from reconciler.stores import common
from reconciler.stores.paired.kept import of_anchors, read_kept, refuse_unable
from reconciler.stores.paired.rules import AnchorRows, Pairing, by_cluster, by_offset, token
from reconciler.stores.paired.steps import NOTHING, Goal, PairedStep, cleared, followers, unfinished
from reconciler.stores.paired.writing import Keys, Writing, asides_of

ATTEMPTS = 8
"""How often a state that others change at the same time is read again."""

notes = logging.getLogger("reconciler.notes.anchors")

T = TypeVar("T")


def paired(
    store: OffsetStore,
    anchors: OffsetStore,
    kafka_client: Mapping[str, str] | None,
    *,
    timeout_s: float = common.KAFKA_TIMEOUT_S,
) -> OffsetStore:
    """``store`` with the anchors that ``anchors`` keeps for it.

    A group's commits have room for an anchor, but an unmodified consumer writes none, and the source's group is lost
    with the source: then the rows that ``track`` copied count (``rules.by_cluster``).
    """
    if not store.capabilities.translated_by_mirror:
        return PairedStore(store, anchors)
    # Cached: the id is requested once, when a row first needs it.
    here = cache(partial(_cluster_id, kafka_client or {}, timeout_s))
    topic_id = cache(partial(_topic_id, kafka_client or {}, timeout_s))
    return PairedStore(store, anchors, pairing=by_cluster(here, topic_id))


def _cluster_id(client: Mapping[str, str], timeout_s: float) -> str:
    """The id of the cluster that these client settings lead to. Raises Unreachable and Refused."""
    from confluent_kafka import KafkaException

    from reconciler.kafka.connection import Connection

    connection, doing = Connection(client, timeout_s=timeout_s), "ask for the cluster's id"
    try:
        return connection.cluster_id(connection.admin(), doing)
    except KafkaException as error:
        raise connection.failure(error, doing) from error


def _topic_id(client: Mapping[str, str], timeout_s: float, topic: str) -> str | None:
    """As ``by_cluster`` asks for it. Raises Unreachable and Refused."""
    from reconciler.kafka.reader import KafkaLogReader

    with closing(KafkaLogReader(client, timeout_s=timeout_s)) as reader:
        found = reader.describe((topic,))
    return found.topic_id(topic) if topic in found.topics else ""


@dataclass(frozen=True, slots=True)
class PairedState:
    """Both stores' rows of one group at one time."""

    own: tuple[Row, ...]
    kept: Mapping[TopicPartition, AnchorRows]

    def kept_for(self, key: TopicPartition) -> AnchorRows:
        return self.kept.get(key, NOTHING)


class PairedStore:
    """The rows of ``bare`` with the anchors that ``anchors`` keeps for them; ``pairing`` decides which belong together.

    Raises what the two stores raise; errors of the anchor store name it. The history is the bare store's. Closing
    closes both.
    """

    def __init__(self, bare: OffsetStore, anchors: OffsetStore, *, pairing: Pairing = by_offset) -> None:
        refuse_unable(anchors)
        self.capabilities = replace(bare.capabilities, keeps_anchors=True, reads_anchors=True)
        self.address = bare.address
        self._bare = bare
        self._anchors = anchors
        self._pairing = pairing
        self._no_anchors_yet = ""

    def groups(self) -> list[str] | None:
        """The groups that have rows or kept anchors, as far as the two stores can name them."""
        own = groups_of(self._bare)
        kept: list[str] | None = []  # of an anchor store that does not exist yet
        with of_anchors(), suppress(NotCreated):
            kept = groups_of(self._anchors)
        return None if own is None and kept is None else sorted({*(own or ()), *(kept or ())})

    def group_names(self) -> list[str]:
        return self._bare.group_names() if isinstance(self._bare, NamesGroups) else []

    def topic_counts(self, group: str) -> Mapping[str, int]:
        return topic_counts(self._bare, group)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows with their anchors, ordered by topic and partition."""
        wanted = common.wanted_topics(topics)
        state = self._state(group, wanted)
        if self._finish_found(group, state):
            state = self._state(group, wanted)
        own = {row.key for row in state.own}
        rows = [self._joined(row.key, row, state.kept_for(row.key)) for row in state.own]
        rows += [self._joined(key, None, kept) for key, kept in state.kept.items() if key not in own]
        found = sorted((row for row in rows if row is not None), key=lambda row: row.key)
        if not self._no_anchors_yet:
            return found
        if not found:
            notes.warning("%s", self._no_anchors_yet)
        why = self._no_anchors_yet
        return [row if row.stored.anchor else replace(row, note=common.noted(row.note, why)) for row in found]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change on the offset and its anchor together.

        Raises OutcomeUnknown if the bare store does, and if the offsets were written but their anchors could not be:
        the next read finishes those.
        """
        common.check_changes(group, changes)
        steps, lost = self._begin(group, changes, now_ms)
        whole = self.capabilities.atomic_batches
        if steps and not (lost and whole):
            writing = Writing(self._bare, self._anchors, group, reason, now_ms)
            lost |= writing.prepare(steps)
            ready = [] if lost and whole else [step for step in steps if step.key not in lost]
            result = writing.put_offsets(ready)
            lost |= set(result.conflicts)
            steps = [step for step in ready if step.key in result.written]
            self._finish(writing, {step.key: step.goal for step in steps}, asides_of(steps))
        elif lost and whole:
            steps = []
        written, keys = {step.key for step in steps}, [change.key for change in changes]
        return WriteResult(tuple(key for key in keys if key in written), tuple(key for key in keys if key in lost))

    def history(self, group: str) -> list[HistoryEntry]:
        """The bare store's history; empty where it keeps none."""
        return self._bare.history(group) if isinstance(self._bare, KeepsHistory) else []

    def create(self) -> None:
        self._bare.create()
        with of_anchors():
            self._anchors.create()

    def check_writable(self, group: str) -> None:
        self._bare.check_writable(group)
        with of_anchors():
            self._anchors.check_writable(group)

    def close(self) -> None:
        try:
            self._bare.close()
        finally:
            self._anchors.close()

    # ------------------------------------------------------------ both stores together

    def _joined(self, key: TopicPartition, own: Row | None, kept: AnchorRows) -> Row | None:
        """One row of both; malformed if a row in it is."""
        bad = next((row for row in (own, *kept.rows) if row is not None and row.malformed is not None), None)
        return self._pairing(key, own, kept) if bad is None else Row(key, bad.stored, token(own, kept))

    def _state(self, group: str, topics: Iterable[str] | None) -> PairedState:
        names = None if topics is None else sorted(topics)
        kept = self._kept(group, names)
        for _ in range(ATTEMPTS):
            own = self._bare.read(group, names)
            before, kept = kept, self._kept(group, names)
            if kept == before:
                return PairedState(tuple(own), kept)
        raise NotNow(
            f"The anchors of group {group!r} in {self._anchors.address} changed each of {ATTEMPTS} times they were "
            "read.",
            hint="Find out what writes them (more than one tracker?), then run this again.",
        )

    def _kept(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, AnchorRows]:
        """The kept anchors; none, with a note, where their store does not exist yet."""
        self._no_anchors_yet = ""
        try:
            return read_kept(self._anchors, group, topics)
        except NotCreated:
            self._no_anchors_yet = (
                f"no anchors yet: the [anchors] store {self._anchors.address} does not exist. Run reconciler track "
                "while the source is alive, or correct the address"
            )
            return {}

    def _begin(self, group: str, changes: Sequence[Change], now_ms: int) -> tuple[list[PairedStep], Keys]:
        """The steps of the changes whose rows are as expected, and the keys of the others."""
        topics = {change.key.topic for change in changes}
        try:
            state = self._state(group, topics)
        except Refused:
            # A store that its first write creates cannot be read before. Expecting no rows is safe: the writes create
            # the store, fail with the true reason, or conflict.
            there = _unless_refused(lambda: self._bare.read(group, topics))
            state = PairedState(
                tuple(there or ()), _unless_refused(lambda: read_kept(self._anchors, group, topics)) or {}
            )
        own = {row.key: row for row in state.own}
        rows = [self._joined(c.key, own.get(c.key), state.kept_for(c.key)) for c in changes]
        lost = set(common.conflicts(changes, {row.key: row.version for row in rows if row is not None}))
        steps = [
            PairedStep.of(c, own.get(c.key), state.kept_for(c.key), now_ms, one_numbering=self._pairing is by_offset)
            for c in changes
            if c.key not in lost
        ]
        return steps, lost

    def _finish_found(self, group: str, state: PairedState) -> bool:
        """Finish writes that another process could not. A reader without permission to write still reads the rows.

        In a read-only store, a row laid aside is not an interrupted write: the writer that laid it aside finishes it.
        """
        if not self.capabilities.writable:
            return False
        sound = {key: kept for key, kept in state.kept.items() if not any(row.malformed for row in kept.rows)}
        asides = {key: kept.aside.stored for key, kept in sound.items() if kept.aside is not None}
        own = {row.key for row in state.own}
        whole = [row for row in state.own if row.malformed is None and (row.key in sound or row.key not in state.kept)]
        one = self._pairing is by_offset
        found = {row.key: unfinished(row, state.kept_for(row.key), one_numbering=one) for row in whole}
        goals = {key: goal for key, goal in found.items() if goal is not None}
        left = {key: aside for key, aside in asides.items() if key not in own}
        if not goals and not left:
            return False
        at_ms = max(aside.written_at_ms or 0 for aside in asides.values())
        writing = Writing(self._bare, self._anchors, group, "finish", at_ms)
        with suppress(ReconcilerError):
            self._finish(writing, goals, {key: aside for key, aside in asides.items() if key in goals})
            writing.put(cleared(left, state.kept))
        return True

    def _finish(
        self, writing: Writing, goals: Mapping[TopicPartition, Goal], asides: Mapping[TopicPartition, StoredOffset]
    ) -> None:
        """Let the anchors follow the offsets that are still as written."""
        if not goals:
            return
        topics, why = {key.topic for key in goals}, f"Another writer changed them each of {ATTEMPTS} times."
        try:
            for _ in range(ATTEMPTS):
                state = self._state(writing.group, topics)
                now = {row.key: row.stored.offset for row in state.own if row.malformed is None}
                still = {key: goal for key, goal in goals.items() if now.get(key) == goal.offset}
                mine = {key: aside for key, aside in asides.items() if key in still}
                if not writing.put(followers(still, state.kept)) and not writing.put(cleared(mine, state.kept, still)):
                    return
        except ReconcilerError as error:
            raise self._half_done(error.message) from error
        raise self._half_done(why)

    def _half_done(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"The offsets were written to {self.address}, but not all of their anchors: {why}",
            hint="Run this again: it finishes the rest.",
        )


def _unless_refused(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except Refused:
        return None
