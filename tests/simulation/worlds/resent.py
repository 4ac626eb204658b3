"""Worlds of a mirror that restarts again and again, and of records whose ids no two of them share.

The log and its ills are those of ``making``; ids and runs are others, and every question has an anchor with an id.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from reconciler.core.anchors import Names
from reconciler.core.question import Limits
from tests.simulation.oracle import best_replay, broken_promises, knows_place, replayed, skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import PLACE, Case, Made, Run
from tests.simulation.worlds.making import anchor_for, make_case
from tests.simulation.worlds.mirrored import describe_case, kinds_of


def make_resent(seed: int) -> Case:
    rng = random.Random(f"resent {seed}")
    case = make_case(seed)
    ids = "increasing" if case.ids == "increasing" else "unique"
    nameless = rng.choice((0.0, 0.0, 0.0, 0.1))
    source = tuple(
        replace(made, id=_name(rng, ids, place, nameless, is_anchor=place == case.anchor_index))
        for place, made in enumerate(case.source)
    )
    is_complete = rng.random() < 0.5
    runs = tuple(complete_runs(rng, len(source)) if is_complete else broken_runs(rng, len(source)))
    reads_aborted = not is_complete and rng.random() < 0.3
    if reads_aborted:
        runs = tuple(_cut_off(rng, run) for run in runs)
    local = tuple(replace(made, id=None if made.id is None else b"local %d" % n) for n, made in enumerate(case.local))
    names = case.anchor.names if case.anchor.names is not Names.MAX_TIME else Names.LAST
    full = anchor_for(source, case.anchor_index, names, case.event_time, case.base)
    anchor = replace(full, **dict.fromkeys(rng.choice(((), (), ("timestamp_ms",), ("fingerprint",)))))
    case = replace(
        case,
        source=source,
        ids=ids,
        runs=runs,
        local=_in_order(local, ids),
        among=(),
        anchor=anchor,
        markers=(),
        reads_aborted=reads_aborted,
    )
    if rng.random() < 0.5:  # a whole log, read in one go
        case = replace(
            case,
            deleted=0,
            cleaned=0,
            append_time=False,
            lag=0,
            processed=case.anchor_index - (names is Names.NEXT),
            compacted=False,
            small_reads=False,
            limits=Limits(case.limits.max_disorder_ms),
        )
    return case


def _name(rng: random.Random, ids: str, place: int, nameless: float, *, is_anchor: bool) -> bytes | None:
    if not is_anchor and rng.random() < nameless:
        return None
    return b"%d" % (7 * place) if ids == "increasing" else b"%08x-%d" % (rng.getrandbits(32), place)


def _in_order(local: tuple[Made, ...], ids: str) -> tuple[Made, ...]:
    if ids != "increasing":
        return local
    return tuple(replace(made, id=None if made.id is None else b"%d" % (10**6 + n)) for n, made in enumerate(local))


def complete_runs(rng: random.Random, count: int) -> Iterator[Run]:
    """Each restart sends again what was not committed, and then all that is there."""
    end = 0
    for _ in range(rng.randint(1, 6)):
        first = rng.choice((end, max(0, end - rng.randint(0, 4)), rng.randint(0, end), 0))
        end = rng.randint(end, count)
        yield Run(tuple(range(first, end)))
    yield Run(tuple(range(rng.randint(0, end), count)))


def broken_runs(rng: random.Random, count: int) -> Iterator[Run]:
    """Each restart may be cut off anywhere, and find records gone."""
    gone: set[int] = set()
    end = rng.randint(1, count)
    yield Run(tuple(range(end)))
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.3:
            gone |= {index for index in range(count) if rng.random() < rng.choice((0.05, 0.3))}
        first = rng.choice((max(0, end - rng.randint(0, 4)), rng.randint(0, end)))
        end = rng.choice((min(count, first + rng.randint(0, 5)), rng.randint(first, count)))
        yield Run(tuple(index for index in range(first, end) if index not in gone))


def _cut_off(rng: random.Random, run: Run) -> Run:
    """A run with a transactional mirror: its last records, or all, may be in a transaction that was aborted."""
    kept = rng.choice((len(run.sent), rng.randint(0, len(run.sent)), 0))
    return Run(run.sent[:kept], run.sent[kept:])


# ---------------------------------------------------------------- judging


def is_complete(case: Case) -> bool:
    """True if every restart sent all of it again, and all of that can be seen: the best place can then be proven."""
    reached = 0
    for run in case.runs:
        if run.sent != tuple(range(run.sent[0], run.sent[-1] + 1) if run.sent else ()):
            return False
        if run.sent and run.sent[-1] + 1 < reached:
            return False
        reached = max(reached, run.sent[-1] + 1) if run.sent else reached
    plain = not (case.deleted or case.cleaned or case.append_time or case.compacted or case.lag)
    named = all(made.id is not None for made in (*case.source, *case.local))
    copies = Counter(index for run in case.runs for index in run.sent)
    ample = not case.small_reads and case.limits == Limits(case.limits.max_disorder_ms)
    return plain and named and ample and copies[case.anchor_index] > 0 and max(copies.values()) > 1


def try_seed(seed: int) -> list[Trial]:
    case = make_resent(seed)
    world, meter = carry_out(case), Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    if case.reads_aborted and knows_place(case, world) and (lost := skipped(case, world.committed, finding)):
        broken += (f"skips {len(lost)} unprocessed records of a job that reads committed ones: offsets {lost}",)
    kinds = [f"resent, ids {case.ids}"]
    if case.reads_aborted:
        kinds.append("resent, aborted ones read")
    if "stepped over" in finding.detail:
        kinds.append(f"resent, ids {case.ids}, stepped over")
    if is_complete(case):
        is_best = finding.resume_offset is not None and replayed(case, world, finding) == best_replay(case, world)
        kinds += ["resent, complete", *(("resent, complete, nothing repeats that need not",) if is_best else ())]
    kinds += [f"resent, {kind}" for kind in kinds_of(case)[1:]]
    length = world.log.partitions[PLACE].end
    return [Trial(seed, tuple(kinds), finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    return describe_case(make_resent(seed))
