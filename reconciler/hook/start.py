"""One start of a job: once it is checked, correct what is stored and say what the job's command finds."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.failover.apply import prepare, write
from reconciler.failover.check import Checked, outcome
from reconciler.failover.outside import Outside
from reconciler.fileio import write_whole
from reconciler.formats import snapshot
from reconciler.formats.plan import Plan, why_stopped
from reconciler.hook import checkpoint, trust
from reconciler.spark.handoff.options import OFFSETS_VARIABLE, PLAN_VARIABLE, starting_offsets_json

if TYPE_CHECKING:
    from reconciler.trust.audit_trail import Attempt
    from reconciler.trust.ed25519 import PrivateKey

KEPT_PLANS = 20

log = logging.getLogger("reconciler.hook")


@dataclass(frozen=True, slots=True)
class Start:
    """A start whose settings are usable. ``words`` are the command line and ``config_file`` its file, for messages."""

    config: Config
    job: Job
    folder: Path
    key: PrivateKey | None
    original: checkpoint.Original | None
    words: Sequence[str]
    config_file: Path

    @classmethod
    def of(
        cls,
        config: Config,
        job: Job,
        *,
        plans: Path | None,
        clone_to: str | None,
        words: Sequence[str],
        config_file: Path,
    ) -> Start:
        """Raises ConfigError for a key, a folder of plans or a copy of a checkpoint that cannot be used."""
        key, folder = trust.ready(config.trust), plan_folder(plans)
        original = checkpoint.of(job, clone_to)
        if original is not None:
            config, job = original.now(config, job)
        return cls(config, job, folder, key, original, words, config_file)

    def correct(self, checked: Checked, outside: Outside, show: Callable[[Plan], None]) -> dict[str, str]:
        """Keep the plan, correct what is stored, and return the variables that the command finds.

        ``show`` shows a plan that stops the job or that is about to be applied. Raises NeedsPerson for a job that must
        not start.
        """
        files = keep(self.folder, self.job.name, checked.plan, outside.now_ms())
        stopped = any(why_stopped(row, self.config.policy.start) for row in checked.deciding)
        if stopped or checked.to_write:
            show(checked.plan)
        if stopped:
            raise NeedsPerson(
                f'Job "{self.job.name}" must not start: a partition needs a decision.', hint=f"Plan: {files.plan}"
            )
        write_whole(files.starting_offsets, starting_offsets_json(checked.plan.starts) + "\n")
        path = self.original.path_now if self.original else None
        if not checked.to_write:
            log.info("every offset is right: %s", outcome(checked.plan))
        else:
            with trust.applying(
                self.config.trust, checked.plan, files.plan, self.key, words=self.words, config=self.config_file
            ) as attempt:
                if self.original is None:
                    self._apply(checked.plan, files.plan, outside, attempt)
                else:
                    attempt.intends_copy(checked.plan, self.job)
                    path = self.original.corrected(self.config, self.job, checked, outside).path_now
                attempt.wrote()
        return files.variables if path is None else files.variables | {checkpoint.VARIABLE: path}

    def _apply(self, plan: Plan, path: Path, outside: Outside, attempt: Attempt) -> None:
        changes = prepare(plan, self.config, outside)
        count = sum(len(change.intended) for change in changes)
        if not count:
            log.info("every offset is right: another process has corrected them meanwhile")
            return
        attempt.intends_changes(changes)
        write(changes, plan, path, outside)
        words = "%d offsets corrected; %s. To undo: reconciler rollback %s"
        log.info(words, count, outcome(plan), path)


# ---------------------------------------------------------------- plans, kept


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """A plan and its offsets as Spark's JSON, where the command reads them."""

    plan: Path
    starting_offsets: Path

    @property
    def variables(self) -> dict[str, str]:
        return {PLAN_VARIABLE: str(self.plan), OFFSETS_VARIABLE: str(self.starting_offsets)}


def plan_folder(chosen: Path | None) -> Path:
    """The folder of plans: the chosen one, $RECONCILER_PLANS, or one in the user's state folder (XDG).

    Raises ConfigError if it cannot be made.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = chosen or Path(os.environ.get("RECONCILER_PLANS") or Path(state) / "reconciler" / "plans")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Plans cannot be kept in {folder}: {error.strerror}.", hint="Choose another --plans."
        ) from error
    return folder


def keep(folder: Path, job: str, plan: Plan, now_ms: int) -> KeptFiles:
    """Write the plan where it stays, and remove the job's oldest plans that were not applied."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in job)
    name = f"{safe}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now_ms // 1000))}-{now_ms % 1000:03d}-{os.getpid()}"
    files = KeptFiles(folder / f"{name}.plan.json", folder / f"{name}.starting-offsets.json")
    write_whole(files.plan, plan.to_text())
    # The whole pattern, since another job's name may begin with this one's.
    plans = sorted(folder.glob(f"{safe}-{'[0-9]' * 8}T{'[0-9]' * 6}-{'[0-9]' * 3}-*.plan.json"))
    for old in plans[:-KEPT_PLANS]:
        if not snapshot.path_for(old).exists():
            old.unlink(missing_ok=True)
            old.with_name(f"{old.name}.sig").unlink(missing_ok=True)
            old.with_name(old.name.replace(".plan.json", ".starting-offsets.json")).unlink(missing_ok=True)
    return files
