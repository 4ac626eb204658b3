"""A store with no room for anchors, and beside it the store that keeps them ([anchors] store).

Theory of operation. The two stores cannot be changed in one step, and a process can be killed between any two. What
keeps an offset from being believed with another's anchor is that every kept anchor says which stored offset it was made
for (``paired_rules`` holds the rules), and the order of writing. To put (offset X', anchor A') in the place of (X, A):

    1. A' for X' is laid aside, under the topic's name with ``ASIDE`` behind it (no job's topic may be called that)
    2. X' is written, by the job's store's own compare-and-set
    3. A' for X' takes the place of A for X
    4. what was laid aside is removed

Killed before 2, the store holds X. A was made for X and is believed; A' was made for another offset, and what lies
aside is believed in an exact pair only. Killed after 2, the store holds X', and what lies aside was made for exactly
that. So at every step the row reads as it was before or as it was to be, never as a mixture, and a second ``apply`` as
well as a ``rollback`` finds what it looks for. Where X' = X in two numberings, the row reads as before until step 3;
both anchors lead to the same offset then.

A read that finds steps 3 and 4 undone does them, as a database finishes its journal: no row reads differently by it.
Where a job has gone on from X' to Y before anybody read the row, what lies aside is not believed: Y may come from X in
the one numbering or from X' in the other. A is, if it was made for an older offset than Y. Its record was processed
before X' was written, so that nothing is skipped.

To delete: 1. A is laid aside, 2. and removed, 3. X is deleted, 4. what was laid aside is removed. If A went last, a
kill could leave it for a row that a job makes later. A read removes what lies aside for a row that is not there.

Anchors are read before and after the offsets, and all again if they differ: what is put together was there at one time.
A row's version is made of the versions of all that went into it. Whose write of the offset succeeds has won; the
anchors follow it, as long as the offset is still the one that was written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.ports import (
    Capabilities,
    Change,
    HistoryEntry,
    KeepsHistory,
    OffsetStore,
    Row,
    TopicPartition,
    WriteResult,
)
from reconciler.stores import common
from reconciler.stores.paired.rules import Kept, Pairing, by_cluster, by_offset
from reconciler.stores.paired.steps import (
    ASIDE,
    NOTHING,
    Goal,
    Step,
    cleared,
    dated,
    followers,
    gathered,
    unfinished,
    version_of,
    without_aside,
)

ATTEMPTS = 8
"""How often something is looked at again that others change at the same time."""
TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)

Keys = set[TopicPartition]
T = TypeVar("T")


def paired(store: OffsetStore, anchors: OffsetStore, kafka_client: Mapping[str, str] | None) -> OffsetStore:
    """``store`` with the anchors that ``anchors`` keeps for it.

    A group's commits have room for an anchor, but an unmodified consumer puts none there, and its source's group is
    lost with the source: what ``track`` copied then speaks (``paired_rules.by_cluster``).
    """
    if not store.capabilities.translated_by_mirror:
        return PairedStore(store, anchors)
    return PairedStore(store, anchors, pairing=by_cluster(_ClusterId(kafka_client or {})))


def refuse_unable(anchors: OffsetStore) -> None:
    """Raise ConfigError for a store that cannot keep other stores' anchors. Contacts nothing."""
    if not anchors.capabilities.keeps_other_anchors:
        raise ConfigError(
            f"The store {anchors.address} cannot keep the anchors of other stores.",
            hint="Choose another [anchors] store, for example sqlite:////srv/anchors.db.",
        )


class _ClusterId:
    """The id of the cluster that client settings lead to, asked for once, when first needed."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._found: str | None = None

    def __call__(self) -> str:
        if self._found is None:
            from confluent_kafka import KafkaException

            from reconciler.kafka.connection import Connection

            connection, doing = Connection(self._client, timeout_s=TIMEOUT_S), "ask for the cluster's id"
            try:
                self._found = connection.cluster_id(connection.admin(), doing)
            except KafkaException as error:
                raise connection.failure(error, doing) from error
        return self._found


def read_kept(anchors: OffsetStore, group: str, topics: Iterable[str] | None = None) -> dict[TopicPartition, Kept]:
    """What an anchor store keeps for a group's rows. Raises what the store's ``read`` does, and says that it is it."""
    wanted = None if topics is None else set(topics)
    for name in wanted or ():
        if name.endswith(ASIDE):
            raise ConfigError(
                f"A topic whose anchors are kept apart cannot be called {name!r}: the end {ASIDE!r} is this product's.",
                hint="Rename the topic, or keep the job's offsets in a store with room for anchors.",
            )
    names = None if wanted is None else sorted({name + end for name in wanted for end in ("", ASIDE)})
    with of_anchors():
        return gathered(anchors.read(group, names))


@contextmanager
def of_anchors() -> Iterator[None]:
    """Errors of the anchor store, said to be such: the address in them is not the job's store's."""
    try:
        yield
    except ReconcilerError as error:
        told = type(error)(f"The [anchors] store: {error.message}", hint=error.hint)
        told.retryable = error.retryable
        raise told from error


@dataclass(frozen=True, slots=True)
class _State:
    """Both stores' rows of one group, as they were at one time."""

    own: tuple[Row, ...]
    kept: Mapping[TopicPartition, Kept]

    def kept_for(self, key: TopicPartition) -> Kept:
        return self.kept.get(key, NOTHING)


