"""The oracle: compares the promises of each finding with the known content of the destination.

A few worlds are outside of the promise, and ``knows_place`` and ``knows_count`` say which: where no reader of the
destination could know, and the documents say so (docs/explanation/limitations.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reconciler.core.anchors import Names
from reconciler.core.verdicts import Finding
from tests.simulation.worlds.cases import AMONG, LOCAL, PLACE, Case, Made, World, time_of


def skipped(case: Case, world: World, finding: Finding) -> list[int]:
    """Offsets before the resume point that hold a record the job has not processed, and that is not there again."""
    until = finding.resume_offset or 0
    again = {index for at, index in world.held.items() if at >= until and index >= 0} if case.tells_copies else set()
    return [
        at
        for at, index in world.held.items()
        if at < until and (index == LOCAL or index > case.processed) and index not in again
    ]


def best_replay(case: Case, world: World) -> int:
    """The processed records that are behind the first last copy of an unprocessed one: no place has fewer."""
    last = {index if index >= 0 else (at, index): at for at, index in sorted(world.held.items())}
    unprocessed = [at for index, at in last.items() if not isinstance(index, int) or index > case.processed]
    limit = min(unprocessed, default=0) if unprocessed else max(world.held, default=0) + 1
    return sum(at >= limit and 0 <= index <= case.processed for at, index in world.held.items())


def replayed(case: Case, world: World, finding: Finding) -> int:
    """Records at or after the resume point that the job has processed."""
    since = finding.resume_offset or 0
    return sum(at >= since and 0 <= index <= case.processed for at, index in world.held.items())


def broken_promises(case: Case, world: World, finding: Finding) -> Iterator[str]:
    """The promises that this finding breaks, each as a sentence."""
    anchor, held = case.anchor, world.holds(case.anchor_index)
    if finding.resume_offset is None:
        if anchor.timestamp_ms is not None or case.ids == "increasing" or held:
            yield f"{finding.verdict.value}, although something could be proven"
        return
    if knows_place(case, world) and (lost := skipped(case, world, finding)):
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"
    again = replayed(case, world, finding)
    if knows_count(case, world):
        yield from broken_bounds(finding, again)
    if again and held and must_be_exact(case, world):
        yield f"replays {again}, although the anchor is there and nothing was delivered twice"


def broken_bounds(finding: Finding, again: int) -> Iterator[str]:
    """What a finding promises of the replay, where so many processed records come again."""
    if finding.replay_at_most is not None and again > finding.replay_at_most:
        yield f"replays {again}, promised at most {finding.replay_at_most}"
    if finding.replay_exact not in (None, again):
        yield f"replays {again}, promised exactly {finding.replay_exact}"


# ---------------------------------------------------------------- what can be promised


def knows_place(case: Case, world: World) -> bool:
    """Without a stated disorder, clocks prove nothing; only the anchor's own record does, and its preserved time."""
    there = world.holds_first_copy_of(case.anchor_index)
    if not there and has_twin(case):
        return False  # another record that is the anchor by all it knows stands for it
    if case.declared:
        return True
    if has_twin(case) and is_stamped_too_early(case):
        return False
    looked_at = case.anchor.names_a_record and case.limits.scan_records > len(world.held)
    clocks_agree = case.append_skew_ms == 0 and (looked_at or not (case.event_time or case.append_time))
    return there and clocks_agree and case.anchor.names is not Names.MAX_TIME


def knows_count(case: Case, world: World) -> bool:
    """Without a stated disorder, a re-sent record is known only by its first copy, after the anchor's time.

    And where a copy of the anchor may be another record, times alone tell what lies between the two.
    """
    if not knows_place(case, world):
        return False
    whole = len(world.held) == len(world.delivered) and case.limits.scan_records > len(world.held)
    return case.declared or (whole and case.anchor.names_a_record and not has_twin(case))


def must_be_exact(case: Case, world: World) -> bool:
    """The anchor names one record, the budget suffices, no processed record came twice, no first copy is in doubt."""
    copies = Counter(index for index in world.delivered.values() if 0 <= index <= case.anchor_index)
    ample = case.limits.scan_records > len(world.held) and case.lag == 0
    once = all(count == 1 for count in copies.values()) or is_exact_by_order(case, world)
    return case.anchor.names_a_record and ample and once and not has_twin(case) and not is_in_doubt(case, world)


def is_exact_by_order(case: Case, world: World) -> bool:
    """Where every record has an increasing id, each one's place is known, however often the block was sent."""
    if case.ids != "increasing" or case.anchor.id is None or case.anchor.names is not Names.LAST:
        return False
    if case.limits.tail_records < len(world.held):  # what is not read cannot be stepped over
        return False
    indexes = [index for _, index in sorted(world.held.items())]
    if any(index < 0 or case.source[index].id is None for index in indexes):
        return False
    processed = [index <= case.processed for index in indexes]
    return processed == sorted(processed, reverse=True)


def has_twin(case: Case) -> bool:
    """True if the anchor's fields also fit another source record."""
    return not case.tells_copies and len(twins(case)) > 1


def is_stamped_too_early(case: Case) -> bool:
    """True if twins have different Kafka timestamps, and one has its own before the payload's time less the disorder.

    That one may lie in front of where the search begins, and nothing shows it once the other is found.
    """
    stamps = {made.stamp_ms for made in twins(case)}
    early = any(made.stamp_ms < made.event_ms - case.limits.max_disorder_ms for made in twins(case))
    return case.event_time and len(stamps) > 1 and early


def twins(case: Case) -> list[Made]:
    """The source records that the anchor's fields fit: its own, and others."""
    target = case.source[case.anchor_index]

    def known(made: Made) -> tuple[object, ...]:
        untold = case.append_time or case.anchor.timestamp_ms is None
        time = None if untold else time_of(made, case.event_time)
        name = made.id if case.anchor.id is not None else None
        return (time, name, (made.key, made.value) if case.anchor.fingerprint is not None else None)

    return [made for made in case.source if known(made) == known(target)]


def is_in_doubt(case: Case, world: World) -> bool:
    """True if no information tells whether the first copy found is the first that existed.

    Either the log begins inside of the anchor's tie or disorder, or a cleaner may have removed an earlier copy; and a
    record that may be unprocessed stands in front of the copy found.
    """
    part = world.log.partitions[PLACE]
    first = min(at for at, index in world.held.items() if index == case.anchor_index)
    front = [index for at, index in sorted(world.held.items()) if at < first]
    if all(is_surely_processed(case, index) for index in front):
        return False
    has_gap = len(front) < first - part.start
    cut = part.start > 0 and not is_surely_processed(case, front[0])
    cleaned = case.compacted or (case.compacted is None and case.cleaned > 0)
    return cut or (cleaned and has_gap)


def is_older(case: Case, index: int) -> bool:
    """True if its time alone puts it before the anchor in the source."""
    anchor_time = time_of(case.source[case.anchor_index], case.event_time)
    time = None if index in (LOCAL, AMONG) else time_of(case.source[index], case.event_time)
    stamped_over = case.append_time and not case.event_time
    if time is None or anchor_time is None or stamped_over:
        return False
    return time < anchor_time - case.limits.max_disorder_ms


def is_surely_processed(case: Case, index: int) -> bool:
    if case.ids == "increasing" and case.anchor.id is not None and index >= 0 and case.source[index].id is not None:
        return index < case.anchor_index
    return is_older(case, index)
