"""What ``reconciler hook`` leaves in the environment of the job that it starts, as a hand-off."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from reconciler.clock import clock_ms
from reconciler.core.errors import Changed, ConfigError
from reconciler.fileio import read_regular, why
from reconciler.formats.start import Side, parse_start
from reconciler.spark.handoff import age, arguments, proof
from reconciler.spark.handoff.options import (
    CHECKPOINT_VARIABLE,
    PLAN_VARIABLE,
    START_VARIABLE,
    Handoff,
    Jobs,
    of_plan,
)

log = logging.getLogger("reconciler.handoff")


def from_environment(
    job: Jobs = None, *, environ: Mapping[str, str] | None = None, trusted_keys: proof.Keys = None
) -> Handoff:
    """The starting point that ``reconciler hook`` prepared, on the side where the job is.

    The start's file must be the one that the hook wrote, by ``$RECONCILER_START_SHA256``. With ``trusted_keys`` (as for
    ``load``) a start at the destination must also be that of the plan, which one of them has signed.

    Raises ``ConfigError`` if the start's file is not named or cannot be read, ``Changed``
    where the job has moved or was corrected after this start; else as ``load`` does.
    """
    env = os.environ if environ is None else environ
    if not env.get(START_VARIABLE):
        raise ConfigError(
            f"{START_VARIABLE} is not set in this process's environment.",
            hint="Start the job by `reconciler hook -c FILE -- COMMAND`. Where the driver runs on another machine "
            "(cluster deploy mode), ship the start's file to it and set the variable there.",
        )
    return _started(env, job, trusted_keys)


def _planned(env: Mapping[str, str], job: Jobs, trusted_keys: proof.Keys) -> Handoff:
    plan, vouched = proof.read(env[PLAN_VARIABLE], env, trusted_keys=trusted_keys, now_ms=clock_ms())
    # With a checkpoint the plan holds both positions of a repeated batch, and Spark goes by the checkpoint.
    return of_plan(plan.starts if env.get(CHECKPOINT_VARIABLE) else plan, job, vouched=vouched)


def _started(env: Mapping[str, str], job: Jobs, trusted_keys: proof.Keys) -> Handoff:
    path = env[START_VARIABLE]
    try:
        text = read_regular(Path(path)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{START_VARIABLE} names {path}, which cannot be read: {why(error)}.",
            hint="Start the job by `reconciler hook`; where the driver runs on another machine, ship the file to it.",
        ) from error
    start = parse_start(text, f"{path} ({START_VARIABLE})")
    vouched = proof.is_vouched_for(path, text, start.bootstrap_servers, env)
    if proof.keys_of(trusted_keys, env) and start.side is Side.DESTINATION:
        if not env.get(PLAN_VARIABLE):
            raise ConfigError(
                f"Plans must be signed here, and {PLAN_VARIABLE} is not set.", hint="Ship the signed plan, too."
            )
        planned = _planned(env, start.job, trusted_keys)
        if (planned.bootstrap_servers, planned.offsets) != (start.bootstrap_servers, start.offsets):
            raise Changed(
                f"{path} ({START_VARIABLE}) does not start where the signed plan {env[PLAN_VARIABLE]} says.",
                hint="Start the job by `reconciler hook` again, which rewrites both.",
            )
        vouched = True
    names = arguments.job_names(job) or [start.job]
    if names != [start.job]:
        raise ConfigError(
            f"The hook has started job {start.job}, not {', '.join(names)}.", hint="Start that job by its own hook."
        )
    age.refuse_left(Path(path), start)
    kept_in = env.get(CHECKPOINT_VARIABLE)
    old = "" if kept_in else age.why_old(Path(path), start, clock_ms())
    if old:
        log.warning(
            "The start %s of job %s is old: %s. A query that continues its checkpoint does not use its offsets; any "
            "other would begin at them. %s",
            *(path, start.job, old, age.AGAIN),
        )
    return Handoff(
        start.job,
        start.bootstrap_servers,
        start.offsets,
        start=start,
        is_whole=start.side is Side.DESTINATION,
        kept_in=kept_in,
        old=old,
        vouched=vouched,
    )
