"""A job's offsets on another cluster, for Python programs that place their own consumers.

The same check as ``reconciler plan --job NAME --to CLUSTER``. It writes nothing: a program that starts there by these
offsets says so with ``reconciler apply`` or ``move``, or the next hook starts the job where it is recorded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reconciler.config.file import load_config
from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import Verdict
from reconciler.failover import inputs
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand
from reconciler.plan.document import PartitionPlan
from reconciler.plan.start import stops_of
from reconciler.ports import TopicPartition


@dataclass(frozen=True, slots=True)
class Found:
    """One partition on the other cluster.

    ``offset`` is where to resume; None where nothing was processed (``new``, start by your own policy), and where a
    decision is needed: then ``stopped`` says why. ``again``: at most so many records from ``offset`` on were processed.
    ``finding`` is one of docs/reference/findings.md, ``evidence`` its reason in words.
    """

    finding: str
    offset: int | None
    again: int
    evidence: str
    stored: int | None
    stopped: str | None = None


def translate(
    config: str | os.PathLike[str], job: str, to: str, *, accept: frozenset[str] = frozenset()
) -> dict[TopicPartition, Found]:
    """Every partition of the job's topics on cluster ``to``, by its name there.

    ``config`` is the path of the configuration, ``job`` a name in it. ``accept``: findings to accept, as ``--accept``.
    Raises ConfigError, Unreachable and NeedsPerson as ``reconciler plan`` ends with 2, 6 and 4.
    """
    read = load_config(Path(config), homes=inputs.homes)
    there = inputs.located(read, read.chosen(job), to)
    by_hand = ByHand(accepted=_verdicts(accept))
    with inputs.outside(there) as outside:
        plan = check(there, there.chosen(job), outside, by_hand).plan
    return {row.key: _found(row, stopped) for row, stopped in stops_of(plan.job(), there.policy.start)}


def _verdicts(words: frozenset[str]) -> frozenset[Verdict]:
    try:
        return frozenset(map(Verdict, words))
    except ValueError as error:
        known = ", ".join(each.value for each in Verdict)
        raise ConfigError(f"accept: {error}.", hint=f"The findings are {known}.") from None


def _found(row: PartitionPlan, stopped: str | None) -> Found:
    offset = None if stopped is not None or row.finding is Verdict.NEW else row.resume_offset
    return Found(row.finding.value, offset, row.replay_at_most or 0, row.detail, row.stored_offset, stopped)
