"""A group's number at the destination that MirrorMaker may have committed over a correction.

Theory of operation. A correction left an anchor for its own number C. A later number N in the row is either the
group's own commit, behind C, or MirrorMaker's translation of what the group had committed at the source, which no
record proves. Up to C everything was processed in both cases. So C is safe; and the group has processed at most the
N - C offsets behind it.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.mirror_pairs import MirrorEvidence
from reconciler.core.probes import Search, ask_edges
from reconciler.core.question import Question
from reconciler.core.reconcile import verify_own
from reconciler.core.scan import last_before
from reconciler.core.verdicts import Finding, Verdict


def resume_at_correction(
    question: Question, stored: StoredOffset, anchor: Anchor, evidence: MirrorEvidence
) -> Search[Finding]:
    """The correction's own number, ``bounded``, or worse where its record is gone.

    ``unresolved`` where no checkpoint names the stored number only because they could not be read, or not all were.
    """
    corrected = StoredOffset(stored.offset - question.anchor_lag, anchor)
    what = f"offset {stored.offset}, later than the corrected {corrected.offset},"
    if not evidence.checkpoints:
        detail = (
            f"{what} is the group's own commit or MirrorMaker's, which may skip: {evidence.note}. "
            f"At {corrected.offset} nothing is skipped"
        )
        return Finding(Verdict.UNRESOLVED, None, detail=detail)
    found = yield from verify_own(replace(question, stored=corrected, mirror=None), corrected, anchor)
    if found.resume_offset is None:
        return found
    detail = (
        f"{what} is in MirrorMaker's checkpoint {evidence.checkpoints[-1]}, so its group sync may have put it "
        f"there: resuming at the correction; {found.detail}"
    )
    most = max(found.replay_at_most or 0, stored.offset - found.resume_offset)
    verdict = max(found.verdict, Verdict.BOUNDED)
    doubtful = replace(found, verdict=verdict, replay_at_most=most, replay_exact=None, detail=detail)
    if found.verdict is not Verdict.MATCH:
        return doubtful
    edges = yield from ask_edges()
    return doubtful.resting_on((yield from last_before(corrected.offset, edges.start)))
