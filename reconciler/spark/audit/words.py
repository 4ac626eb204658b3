"""What each figure compares, and what could not be known, as sentences. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.spark.audit.looking import Log
from reconciler.spark.audit.naming import By, Naming
from reconciler.spark.audit.spans import Planned
from reconciler.spark.audit.tally import Rules

SHOWN = 5


def compared(naming: Naming, rules: Rules, *, has_order: bool) -> list[str]:
    """One sentence a figure."""
    told = f"Records are told apart by {naming.by.value}, and counted as often as they occur."
    log = "the source's log" if rules.source_lives else "the destination's log"
    if not rules.has_output:
        if not rules.source_lives:
            return [told, "doubled: records from the resume offset on that the destination's log holds once more."]
        return [
            told,
            "lost: records of the source from the stored offset on that the destination does not hold from the resume "
            "offset on: either not at all, or in front of it.",
            "doubled: records that the destination holds from the resume offset on, more often than the source holds "
            "them unprocessed.",
            "reordered: records from the resume offset on that stand behind a later one of the source.",
        ]
    if rules.offsets_only:
        said = [
            "lost: offsets of the destination from the resume offset on that are not in the output.",
            "doubled: offsets that are in the output more than once.",
        ]
    else:
        said = [
            f"lost: records of {log} that the output does not hold as often.",
            f"doubled: rows of the output beyond what {log} holds of the record.",
        ]
    if naming.unique and not rules.source_lives and not rules.offsets_only:
        said.append("Each id should be there once, however often the mirror has sent it.")
    if has_order:
        said.append(f"reordered: rows of the output behind one whose record comes later in {log}.")
    return [told, *said]


def unknown(
    planned: Planned,
    naming: Naming,
    rules: Rules,
    totals: Mapping[str, int],
    logs: tuple[Log, Log | None],
    why_dead: str | None,
    *,
    has_order: bool,
) -> list[str]:
    """What was not compared, and what figures may hide."""
    destination, source = logs
    return [
        *_of_source(rules, why_dead),
        *_of_logs(planned, destination, source),
        *_of_names(naming, rules, totals),
        *_of_order(rules, totals, has_order=has_order),
    ]


def _of_source(rules: Rules, why_dead: str | None) -> Iterable[str]:
    if rules.source_lives:
        return
    yield why_dead or "The source was not asked: records that the mirror never delivered are not counted."
    if not rules.has_output:
        yield "Whether anything was lost: that takes the source's log, or the job's output."
    elif rules.offsets_only:
        yield "Which records of the source were lost, and which were processed at both clusters: offsets do not tell."


def _of_logs(planned: Planned, destination: Log, source: Log | None) -> Iterable[str]:
    if planned.undecided:
        places = [f"{topic}:{partition}" for topic, partition in planned.undecided]
        yield f"The plan gives no offset for {_some(places)}: not looked at."
    gone = [f"{s.at.topic}:{s.at.partition}" for s in destination.stretches if s.log_start > s.cut]
    if gone:
        yield f"The destination has deleted records behind the resume offset of {_some(gone)}: not looked at."
    short = [f"{s.at.topic}:{s.at.partition}" for s in destination.stretches if s.end < s.cut]
    if short:
        yield f"The log of {_some(short)} ends in front of the resume offset: was it made anew?"
    unread = [f"{s.at.topic}:{s.at.partition}" for s in destination.stretches if s.until <= s.cut < s.end]
    if unread:
        yield f"The job has read nothing of {_some(unread)} yet, by what the audit was told."
    if source is not None:
        if source.silent:
            names = [f"{at.topic}:{at.partition}" for at in source.silent]
            yield f"The plan does not speak of the source's {_some(names)}: not looked at."
        cut = [f"{s.at.topic}:{s.at.partition}" for s in source.stretches if s.log_start > 0]
        if cut:
            yield f"The source has deleted the first records of {_some(cut)}: what it had there is not known."
    spread = sorted({span.topic for span in planned.spans if span.remapped})
    if spread:
        yield f"Partitions of {_some(spread)} do not correspond: compared as a whole, and not by order."


def _of_names(naming: Naming, rules: Rules, totals: Mapping[str, int]) -> Iterable[str]:
    if totals["nameless"]:
        what = "without an id" if naming.by is By.ID else "that say not which record they are"
        yield f"{totals['nameless']:,} records and rows {what} were not compared."
    if totals["possibly_lost"]:
        yield (
            f"{totals['possibly_lost']:,} records may be lost: they are in the log more often than in the output. The "
            "mirror may have sent them twice, or another writer may have written them."
        )
    if totals["possibly_doubled"]:
        yield (
            f"{totals['possibly_doubled']:,} more may be doubled: the destination's log holds them more than once, "
            "which equal records of the source would look like, and records that the mirror has sent twice."
        )
    if totals["output_unknown"]:
        yield f"{totals['output_unknown']:,} rows of the output are of no record that was read."
    if rules.source_lives and totals["only_at_destination"]:
        only = f"{totals['only_at_destination']:,} records are at the destination only"
        yield f"{only}: written there, or deleted at the source."


def _of_order(rules: Rules, totals: Mapping[str, int], *, has_order: bool) -> Iterable[str]:
    if rules.has_output and not has_order:
        yield "The output's order: no column says it."
    elif not rules.has_output and not rules.source_lives:
        yield "Whether the mirror kept the order: that takes the source's log."
    elif totals["order_unknown"]:
        yield (
            f"The order of {totals['order_unknown']:,} records: they do not occur equally often on both sides, and any "
            "of them could be meant."
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
