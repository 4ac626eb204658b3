"""What the stored rows and the batches that count show of a batch whose run was interrupted. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.ports import TopicPartition
from reconciler.spark.ranges.output import BatchPart, CatalogueEntry


def is_saved(entry: CatalogueEntry, rows: Mapping[TopicPartition, StoredOffset]) -> bool | None:
    """Whether the stored offsets are those after the begun batch: True, False, or None if the rows do not show it.

    If a failover has replaced rows by others in another numbering, the anchors decide: a corrected row names the same
    record as the row that it replaces. One partition is enough, since all were saved in one step; but a row that is as
    after the batch shows nothing beside one in its numbering that is neither: another batch may have ended alike there.
    """
    answers: set[bool] = set()
    has_others = False
    for part in entry.parts:
        if part.after is None:
            continue
        now = rows.get(part.range.at)
        is_after, is_before = _same(now, part.after), _same(now, part.before)
        if is_after != is_before:
            answers.add(is_after)
        elif not is_after and now is not None:
            has_others |= _numbered_alike(now.anchor, part.after.anchor)
    if len(answers) != 1 or (has_others and True in answers):
        return None
    return answers.pop()


def is_contradicted(
    entry: CatalogueEntry, rows: Mapping[TopicPartition, StoredOffset], others: Iterable[CatalogueEntry]
) -> bool:
    """Whether a batch may not have been saved although a row in another cluster's numbering is as after it.

    A batch that counts may have ended at the same record: it holds some of this one's, and another row is neither as
    before this batch nor as after it. A failover may have set that row back, or the other batch left it there.
    """
    rest = [part for part in entry.parts if part.after is not None]
    is_neither = any(_is_neither(rows.get(part.range.at), part) for part in rest)
    return is_neither and any(_overlap(part, each) for part in rest for other in others for each in other.parts)


def _is_neither(now: StoredOffset | None, part: BatchPart) -> bool:
    return now is not None and not _same(now, part.after) and not _same(now, part.before)


def _overlap(one: BatchPart, other: BatchPart) -> bool:
    """True for two saved parts that have records in common."""
    if one.after is None or other.after is None or one.range.at != other.range.at:
        return False
    is_alike = _numbered_alike(one.after.anchor, other.after.anchor)
    begin = max(one.range.from_offset, other.range.from_offset)
    return is_alike and begin < min(one.range.until_offset, other.range.until_offset)


def is_overtaken(entry: CatalogueEntry, rows: Mapping[TopicPartition, StoredOffset]) -> bool:
    """Whether a stored row that the begun batch replaces is no longer the one that it began from.

    For a batch that was not saved. It never will be: a save compares all rows that it replaces, in one step, so that
    one whose answer was lost fails, too.
    """
    return any(part.after is not None and not _is_row(rows.get(part.range.at), part.before) for part in entry.parts)


def holds_all(others: Iterable[CatalogueEntry], entry: CatalogueEntry) -> bool:
    """Whether other batches hold all of this one's records.

    False without the topics' ids: equal numbers may then be those of a topic that was recreated.
    """
    held = [part for other in others for part in other.parts if part.after is not None]
    for part in entry.parts:
        if part.after is None:
            continue
        anchor, reached = part.after.anchor, part.range.from_offset
        if anchor is None or anchor.topic_id is None:
            return False
        alike = [
            each
            for each in held
            if each.range.at == part.range.at and each.after is not None and _numbered_alike(each.after.anchor, anchor)
        ]
        for each in sorted(alike, key=_held_from):
            if _held_from(each) <= reached:
                reached = max(reached, each.range.until_offset)
        if reached < part.range.until_offset:
            return False
    return True


def _held_from(part: BatchPart) -> int:
    """The offset from which a saved part holds every record there is.

    A range may begin behind the stored offset where its run knew that nothing lies in between: the part then replaced
    the stored row of the shorter way and of the longer one.
    """
    before, after = part.before, part.after
    if before is None or before.is_sentinel:
        return 0  # from the log's first record
    if after is None or not _numbered_alike(before.anchor, after.anchor):
        return part.range.from_offset
    return min(part.range.from_offset, before.offset)


def _is_row(now: StoredOffset | None, then: StoredOffset | None) -> bool:
    """As ``_same``, in the same numbering."""
    return _same(now, then) and (now is None or then is None or now.offset == then.offset)


def _same(now: StoredOffset | None, then: StoredOffset | None) -> bool:
    if now is None or then is None or now.is_unread or then.is_unread:
        return all(each is None or each.is_unread for each in (now, then))
    if now.anchor is None or then.anchor is None:
        return (now.offset, now.anchor) == (then.offset, then.anchor)
    one, other = now.anchor, then.anchor
    if _numbered_alike(one, other):
        return now.offset == then.offset
    if one.fingerprint is None or other.fingerprint is None:
        return False
    return (one.fingerprint, one.id, one.timestamp_ms) == (other.fingerprint, other.id, other.timestamp_ms)


def _numbered_alike(one: Anchor | None, other: Anchor | None) -> bool:
    """True for offsets of the same topic of the same cluster."""
    if one is None or other is None:
        return False
    return one.cluster_id == other.cluster_id and one.topic_id == other.topic_id
