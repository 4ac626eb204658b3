"""Why a job must not start by a plan, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.text import MOST_NAMES, some
from reconciler.core.verdicts import Position, Verdict
from reconciler.plan.document import PartitionPlan, StartPolicy, why_stopped
from reconciler.plan.sinks import SinkRow


def place_name(row: PartitionPlan) -> str:
    """A partition's name, with the position if the plan has both ends of a repeated batch."""
    name = str(row.key)
    return name if row.position == Position.NEXT else f"{name} {row.position}"


def _stop_text(name: str, detail: str, why: str) -> str:
    """The sentence on partitions that must not start: the finding, then the next move."""
    return f"{name} must not start: {detail}. {why[:1].upper()}{why[1:]}."


def stop_sentences(rows: Sequence[PartitionPlan], policy: StartPolicy, most: int | None = None) -> list[str]:
    """One sentence for all partitions that stop for the same reason: a wrong group stops every one of its topics'.

    Of more than ``most`` reasons, the first of each kind and then others, and a line that counts what is left out.
    """
    names: dict[tuple[str, str], list[str]] = {}
    kinds: dict[tuple[Verdict, bool, bool], tuple[str, str]] = {}
    for row in rows:
        if why := why_stopped(row, policy):
            reason = (row.detail, why)
            names.setdefault(reason, []).append(place_name(row))
            kinds.setdefault((row.finding, row.no_rows, row.skips is None), reason)
    reasons = list(names)
    if most is not None and len(reasons) > most:
        reasons = list(dict.fromkeys([*kinds.values(), *reasons]))[:most]
    sentences = [_stop_text(some(names[reason], MOST_NAMES), *reason) for reason in reasons]
    if len(reasons) < len(names):
        left_out = sum(len(places) for places in names.values()) - sum(len(names[reason]) for reason in reasons)
        sentences.append(f"{left_out:,} more must not start, for other reasons; `reconciler show PLAN` lists all.")
    return sentences


def sink_text(row: SinkRow) -> str:
    stop = "must not start: " if row.stops else ""
    return f"sink {row.sink} · {row.outcome.value}: {stop}{row.detail}."


def stopping_sink_sentences(rows: Sequence[SinkRow]) -> list[str]:
    return [sink_text(row) for row in rows if row.stops]
