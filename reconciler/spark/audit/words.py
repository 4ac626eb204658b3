"""Sentences for people: what an audit compares, what it could not compare, and what the figures may hide."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.clock import stamp
from reconciler.core.text import some
from reconciler.spark.audit.extents import ReachedLogs
from reconciler.spark.audit.naming import Naming
from reconciler.spark.audit.result import AuditResult, Uncompared
from reconciler.spark.audit.stays import Stays


def compared(naming: Naming, *, has_output: bool) -> Iterator[str]:
    """One sentence per figure."""
    yield f"Records are distinguished by {naming.told_apart_by}. One that is in two logs is one record."
    copies = "the first: ids are unique" if naming.unique else "the record's copies"
    if has_output:
        yield "lost: records of a log that the output lacks. Unread: of these, those that no stay of the job read."
        yield f"doubled: rows beyond {copies}."
        yield "unknown rows: rows of the output that match no record of a log."
    else:
        yield "lost: records of a log that no stay of the job read."
        yield f"doubled: records that the job read again, beyond {copies}."


def of_sides(result: AuditResult) -> Iterator[Uncompared]:
    """The sides and records that could not be compared, once they were counted."""
    sides = {f"cluster {each.name}": each.compared for each in result.clusters}
    if result.output is not None:
        sides[result.output.name] = result.output.compared
    for name, count in sides.items():
        if not count:
            yield Uncompared("nothing_read", (), f"Nothing of {name} could be compared: it shows nothing.")
    nameless = [each for each in result.partitions if each.not_compared]
    if nameless:
        names = tuple(each.name for each in nameless)
        records = sum(each.not_compared for each in nameless)
        bare = [each.name for each in nameless if not any(each.compared)]
        yield Uncompared(
            "no_id",
            names,
            f"{records:,} records of the logs have no id, and were not compared: they are of {some(names)}. "
            + (f"No record of {some(bare)} has one. " if bare else "")
            + "Correct the job's id, or name the output's key and value, which every record has.",
        )


def notes(found: Stays, looked: ReachedLogs, result: AuditResult) -> Iterator[str]:
    """What the figures may hide, and what was left out on purpose."""
    for cluster in looked.absent:
        yield f"Cluster {cluster} was not read: what only it has, and what the job read there, is not known."
    yield from found.assumed
    if result.since_ms is not None:
        yield f"Records of the logs older than {stamp(result.since_ms)} were left out, as the audit was told to."
    for log in looked.logs:
        cut = [str(reach.at) for reach in log.reaches if reach.edges.log_start > 0]
        if cut:
            yield f"Cluster {log.cluster_id} has deleted the first records of {some(cut)}: they are not known."
    if found.spread:
        yield f"Partitions of {some(sorted(found.spread))} do not correspond: each topic is compared as a whole."
    if result.output is not None and result.output.not_compared:
        yield f"{result.output.not_compared:,} rows of the output have no {result.told_apart_by}: not compared."
    totals = result.totals
    if lost := totals["possibly_lost"]:
        yield (
            f"{lost:,} records may be lost: a log has them more often than the job put them out. A mirror may have "
            "sent them twice, or another writer may have written them."
        )
    if doubled := totals["possibly_doubled"]:
        yield (
            f"{doubled:,} more may be doubled: a log has them more than once. They may be equal records, or records "
            "that a mirror has sent twice."
        )
    if totals["unknown_rows"] and not result.rows_must_match:
        yield f"{totals['unknown_rows']:,} rows of the output match no record that was read."
