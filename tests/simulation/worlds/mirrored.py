"""Trying and describing worlds of a mirrored partition."""

from __future__ import annotations

from dataclasses import replace

from reconciler.core.anchors import Names
from reconciler.core.question import Limits
from tests.simulation.oracle import broken_promises
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import PLACE, Case
from tests.simulation.worlds.making import make_case


def kinds_of(case: Case) -> tuple[str, ...]:
    """Labels of the log, its times' order first."""
    words = [
        (case.event_time, "payload time"),
        (case.event_time and any(made.value is None for made in case.source), "payload time, deletions"),
        (case.event_time and is_written_again(case), "payload time, written again"),
        (case.append_time, "LogAppendTime"),
        (case.cleaned > 0, "compacted"),
        (case.deleted > 0, "expired"),
        (bool(case.markers), "markers"),
        (any(run.aborted for run in case.runs), "aborted"),
        (len(case.runs) > 1, "sent again"),
        (bool(case.among), "local writers among"),
        (bool(case.local), "local writers after"),
        (case.lag > 0, "anchor lags"),
    ]
    return (case.order, *(word for holds, word in words if holds))


def is_written_again(case: Case) -> bool:
    """True if two records of the source differ in nothing but their Kafka timestamps."""
    return len({replace(made, stamp_ms=0) for made in case.source}) < len(set(case.source))


def is_ordinary(case: Case) -> bool:
    """True for a mirrored log without faults, and an anchor that names a record and has its time."""
    anchor = case.anchor
    full = anchor.names is Names.LAST and anchor.names_a_record and anchor.timestamp_ms is not None
    plain = kinds_of(case) in (("monotone",), ("ties",)) and not case.compacted
    return full and plain and not is_cramped(case)


def is_cramped(case: Case) -> bool:
    return case.small_reads or case.limits != Limits(case.limits.max_disorder_ms)


def try_case(case: Case) -> Trial:
    world, meter = carry_out(case), Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    length = world.log.partitions[PLACE].end
    verdict = finding.verdict.value
    return Trial(case.seed, kinds_of(case), verdict, meter, length, broken, is_ordinary(case), cramped=is_cramped(case))


def try_seed(seed: int) -> list[Trial]:
    return [try_case(make_case(seed))]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    return describe_case(make_case(seed))


def describe_case(case: Case) -> str:
    """Describe the source, the destination with source indexes, the question and the answer."""
    world = carry_out(case)
    part = world.log.partitions[PLACE]
    source = " ".join(f"{i}:{m.event_ms}/{m.stamp_ms}{'' if m.id else '!'}" for i, m in enumerate(case.source))
    runs = " | ".join(" ".join(map(str, (*run.sent, *(f"({i})" for i in run.aborted)))) for run in case.runs)
    lines = [
        f"seed {case.seed}: {', '.join(kinds_of(case))}; ids {case.ids}; disorder "
        f"{'stated' if case.declared else 'not stated'}{'; small reads' if case.small_reads else ''}",
        f"source (index:event/stamp, ! without id): {source}",
        f"processed up to index {case.processed}, anchor index {case.anchor_index} (lag {case.lag})",
        f"runs (aborted): {runs}; local: {len(case.local)}, among: {[place for place, _ in case.among]}",
        f"destination (offset=index): {' '.join(f'{at}={index}' for at, index in world.held.items())}",
        f"log {part.start}..{part.end}, markers {part.markers}, cleaned {case.cleaned} (told: {case.compacted})",
        f"anchor: {case.anchor}",
        f"limits: {case.limits}",
        f"answer: {answer(case, world)}",
    ]
    return "\n  ".join(lines)
