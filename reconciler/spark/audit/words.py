"""Sentences for people: what each figure compares, and what could not be known. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.clock import stamp
from reconciler.formats.decimal_text import some
from reconciler.spark.audit.looking import LogExtent, gaps, of_unplaced, unshown
from reconciler.spark.audit.naming import By, Naming
from reconciler.spark.audit.result import AuditResult
from reconciler.spark.audit.resumed_rows import AuditedJob
from reconciler.spark.audit.tally import Rules


def compared(naming: Naming, rules: Rules) -> list[str]:
    """One sentence per figure."""
    first = f"Records are distinguished by {naming.by.value}, and counted as often as they occur."
    log = "the source's log" if rules.source_lives else "the destination's log"
    if not rules.has_output:
        if not rules.source_lives:
            return [first, "doubled: records from the resume offset on that the destination's log holds once more."]
        return [
            first,
            "lost: records of the source from the stored offset on that the destination does not hold from the resume "
            "offset on: either not at all, or before it.",
            "doubled: records that the destination holds from the resume offset on, more often than the source holds "
            "them unprocessed.",
            "reordered: records from the resume offset on that come after a later one of the source.",
        ]
    if rules.offsets_only:
        sentences = [
            "lost: offsets of the destination from the resume offset on that are not in the output.",
            "doubled: offsets that are in the output more than once.",
        ]
    else:
        sentences = [
            f"lost: records of {log} that the output does not hold as often.",
            f"doubled: rows of the output beyond what {log} holds of the record.",
        ]
    if naming.unique and not rules.source_lives and not rules.offsets_only:
        sentences.append("Each id should be in the output once, however often the mirror has sent it.")
    elif naming.unique_apart and not rules.source_lives:
        sentences.append(UNIQUE_APART)
    if rules.judges_order:
        sentences.append(f"reordered: rows of the output after one whose record comes later in {log}.")
    return [first, *sentences]


UNIQUE_APART = (
    "By the configuration ids are unique within a partition; here partitions are compared with each other. If no two "
    "records of the job share an id, give --unique-ids."
)


def unknown(
    planned: AuditedJob,
    naming: Naming,
    rules: Rules,
    result: AuditResult,
    destination: LogExtent,
    source: LogExtent | None,
    why_dead: str | None,
) -> list[str]:
    """What was not compared, and what the figures may hide."""
    return [
        *(f"Nothing was read of {side} that could be compared: it shows nothing." for side in result.empty_sides),
        *_of_source(rules, why_dead),
        *_of_logs(planned, destination, source),
        *_of_unshown(rules, source),
        *of_since(result.since_ms),
        *_of_names(naming, rules, result),
        *_of_order(rules, result.totals),
    ]


def of_since(since_ms: int | None) -> Iterable[str]:
    if since_ms is not None:
        yield f"Records of the logs older than {stamp(since_ms)} were left out, as the audit was told to."


def of_nameless(naming: Naming, records: int, places: Sequence[str], bare: Sequence[str], rows: int) -> Iterable[str]:
    """On ``records`` of the logs, which are at ``places``, and ``rows`` of the output. At ``bare`` no record has an id.

    Only where records are distinguished by id can those of a log be without a name.
    """
    if records:
        yield (
            f"{records:,} records of the logs have no id, and were not compared: they are of {some(places)}. Correct "
            "the job's id, or name the output's key and value, or its fingerprint: every record has these."
        )
    if bare:
        yield f"No record of {some(bare)} has an id: nothing of it was compared."
    if rows:
        lacking = "have no id" if naming.by is By.ID else "do not identify a record"
        yield f"{rows:,} rows of the output {lacking}, and were not compared."


def _of_source(rules: Rules, why_dead: str | None) -> Iterable[str]:
    if rules.source_lives:
        return
    yield why_dead or "The source was not read: records that the mirror never delivered are not counted."
    if not rules.has_output:
        yield "Whether anything was lost: that needs the source's log, or the job's output."
    elif rules.offsets_only:
        yield "Which records of the source were lost, or were processed at both clusters: offsets do not show it."


def _of_logs(planned: AuditedJob, destination: LogExtent, source: LogExtent | None) -> Iterable[str]:
    if planned.undecided:
        yield f"The plan gives no offset for {some([str(at) for at in planned.undecided])}: not compared."
    missing = gaps(destination, source)
    deleted = [s for s in destination.stretches if s.log_start > s.cut and not s.is_short]
    fates = {
        "not compared": [s for s in deleted if s.at in missing],
        "only the source's log has them": [s for s in deleted if s.at not in missing and s.is_cut_off],
        "left out, as older ones": [s for s in deleted if not s.is_cut_off],
    }
    for fate, stretches in fates.items():
        if stretches:
            places = some([str(s.at) for s in stretches])
            yield f"The destination has deleted records after the resume offset of {places}: {fate}."
    short = [str(s.at) for s in destination.stretches if s.is_short]
    if short:
        yield (
            f"The log of {some(short)} ends before the resume offset, so that nothing after it was compared: was it "
            "recreated, or its end cut off?"
        )
    unread = [str(s.at) for s in destination.stretches if s.until <= s.cut < s.end and not s.is_unplaced]
    if unread:
        yield f"By the given positions (until) the job has read nothing of {some(unread)} yet."
    yield from of_unplaced(s.at for s in destination.stretches if s.hides_records)
    for side, log in (("destination", destination), ("source", source)):
        if log is not None and log.silent:
            yield f"The {side}'s {some([str(at) for at in log.silent])} is not in the plan: not compared."
    if source is not None:
        cut = [str(s.at) for s in source.stretches if s.log_start > 0]
        if cut:
            yield f"The source has deleted the first records of {some(cut)}: they are not known."
    spread = sorted({resumed.row.topic for resumed in planned.resumed_rows if resumed.remapped})
    if spread:
        yield f"Partitions of {some(spread)} do not correspond: compared as a whole, and not by order."


def _of_unshown(rules: Rules, source: LogExtent | None) -> Iterable[str]:
    hidden = [str(at) for at in unshown(source, has_output=rules.has_output)]
    if hidden:
        yield (
            f"The source has deleted records after the stored offset of {some(hidden)}: whether the job gets them is "
            "not known without its output."
        )


def _of_names(naming: Naming, rules: Rules, result: AuditResult) -> Iterable[str]:
    totals = result.totals
    nameless = [row for row in result.partitions if row.nameless_in_logs]
    records = sum(row.nameless_in_logs for row in nameless)
    bare = [row.name for row in nameless if row.has_no_id]
    yield from of_nameless(naming, records, [row.name for row in nameless], bare, result.nameless_rows)
    if totals["possibly_lost"]:
        yield (
            f"{totals['possibly_lost']:,} records may be lost: they are in the log more often than in the output. The "
            "mirror may have sent them twice, or another writer may have written them."
        )
    if totals["possibly_doubled"]:
        yield (
            f"{totals['possibly_doubled']:,} more may be doubled: the destination's log holds them more than once. "
            "They may be equal records of the source, or records that the mirror has sent twice."
        )
    if totals["output_unknown"]:
        yield f"{totals['output_unknown']:,} rows of the output match no record that was read."
    if rules.source_lives and totals["only_at_destination"]:
        only = f"{totals['only_at_destination']:,} records are at the destination only"
        yield f"{only}: written there, or deleted at the source."


def _of_order(rules: Rules, totals: Mapping[str, int]) -> Iterable[str]:
    if rules.has_output and not rules.judges_order:
        yield "The output's order: no column gives it."
    elif not rules.has_output and not rules.source_lives:
        yield "Whether the mirror kept the order: that needs the source's log."
    elif totals["order_unknown"]:
        or_null = ", or the order's column has no value for them" if rules.has_output else ""
        yield (
            f"The order of {totals['order_unknown']:,} records: they do not occur equally often on both "
            f"sides{or_null}, so they cannot be paired."
        )
