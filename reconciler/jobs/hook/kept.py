"""The files of a job's starts (the plan, Spark's offsets, the start itself), and the variables for the command.

The last starts are kept. The variables are ``NAME=value`` lines that a shell, systemd and a container engine read
alike. A value that needs no quotes has none. Else it is in double quotes, with a backslash before each of ``"``,
``\\``, ``$`` and a backquote: a POSIX shell and systemd's ``EnvironmentFile=`` (systemd.exec(5)) read it back.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.fileio import (
    FileKind,
    is_another_kind,
    making,
    name_for,
    refuse_special,
    refuse_unwritable,
    write_whole,
)

KEPT_STARTS = 20
_TIME = "%Y%m%dT%H%M%S"
_PLAN, _OFFSETS, _START = ".plan.json", ".starting-offsets.json", ".start.json"
_APPLIED = f"{_PLAN}.applied"


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files of one start, without their endings. Only a start that was planned has a plan."""

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
    def applied(self) -> Path:
        """A file that exists if the job's numbers were written by the plan: an audit needs such a plan."""
        return self._with(_APPLIED)

    def remove(self) -> None:
        for path in (self.plan, self._with(f"{_PLAN}.sig"), self.starting_offsets, self.start):
            path.unlink(missing_ok=True)

    def _with(self, ending: str) -> Path:
        return self.stem.with_name(self.stem.name + ending)


def path_of(chosen: Path | None) -> Path:
    """The folder of plans: the chosen one, $RECONCILER_PLANS, or one in the user's state folder (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return chosen or Path(os.environ.get("RECONCILER_PLANS") or Path(state) / "reconciler" / "plans")


def folder(chosen: Path | None) -> Path:
    """``path_of``, created if it does not exist.

    Raises ConfigError if it cannot be made, if other users may write to it, or for a path that is not UTF-8.
    """
    found = path_of(chosen)
    if not encodable(str(found.absolute())):  # the variables name it, in a file and on stdout
        raise ConfigError(f"The path of plans {str(found.absolute())!a} is not UTF-8.", hint="Choose another --plans.")
    with making(found, other="--plans"):
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = found.stat()
    if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"The folder of plans {found} is writable by other users, who could choose a job's offsets and cluster.",
            hint=f"Keep it for this user alone: chmod 700 {found}; or name a folder in it that does not exist yet.",
        )
    refuse_unwritable(found / "plan.json", other="--plans")
    return found


def files(folder: Path, job: str, now_ms: int) -> KeptFiles:
    """The paths of a new start's files. Removes the job's oldest starts that applied no plan."""
    earlier = sorted(_starts(folder, _prefix(job)), key=lambda each: each.stem.name)
    for old in earlier[: max(0, len(earlier) - KEPT_STARTS + 1)]:
        if not old.applied.exists():
            old.remove()
    date = f"{time.strftime(_TIME, time.gmtime(now_ms // 1000))}-{now_ms % 1000:03d}-{os.getpid()}"
    return KeptFiles(folder / f"{_prefix(job)}{date}")


def newest_start(folder: Path, job: str) -> Path | None:
    """The file of the job's newest start that is kept. None if there is none."""
    found = [each.start for each in _starts(folder, _prefix(job)) if each.start.exists()]
    return max(found, key=lambda each: each.name, default=None)


def starts_of(folder: Path, job: str) -> Path:
    """The pattern of the files of all starts of the job, for a shell."""
    return folder / f"{_prefix(job)}*{_START}"


def _starts(folder: Path, prefix: str) -> Iterator[KeptFiles]:
    # The whole name, since another job's name may begin with this one.
    pattern = re.compile(rf"({re.escape(prefix)}\d{{8}}T\d{{6}}-\d{{3}}-\d+)\.")
    stems = {found[1] for path in folder.iterdir() if (found := pattern.match(path.name))}
    return (KeptFiles(folder / stem) for stem in stems)


def _prefix(job: str) -> str:
    return f"{name_for(job)}-"


_PLAIN = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_ESCAPED = re.compile(r'["\\$`]')
_VARIABLES = FileKind("a hook's variables", re.compile(rb"RECONCILER_(START|STARTING_OFFSETS|PLAN)="))
"""The file of an earlier start."""


def lines(names: Mapping[str, str]) -> str:
    """One line a variable."""
    return "".join(f"{name}={_quoted(value)}\n" for name, value in names.items())


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else '"' + _ESCAPED.sub(r"\\\g<0>", value) + '"'


def forget(file: Path | None) -> None:
    """Remove the file of an earlier start: while it exists, it says that this start may continue.

    Raises ConfigError if it cannot be removed or could not be written, and for a file that is not a hook's.
    """
    if file is None:
        return
    if str(file) != "-":
        with making(file, other="--env-file"):
            refuse_special(file)
            if is_another_kind(file, _VARIABLES):
                raise ConfigError(
                    f"{file} exists, and a hook did not write it. It was not changed.",
                    hint="Choose another --env-file.",
                )
            file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
    refuse_unwritable(file, other="--env-file", stdout="Without a command, the hook prints the variables.")


def hand_over(file: Path | None, names: Mapping[str, str]) -> None:
    """Write the file in one piece, readable by its owner only."""
    if file is not None:
        write_whole(file, lines(names))
