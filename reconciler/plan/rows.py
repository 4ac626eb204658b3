"""The rows of a plan: the finding for one partition, the state of one sink, and their fields in the plan's file.

Spark's sinks drop a batch that they believe to have, without an error. So a query may start only where its next batch
is new to each of its sinks, or is the same batch that the sink has.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from reconciler.core.anchors import Anchor, Record, StoredOffset, TopicPartition, fingerprint
from reconciler.core.json_fields import INT32_MAX, INT64_MIN, FieldError, Fields
from reconciler.core.question import Behind
from reconciler.core.verdicts import Finding, MatchedBy, Position, Skips, Verdict

_ROW = frozenset(
    (
        *("source_topic", "topic", "topic_id", "partition", "position", "stored_offset", "anchor", "finding"),
        *("resume_offset", "replay", "evidence", "detail", "set_by_hand", "skips"),
    )
)
_GROWN = frozenset(("no_rows", "by_row_time", "absent", "spread"))
_ANCHOR = frozenset(("offset", "timestamp_ms", "fingerprint", "id_hash"))
_REPLAY = frozenset(("at_most", "exact"))
_SKIPS = frozenset(("at_least", "at_most", "accepted"))
_EVIDENCE = frozenset(("matched_by", "record_offset", "probes", "rounds"))
_EVIDENCE_GROWN = frozenset(("record_fingerprint",))
_FINGERPRINT = re.compile(r".{32}", re.DOTALL)  # as much as an anchor demands of one
_ID_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlanAnchor:
    """An anchor as a plan shows it: the id only as the first 16 hex digits of its SHA-256."""

    offset: int | None
    timestamp_ms: int | None
    fingerprint: str | None
    id_hash: str | None

    @classmethod
    def of(cls, anchor: Anchor | None) -> PlanAnchor | None:
        if anchor is None:
            return None
        id_hash = hashlib.sha256(anchor.id).hexdigest()[:16] if anchor.id is not None else None
        return cls(anchor.offset, anchor.timestamp_ms, anchor.fingerprint, id_hash)

    @property
    def is_bare(self) -> bool:
        """As ``Anchor.is_bare``: it names no record, so one of another cluster does not place a later offset."""
        return self.timestamp_ms is None and self.fingerprint is None and self.id_hash is None

    def to_json(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "fingerprint": self.fingerprint,
            "id_hash": self.id_hash,
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> PlanAnchor:
        fields = Fields(value, where, _ANCHOR)
        return cls(
            fields.number_or_null("offset", INT64_MIN),
            fields.number_or_null("timestamp_ms", INT64_MIN),
            fields.matching_or_null("fingerprint", _FINGERPRINT, "text of 32 characters"),
            fields.matching_or_null("id_hash", _ID_HASH, "16 hex digits"),
        )


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """When a partition may start without a decision; ``max_replay`` in records."""

    behind: Behind = Behind.START
    max_replay: int = 1_000_000

    def to_json(self) -> dict[str, Any]:
        return {"behind": self.behind.value, "max_replay": self.max_replay}

    @classmethod
    def from_json(cls, value: object, where: str) -> StartPolicy:
        fields = Fields(value, where, frozenset(("behind", "max_replay")))
        return cls(fields.member("behind", Behind), fields.number("max_replay"))


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One row of a plan. ``resume_offset`` None: nothing was proven; the partition needs a decision.

    ``no_rows``: the store holds no row of any partition of this topic, which has records.
    ``by_row_time``: only the time of the store's row shows where the job is; the row may have an anchor that names no
    record. ``absent``, ``spread``: as in ``Finding``. The four are written only where true.
    """

    source_topic: str
    topic: str
    topic_id: str | None
    partition: int
    stored_offset: int | None
    anchor: PlanAnchor | None
    finding: Verdict
    resume_offset: int | None
    replay_at_most: int | None
    replay_exact: int | None
    matched_by: MatchedBy | None
    record_offset: int | None
    probes: int
    rounds: int
    detail: str
    position: Position = Position.NEXT
    set_by_hand: bool = False
    no_rows: bool = False
    by_row_time: bool = False
    absent: bool = False
    spread: bool = False
    skips: Skips | None = None
    """The records that an offset set by hand skips; ``skips_accepted``: the user allowed it."""
    skips_accepted: bool = False
    record_fingerprint: str | None = None
    """The fingerprint of the record at ``record_offset``, where no anchor says it. None is not written."""
    policy: StartPolicy | None = None
    """Its job's own policy; None if the plan's holds. It is written with the job."""

    @classmethod
    def of(
        cls,
        finding: Finding,
        *,
        source_topic: str,
        key: TopicPartition,
        topic_id: str | None,
        stored: StoredOffset | None,
        probes: int,
        rounds: int,
        set_by_hand: bool = False,
        skips_accepted: bool = False,
    ) -> PartitionPlan:
        """The row of the destination's partition ``key``, from what was found for it and what that cost."""
        return cls(
            source_topic=source_topic,
            topic=key.topic,
            topic_id=topic_id,
            partition=key.partition,
            stored_offset=stored.offset if stored else None,
            anchor=PlanAnchor.of(stored.anchor) if stored else None,
            finding=finding.verdict,
            resume_offset=finding.resume_offset,
            replay_at_most=finding.replay_at_most,
            replay_exact=finding.replay_exact,
            matched_by=finding.matched_by,
            record_offset=finding.record_offset,
            probes=probes,
            rounds=rounds,
            detail=finding.detail,
            set_by_hand=set_by_hand,
            skips=finding.skips,
            skips_accepted=skips_accepted,
            record_fingerprint=finding.record_fingerprint,
            by_row_time=finding.by_row_time,
            absent=finding.absent,
            spread=finding.spread,
        )

    @property
    def key(self) -> TopicPartition:
        """The partition on the destination."""
        return TopicPartition(self.topic, self.partition)

    @property
    def source_key(self) -> TopicPartition:
        """The partition on the source."""
        return TopicPartition(self.source_topic, self.partition)

    @property
    def place(self) -> str:
        """The partition's name, with the position if the plan has both ends of a repeated batch."""
        name = str(self.key)
        return name if self.position == Position.NEXT else f"{name} {self.position}"

    @property
    def is_placed(self) -> bool:
        """True if the operator chose the offset or the time, and did not accept what was found."""
        return self.set_by_hand and self.detail.startswith("set by hand")

    @property
    def is_right(self) -> bool:
        """True if the stored offset is right already."""
        return self.finding is Verdict.EXACT and self.resume_offset == self.stored_offset

    def sees(self, stored: StoredOffset | None) -> bool:
        """True if a row that a store holds now is the one this row was planned from."""
        if stored is None:
            return self.stored_offset is None
        return self.stored_offset == stored.offset and self.anchor == PlanAnchor.of(stored.anchor)

    def names(self, record: Record) -> bool | None:
        """Whether the plan's fingerprint is of the record at ``record_offset``; None: the plan keeps none."""
        if self.record_fingerprint is None:
            return None
        return self.record_fingerprint == fingerprint(record.key, record.value)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        skips = None if self.skips is None else {**asdict(self.skips), "accepted": self.skips_accepted}
        return {
            "source_topic": self.source_topic,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partition": self.partition,
            "position": self.position,
            "stored_offset": self.stored_offset,
            "anchor": None if self.anchor is None else self.anchor.to_json(),
            "finding": self.finding.value,
            "resume_offset": self.resume_offset,
            "replay": {"at_most": self.replay_at_most, "exact": self.replay_exact},
            "evidence": {
                "matched_by": self.matched_by,
                "record_offset": self.record_offset,
                "probes": self.probes,
                "rounds": self.rounds,
                **({"record_fingerprint": self.record_fingerprint} if self.record_fingerprint else {}),
            },
            "detail": self.detail,
            "set_by_hand": self.set_by_hand,
            **({"no_rows": True} if self.no_rows else {}),
            **({"by_row_time": True} if self.by_row_time else {}),
            **({"absent": True} if self.absent else {}),
            **({"spread": True} if self.spread else {}),
            "skips": skips,
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> PartitionPlan:
        """Raises ``FieldError``, also for a finding that no search can make."""
        fields = Fields(value, where, _ROW, _GROWN)
        replay = Fields(fields.value("replay"), fields.place("replay"), _REPLAY)
        evidence = Fields(fields.value("evidence"), fields.place("evidence"), _EVIDENCE, _EVIDENCE_GROWN)
        anchor, skips = fields.value("anchor"), fields.value("skips")
        skipped, accepted = (None, False) if skips is None else _skips(skips, fields.place("skips"))
        row = cls(
            source_topic=fields.text("source_topic"),
            topic=fields.text("topic"),
            topic_id=fields.text_or_null("topic_id"),
            partition=fields.number("partition", 0, INT32_MAX),
            position=fields.member("position", Position),
            stored_offset=fields.number_or_null("stored_offset", INT64_MIN),
            anchor=None if anchor is None else PlanAnchor.from_json(anchor, fields.place("anchor")),
            finding=fields.member("finding", Verdict),
            resume_offset=fields.number_or_null("resume_offset"),
            replay_at_most=replay.number_or_null("at_most"),
            replay_exact=replay.number_or_null("exact"),
            matched_by=evidence.member_or_null("matched_by", MatchedBy),
            record_offset=evidence.number_or_null("record_offset"),
            probes=evidence.number("probes"),
            rounds=evidence.number("rounds"),
            detail=fields.any_text("detail"),
            set_by_hand=fields.flag("set_by_hand"),
            no_rows=fields.flag_or_absent("no_rows"),
            by_row_time=fields.flag_or_absent("by_row_time"),
            absent=fields.flag_or_absent("absent"),
            spread=fields.flag_or_absent("spread"),
            skips=skipped,
            skips_accepted=accepted,
            record_fingerprint=evidence.matching_or_null("record_fingerprint", _FINGERPRINT, "text of 32 characters"),
        )
        try:
            row._check()
        except ValueError as error:
            raise FieldError(f"{where}:", str(error)) from error
        return row

    def _check(self) -> None:
        """Raise ``ValueError`` for a combination of values that no check of this product finds."""
        Finding(
            verdict=self.finding,
            resume_offset=self.resume_offset,
            replay_at_most=self.replay_at_most,
            replay_exact=self.replay_exact,
            matched_by=self.matched_by,
            record_offset=self.record_offset,
        )
        if self.anchor is not None and self.stored_offset is None:
            raise ValueError("an anchor belongs to a stored offset")
        if self.absent and (self.finding is not Verdict.UNRESOLVED or self.resume_offset is not None):
            raise ValueError("a partition that is not there has no resume offset")
        if self.no_rows and (self.finding is not Verdict.NEW or self.stored_offset is not None):
            raise ValueError("only a new partition has no rows")
        names_record = self.anchor is not None and not self.anchor.is_bare
        if self.by_row_time and (names_record or self.stored_offset is None):
            raise ValueError("only a stored offset without anchor is placed by the time of its row")
        if self.skips is not None and not self.set_by_hand:
            raise ValueError("only an offset set by hand skips records")
        if self.skips is not None and self.skips.at_most > (self.resume_offset or 0):
            raise ValueError("an offset skips no more records than lie before it")


def _skips(value: object, where: str) -> tuple[Skips, bool]:
    fields = Fields(value, where, _SKIPS)
    try:
        return Skips(fields.number("at_least"), fields.number("at_most")), fields.flag("accepted")
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError(f"{where}:", str(error)) from error


class SinkOutcome(StrEnum):
    """The outcome of the query's next batch in a sink. ``SINK_STOPS`` are the outcomes that forbid the start."""

    FITS = "fits"
    """It is new to the sink."""
    OPEN = "open"
    """It was begun before, and the sink lacks it: it is written now."""
    TAKEN = "taken"
    """It was begun before, and the sink has it: it is repeated up to the same end, and the sink drops it."""
    UNKNOWN = "unknown"
    """The sink's record, or the query's, does not go back far enough."""
    UNSEEN = "unseen"
    """The sink lacks batches that the query has committed, or the query's id is lost."""
    DOUBLES = "doubles"
    """The sink has the batch that was begun, and not all of its records can be left out of the next ones."""
    DROPS = "drops"
    """The sink has batches that the query has not begun: it would drop the query's own batches of these numbers."""


SINK_STOPS = frozenset({SinkOutcome.UNSEEN, SinkOutcome.DOUBLES, SinkOutcome.DROPS})
_SINK_ROW = frozenset(("sink", "app_id", "last_taken", "next_batch", "outcome", "detail"))


def why_sink_stops(row: SinkRow) -> str:
    """The sink and its finding, without the last full stop."""
    return f"its sink {row.sink}: {row.detail}"


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One sink of a job.

    ``sink``: its address without secrets. ``app_id``: under which name it knows the query's batches, None if it knows
    numbers only. ``last_taken``: the last batch that it has; None for none. ``next_batch``: the one that a start runs;
    None if that is not known. ``detail``: a sentence without its full stop; for an outcome that stops, with the way
    out as a second one.
    """

    sink: str
    app_id: str | None
    last_taken: int | None
    next_batch: int | None
    outcome: SinkOutcome
    detail: str

    @property
    def stops(self) -> bool:
        return self.outcome in SINK_STOPS

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, value: object, where: str) -> SinkRow:
        fields = Fields(value, where, _SINK_ROW)
        return cls(
            fields.text("sink"),
            fields.text_or_null("app_id"),
            fields.number_or_null("last_taken"),
            fields.number_or_null("next_batch"),
            fields.member("outcome", SinkOutcome),
            fields.text("detail"),
        )
