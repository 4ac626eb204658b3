"""``job(config, name)``: a start in the job's own process, where nothing can run a command before it.

It does what ``reconciler hook`` does, and leaves the same files: whoever starts a job so needs no hook.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from reconciler import written
from reconciler.config.file import load_config
from reconciler.core.errors import NeedsPerson
from reconciler.failover import inputs
from reconciler.jobs.hook.figures import record_run
from reconciler.jobs.hook.starting import Request, begin, refuse_wait
from reconciler.jobs.hook.waiting import Waiting
from reconciler.plan.document import Plan, StartPolicy
from reconciler.plan.sentences import stop_sentences

MOST_SENTENCES = 3
"""In the error of a job that must not start. Its plan has all."""

log = logging.getLogger("reconciler.jobs.hook")


def start_here(
    config_file: str | os.PathLike[str],
    name: str,
    environ: Mapping[str, str],
    *,
    wait_s: float,
    plans: str | os.PathLike[str] | None,
) -> dict[str, str]:
    """Do a hook's work for the job, and return the variables that its command would find. Raises as ``begin`` does."""
    written.forget()
    file = Path(config_file)
    config = load_config(file, environ, inputs.homes)
    (job,) = config.chosen(name)
    refuse_wait("wait", wait_s)
    request = Request(file, "job()", wait_s=wait_s, plans=None if plans is None else Path(plans))
    why: list[str] = []
    with record_run(config.metrics, job) as figures:
        try:
            show = partial(_note_stops, config.policy.start, why)
            return begin(config, job, request, figures, outside=inputs.outside, show=show, tell=_tell)
        except NeedsPerson as error:
            if not why:
                raise
            raise NeedsPerson(" ".join([error.message, *why]), hint=error.hint) from error


def _note_stops(policy: StartPolicy, why: list[str], plan: Plan) -> None:
    why += stop_sentences(plan.job().partitions, policy, MOST_SENTENCES)


def _tell(now: Waiting) -> None:
    if now.behind:
        words = "waiting for the mirror: %d of %d partitions are behind; %.0f s left"
        log.info(words, now.behind, now.partitions, now.left_s)