class PairedStore:
    """The rows of ``bare`` with the anchors that ``anchors`` keeps for them; ``pairing`` says which belong together.

    Raises what the two raise; what concerns the anchors says so. History is the bare store's. Closing closes both.
    """

    def __init__(self, bare: OffsetStore, anchors: OffsetStore, *, pairing: Pairing = by_offset) -> None:
        refuse_unable(anchors)
        self._bare = bare
        self._anchors = anchors
        self._pairing = pairing

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._bare.capabilities, keeps_anchors=True)

    @property
    def address(self) -> str:
        return self._bare.address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows with their anchors, ordered by topic and partition."""
        wanted = common.wanted_topics(topics)
        state = self._state(group, wanted)
        if self._finish_found(group, state):
            state = self._state(group, wanted)
        own = {row.key for row in state.own}
        rows = [self._pairing(row.key, row, state.kept_for(row.key)) for row in state.own]
        rows += [self._pairing(key, None, kept) for key, kept in state.kept.items() if key not in own]
        return sorted((row for row in rows if row is not None), key=lambda row: row.key)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change on the offset and its anchor together.

        Raises OutcomeUnknown where the bare store does, and where the offsets were written and their anchors could
        not be: the next reading finishes those.
        """
        common.check_changes(group, changes)
        steps, lost = self._begin(group, changes, now_ms)
        whole = self._bare.capabilities.atomic_batches
        if steps and not (lost and whole):
            writing = _Writing(self._bare, self._anchors, group, reason, now_ms)
            lost |= writing.prepare(steps)
            ready = [] if lost and whole else [step for step in steps if step.key not in lost]
            writing.undo([step for step in steps if step.key in lost or not ready])
            lost |= writing.put_offsets(ready)
            steps = [step for step in ready if step.key not in lost]
            self._finish(writing, {step.key: step.goal for step in steps}, _asides(steps))
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

    def _state(self, group: str, topics: Iterable[str] | None) -> _State:
        names = None if topics is None else sorted(topics)
        kept = read_kept(self._anchors, group, names)
        for _ in range(ATTEMPTS):
            own = self._bare.read(group, names)
            before, kept = kept, read_kept(self._anchors, group, names)
            if kept == before:
                return _State(tuple(own), kept)
        raise Unreachable(
            f"The anchors of group {group!r} in {self._anchors.address} changed each of {ATTEMPTS} times they were "
            "read.",
            hint="See what writes them (more than one tracker?), then run this again.",
        )

    def _begin(self, group: str, changes: Sequence[Change], now_ms: int) -> tuple[list[Step], Keys]:
        """The steps of the changes whose rows are as expected, and the keys of the others."""
        topics = {change.key.topic for change in changes}
        try:
            state = self._state(group, topics)
        except Refused:
            # A store that the first write makes cannot be read before. Expecting no rows is safe: the writes make
            # it, fail with the true reason, or conflict.
            there = _unless_refused(lambda: self._bare.read(group, topics))
            state = _State(tuple(there or ()), _unless_refused(lambda: read_kept(self._anchors, group, topics)) or {})
        own = {row.key: row for row in state.own}
        rows = [self._pairing(c.key, own.get(c.key), state.kept_for(c.key)) for c in changes]
        lost = set(common.conflicts(changes, {row.key: row.version for row in rows if row is not None}))
        steps = [Step.of(c, own.get(c.key), state.kept_for(c.key), now_ms) for c in changes if c.key not in lost]
        return steps, lost

    def _finish_found(self, group: str, state: _State) -> bool:
        """Finish what another process could not. A reader who may not write anchors reads the rows all the same.

        Of a store that is only read, what lies aside is not a write that was cut off: who laid it there takes it up.
        """
        if not self._bare.capabilities.writable:
            return False
        asides = {key: kept.aside.stored for key, kept in state.kept.items() if kept.aside is not None}
        own = {row.key for row in state.own}
        goals = {row.key: goal for row in state.own if (goal := unfinished(row, state.kept_for(row.key))) is not None}
        left = {key: aside for key, aside in asides.items() if key not in own}
        if not goals and not left:
            return False
        at_ms = max(aside.written_at_ms or 0 for aside in asides.values())
        writing = _Writing(self._bare, self._anchors, group, "finish", at_ms)
        with suppress(ReconcilerError):
            self._finish(writing, goals, {key: aside for key, aside in asides.items() if key in goals})
            writing.put(cleared(left, state.kept))
        return True

    def _finish(
        self, writing: _Writing, goals: Mapping[TopicPartition, Goal], asides: Mapping[TopicPartition, StoredOffset]
    ) -> None:
        """Let the anchors follow the offsets, as far as those are still what was written."""
        if not goals:
            return
        topics, why = {key.topic for key in goals}, f"They were changed each of {ATTEMPTS} times by somebody else."
        try:
            for _ in range(ATTEMPTS):
                state = self._state(writing.group, topics)
                now = {row.key: row.stored.offset for row in state.own}
                still = {key: goal for key, goal in goals.items() if now.get(key) == goal.offset}
                mine = {key: aside for key, aside in asides.items() if key in still}
                if not writing.put(followers(still, state.kept)) and not writing.put(cleared(mine, state.kept)):
                    return
        except (Unreachable, OutcomeUnknown) as error:
            raise self._half_done(error.message) from error
        raise self._half_done(why)

    def _half_done(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"The offsets were written to {self._bare.address}, and not yet all of their anchors: {why}",
            hint="Run this again: it finishes what is missing.",
        )


