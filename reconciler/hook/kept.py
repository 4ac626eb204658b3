"""The files of a job's starts: the plan, Spark's offsets, and the start itself. The last starts are kept.

Rollbacks of such plans have their place among the starts, dated like them: the job's query may have begun at the
offsets that a rollback undoes, and begins in a new place after it, as after a correction.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.fileio import making, name_for, refuse_unwritable, write_whole
from reconciler.formats import snapshot

KEPT_STARTS = 20
_TIME = "%Y%m%dT%H%M%S"
_PLAN, _OFFSETS, _START = ".plan.json", ".starting-offsets.json", ".start.json"
_COPIED, _ROLLBACK = f"{_PLAN}.copied", ".rollback.json"


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files of one start, without their endings. Only a start at the destination has a plan.

    Or the file of a rollback, which has no other.
    """

    stem: Path

    @property
    def plan(self) -> Path:
        return self._with(_PLAN)

    @property
    def starting_offsets(self) -> Path:
        return self._with(_OFFSETS)

    @property
    def start(self) -> Path:
        return self._with(_START)

    @property
    def copied(self) -> Path:
        """A file that is there if a copy of a checkpoint was made by the plan: such a plan has no snapshot."""
        return self._with(_COPIED)

    @property
    def rollback(self) -> Path:
        return self._with(_ROLLBACK)

    @property
    def is_applied(self) -> bool:
        return snapshot.path_for(self.plan).exists()

    @property
    def is_rollback(self) -> bool:
        return self.rollback.exists()

    def remove(self) -> None:
        for path in (self.plan, self._with(f"{_PLAN}.sig"), self.starting_offsets, self.start):
            path.unlink(missing_ok=True)

    def _with(self, ending: str) -> Path:
        return self.stem.with_name(self.stem.name + ending)


def folder(chosen: Path | None) -> Path:
    """The folder of plans: the chosen one, $RECONCILER_PLANS, or one in the user's state folder (XDG).

    Raises ConfigError if it cannot be made, if other users may write to it, or for a path that is not UTF-8.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    found = chosen or Path(os.environ.get("RECONCILER_PLANS") or Path(state) / "reconciler" / "plans")
    if not encodable(str(found.absolute())):  # the variables name it, in a file and on stdout
        raise ConfigError(f"The path of plans {str(found.absolute())!a} is not UTF-8.", hint="Choose another --plans.")
    with making(found, other="--plans"):
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = found.stat()
    if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"The folder of plans {found} is writable by other users, who could choose a job's offsets and cluster.",
            hint=f"Take it for this user alone: chmod 700 {found}; or name a folder in it that does not exist yet.",
        )
    refuse_unwritable(found / "plan.json", other="--plans")
    return found


def files(folder: Path, job: str, now_ms: int) -> KeptFiles:
    """Where the files of a new start go. Removes the job's oldest starts that applied no plan and made no copy.

    A start is dated after all that are kept, wherever the clock stands: by the date a correction is the last one.
    """
    starts = (each for each in _starts(folder, _prefix(job)) if not each.is_rollback)
    earlier = sorted(starts, key=lambda each: each.stem.name)
    for old in earlier[: max(0, len(earlier) - KEPT_STARTS + 1)]:
        if not old.is_applied and not old.copied.exists():
            old.remove()
    return KeptFiles(folder / f"{_prefix(job)}{_after_all(folder, job, now_ms)}")


def note_rollback(plan: Path, jobs: Iterable[str], now_ms: int) -> None:
    """Note that a plan's rollback begins to write these jobs' rows. Does nothing for a plan that no hook has kept.

    Before it writes, since it may be cut off: a place that the query begins for nothing skips nothing, but one that it
    goes on in does, at offsets that were undone. Every rollback has a date of its own, for the place that the query has
    begun may be later than the plan. Raises ConfigError if the folder cannot be written to.
    """
    plan = Path(os.path.realpath(plan))
    for job in jobs:
        if _pattern(_prefix(job), _PLAN).fullmatch(plan.name):
            noted = KeptFiles(plan.parent / f"{_prefix(job)}{_after_all(plan.parent, job, now_ms)}")
            write_whole(noted.rollback, f"{plan.name}\n")


def _named(ms: int) -> str:
    return f"{time.strftime(_TIME, time.gmtime(ms // 1000))}-{ms % 1000:03d}-{os.getpid()}"


def _after_all(folder: Path, job: str, now_ms: int) -> str:
    """The name of a start now; or right after the newest kept one of the job, if the clock was set back since."""
    name = _named(now_ms)
    kept = {each.stem.name.removeprefix(_prefix(job)) for each in _starts(folder, _prefix(job))}
    for newest in sorted((each for each in kept if each > name), reverse=True):
        from datetime import UTC, datetime  # hardly ever needed

        second, ms, _ = newest.split("-")
        with suppress(ValueError):  # digits that are no time
            made = datetime.strptime(second, _TIME).replace(tzinfo=UTC)
            return _named(int(made.timestamp()) * 1000 + int(ms) + 1)
    return name


def last_correction(folder: Path, job: str) -> str:
    """When the last plan was made that a hook applied for the job, or one was rolled back since, as sortable text.

    Empty if there is none here.
    """
    starts = _starts(folder, _prefix(job))
    corrections = (each.stem.name for each in starts if each.is_applied or each.is_rollback)
    return max(corrections, default="").removeprefix(_prefix(job))


def _starts(folder: Path, prefix: str) -> Iterator[KeptFiles]:
    pattern = _pattern(prefix, ".")
    stems = {found[1] for path in folder.iterdir() if (found := pattern.match(path.name))}
    return (KeptFiles(folder / stem) for stem in stems)


def _pattern(prefix: str, ending: str) -> re.Pattern[str]:
    # The whole of a name, since another job's may begin with this one's.
    return re.compile(rf"({re.escape(prefix)}\d{{8}}T\d{{6}}-\d{{3}}-\d+){re.escape(ending)}")


def _prefix(job: str) -> str:
    return f"{name_for(job)}-"
