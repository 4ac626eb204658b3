"""Worlds in the job's own numbering: logs that were cleaned, expired, cut and written again, or recreated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.core.anchors import Identity, IdOrder, StoredOffset, record_timestamp
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import Inquiry, run
from tests.memory_log import MemoryLog
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.cases import PLACE, Made, header_id, true_disorder

HERE, HERE_TOPIC = "destination", "destination/events"


@dataclass(frozen=True, slots=True)
class Own:
    """The original log, the job's progress in it, and the changes to the log since.

    ``cut`` is the offset from which on ``rewritten`` took the place of the first records; None: it was never cut.
    ``recreated``: the topic was deleted and created again with another topic id.
    """

    seed: int
    first: tuple[Made, ...]
    processed: int
    cut: int | None
    rewritten: tuple[Made, ...]
    cleaned: int
    deleted: int
    topic_id: str | None
    ids: str
    limits: Limits
    recreated: bool = False

    def now(self) -> tuple[Made, ...]:
        return self.first if self.cut is None else (*self.first[: self.cut], *self.rewritten)

    def is_done(self, made: Made) -> bool:
        return made in self.first[: self.processed + 1]


def make_own(seed: int) -> Own:
    rng = random.Random(seed)
    count, time = rng.randint(1, 14), 1000
    wander, made = rng.choice((0, 0, 6)), []
    for place in range(count + 8):
        time += rng.choice((0, 0, 4))
        stamp = time + rng.randint(-wander, wander)
        made.append(Made(stamp, stamp, b"%d" % place, b"k%d" % rng.randrange(6), b"v%d" % place))
    first, fresh = made[:count], made[count:]
    processed = rng.randrange(count)
    recreated = rng.random() < 0.2
    cut = 0 if recreated else rng.randint(0, count) if rng.random() < 0.4 else None
    rewritten: list[Made] = []
    if cut is not None:  # some of what was cut is sent again by its producers, among new records
        again = [one for one in first[cut:] if rng.random() < 0.6]
        new = fresh[: rng.randint(0, 8)]
        while again or new:
            rewritten.append((again if again and (not new or rng.random() < 0.5) else new).pop(0))
        if recreated and rng.random() < 0.3:
            rng.shuffle(rewritten)
    length = count if cut is None else cut + len(rewritten)
    return Own(
        seed,
        tuple(first),
        processed,
        cut,
        tuple(rewritten),
        rng.randint(0, length) if rng.random() < 0.25 else 0,
        rng.randint(0, length) if rng.random() < 0.25 else 0,
        "destination/the old events" if recreated else HERE_TOPIC if rng.random() < 0.8 else None,
        rng.choice(("increasing", "opaque", "none")) if cut is None else rng.choice(("opaque", "none")),
        Limits(true_disorder(made[: count + 8], False)),
        recreated,
    )


def carry_out(own: Own) -> tuple[MemoryLog, dict[int, Made]]:
    log = MemoryLog(HERE, {PLACE.topic: 1})
    part = log.partitions[PLACE]
    for made in own.now():
        part.append(made.stamp_ms, made.key, made.value, (("id", made.id),))
    last = {record.key: record.offset for record in part.records[: own.cleaned]}
    part.compact(record.offset for record in part.records[: own.cleaned] if last[record.key] > record.offset)
    part.delete_before(own.deleted)
    return log, {record.offset: own.now()[record.offset] for record in part.records}


def answer(own: Own, log: MemoryLog, meter: Meter | None = None) -> Finding:
    """Run the search for the stored offset of a job that has read this very topic."""
    identity = Identity(
        record_timestamp,
        None if own.ids == "none" else header_id,
        IdOrder.INCREASING if own.ids == "increasing" else IdOrder.OPAQUE,
    )
    written = MemoryLog(HERE, {PLACE.topic: 1})
    for made in own.first[: own.processed + 1]:
        record = written.partitions[PLACE].append(made.stamp_ms, made.key, made.value, (("id", made.id),))
    anchor = identity.anchor_of(record, cluster_id=HERE, topic_id=own.topic_id)
    stored = StoredOffset(own.processed + 1, anchor)
    question = Question(stored, HERE, HERE_TOPIC, identity, own.limits, compacted=own.cleaned > 0)
    inquiry = Inquiry(PLACE, lambda: (meter or Meter()).watch(reconcile(question)))
    return run(log, {0: inquiry}, clock=lambda: 0.0).found[0].finding


def looks_untouched(own: Own, held: dict[int, Made]) -> bool:
    """True if the anchor's offset holds the anchor or no record, so that a cut is undetectable."""
    if own.recreated:
        return False
    return held.get(own.processed) in (None, own.first[own.processed]) and own.processed < len(own.now())


def broken_promises(own: Own, held: dict[int, Made], finding: Finding) -> Iterator[str]:
    resume = finding.resume_offset
    assert resume is not None
    if own.cut is not None and looks_untouched(own, held):
        return
    if lost := [at for at, made in held.items() if at < resume and not own.is_done(made)]:
        yield f"skips offsets {lost}"
    again = sum(at >= resume and own.is_done(made) for at, made in held.items())
    if again > (finding.replay_at_most or 0):
        yield f"replays {again}, promised at most {finding.replay_at_most}"
    if finding.replay_exact not in (None, again):
        yield f"replays {again}, promised exactly {finding.replay_exact}"
    if own.cut is None and own.topic_id and resume != max(own.processed + 1, own.deleted):
        yield "the numbering is the log's own, and was not used"


def kinds_of(own: Own) -> tuple[str, ...]:
    became = "recreated" if own.recreated else "cut and written again" if own.cut is not None else "own numbering"
    words = [(own.cleaned > 0, "compacted"), (own.deleted > 0, "expired")]
    return (became, *(word for holds, word in words if holds))


def try_seed(seed: int) -> list[Trial]:
    own, meter = make_own(seed), Meter()
    log, held = carry_out(own)
    finding = answer(own, log, meter)
    broken = tuple(broken_promises(own, held, finding))
    return [Trial(seed, kinds_of(own), finding.verdict.value, meter, log.partitions[PLACE].end, broken)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    own = make_own(seed)
    log, held = carry_out(own)
    now = " ".join(f"{at}={(made.value or b'').decode()}@{made.stamp_ms}" for at, made in held.items())
    lines = [f"seed {seed}: {', '.join(kinds_of(own))}; processed up to v{own.processed}, cut {own.cut}, {own.limits}"]
    return "\n  ".join([*lines, f"now {now}", str(answer(own, log))])