@dataclass(frozen=True, slots=True)
class _Writing:
    """One batch on its way into both stores."""

    bare: OffsetStore
    anchors: OffsetStore
    group: str
    reason: str
    now_ms: int

    def prepare(self, steps: Sequence[Step]) -> Keys:
        """All that stands in front of the change of the offsets; the keys that somebody else is changing."""
        try:
            laid = [step.lay_aside() for step in steps]
            lost = {without_aside(key) for key in self.put([change for change in laid if change is not None])}
            gone = [(step.key, step.removed_first) for step in steps if step.key not in lost]
            return lost | self.put([Change(key, main.version, None) for key, main in gone if main is not None])
        except OutcomeUnknown as error:
            raise Unreachable(
                f"{error.message} No offset was written.", hint="Run this again: it finds what is there."
            ) from error

    def put_offsets(self, steps: Sequence[Step]) -> Keys:
        """Write the offsets; the keys whose row had changed."""
        if not steps:
            return set()
        changes = [replace(step.change, expected=version_of(step.own)) for step in steps]
        try:
            result = self.bare.write(self.group, changes, reason=self.reason, now_ms=self.now_ms)
        except OutcomeUnknown:
            raise  # with what lies aside, either outcome reads right
        except ReconcilerError:
            self.undo(steps)
            raise
        lost = {step.key for step in steps} - set(result.written)
        self.undo([step for step in steps if step.key in lost])
        return lost

    def undo(self, steps: Sequence[Step]) -> None:
        """Take back ``prepare``. What cannot be taken back is believed in an exact pair only."""
        if not steps:
            return
        try:
            kept = read_kept(self.anchors, self.group, {step.key.topic for step in steps})
            gone = [(step.key, step.removed_first) for step in steps if kept.get(step.key, NOTHING).main is None]
            self.put([dated(key, None, main.stored) for key, main in gone if main is not None])
            self.put(cleared(_asides(steps), kept))
        except ReconcilerError as error:
            _log.debug("what was laid aside stays there: %s", error)

    def put(self, changes: Sequence[Change]) -> Keys:
        """Write to the anchor store; the keys that were not written (all, where a batch is all or none)."""
        if not changes:
            return set()
        with of_anchors():
            result = self.anchors.write(self.group, changes, reason=self.reason, now_ms=self.now_ms)
        return {change.key for change in changes} - set(result.written)


def _unless_refused(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except Refused:
        return None


def _asides(steps: Iterable[Step]) -> dict[TopicPartition, StoredOffset]:
    return {step.key: step.aside for step in steps if step.aside is not None}
