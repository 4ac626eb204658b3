"""The variables for the command, as ``NAME=value`` lines that a shell, systemd and a container engine read alike.

A value stands as it is where it needs no quotes. Else it is in double quotes, with a backslash before each of ``"``,
``\\``, ``$`` and a backquote: so both a POSIX shell and systemd's ``EnvironmentFile=`` (systemd.exec(5)) read it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from reconciler.core.errors import ConfigError
from reconciler.fileio import FileKind, is_another_kind, making, refuse_special, refuse_unwritable, write_whole

_PLAIN = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_ESCAPED = re.compile(r'["\\$`]')
_VARIABLES = FileKind("a hook's variables", re.compile(rb"RECONCILER_(START|STARTING_OFFSETS|PLAN)="))
"""The file of an earlier start, by this release or an older one."""


def lines(names: Mapping[str, str]) -> str:
    """One line a variable."""
    return "".join(f"{name}={_quoted(value)}\n" for name, value in names.items())


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else '"' + _ESCAPED.sub(r"\\\g<0>", value) + '"'


def forget(file: Path | None) -> None:
    """Remove the file of an earlier start: while it exists, it says that this start may go on.

    Raises ConfigError if it cannot be removed or could not be written, and for a file that is not a hook's.
    """
    if file is None:
        return
    if str(file) != "-":
        with making(file, other="--env-file"):
            refuse_special(file)
            if is_another_kind(file, _VARIABLES):
                raise ConfigError(
                    f"{file} exists, and a hook did not write it. It was left as it is.",
                    hint="Choose another --env-file.",
                )
            file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
    refuse_unwritable(file, other="--env-file", stdout="Without a command, the hook prints the variables.")


def hand_over(file: Path | None, names: Mapping[str, str]) -> None:
    """Write the file in one piece, readable by its owner only."""
    if file is not None:
        write_whole(file, lines(names))
