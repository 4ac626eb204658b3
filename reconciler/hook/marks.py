"""Which jobs are to be moved to the destination: ``failover start`` sets a mark for each, ``failover end`` removes it.

A mark is a file in the folder ``[failover] state``, which all hooks of the jobs read. It is created and removed whole,
so a hook sees it or does not. Without a mark, no hook moves a job. Format ``reconciler.failover/1``: one JSON object
with ``format``, ``job``, ``source_alias`` (or null), ``since`` (RFC 3339) and ``by`` (user and host).
"""

from __future__ import annotations

import json
import os
import pwd
import re
from dataclasses import dataclass
from functools import cached_property

from reconciler.config.file import Config
from reconciler.core.errors import ConfigError, Refused
from reconciler.core.visible import command
from reconciler.fileio import name_for
from reconciler.folder import Folder, open_folder
from reconciler.formats.json_fields import FieldError, Fields, json_value

FORMAT = "reconciler.failover/1"
_FIELDS = frozenset({"format", "job", "source_alias", "since", "by"})
_ALIAS = re.compile(r".{1,249}", re.DOTALL)
"""As long as a topic's name, which begins with it, may be (``org.apache.kafka.common.internals.Topic``)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A job is to be moved to the destination: since when, and by whom."""

    since: str
    by: str


def who() -> str:
    """The user and the machine of this process, for a mark."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers run as users without a name
        user = str(uid)
    return f"{user}@{os.uname().nodename}"


class Marks:
    """The marks of one configuration's jobs. Raises Unreachable or Refused where the folder cannot be used."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @cached_property
    def _folder(self) -> Folder:
        return open_folder(self._config.failover_state)

    @property
    def place(self) -> str:
        """The folder, for messages."""
        return self._folder.shown

    def of(self, job: str) -> Mark | None:
        """The job's mark, if it has one.

        Raises Refused for a mark that cannot be understood, ConfigError for one of another direction.
        """
        self._require_folder()
        name = file_name(job)
        try:
            text = self._folder.read(name).decode()
            fields = Fields(json_value(text), "", _FIELDS)
            if fields.text("format") != FORMAT or fields.text("job") != job:
                raise FieldError("format", f"is not {FORMAT} of this job")
            alias = fields.matching_or_null("source_alias", _ALIAS, "a cluster's name")
            mark = Mark(fields.text("since"), fields.text("by"))
        except FileNotFoundError:
            return None
        except (FieldError, UnicodeDecodeError) as error:
            raise Refused(
                f'The mark of job "{job}" in {self.place}/{name} cannot be read: {error}.',
                hint="So it is not known on which side the job is to start. Run `reconciler failover end`, and then "
                "`reconciler failover start` if the job is to be moved.",
            ) from error
        ours = self._config.topics.alias
        if None not in (alias, ours) and alias != ours:
            raise ConfigError(
                f'The mark of job "{job}" in {self.place} is about a failover from "{alias}", and the source of this '
                f'configuration is "{ours}".',
                hint="End that failover with its own configuration, or give this one a [failover] state of its own.",
            )
        return mark

    def set(self, job: str, mark: Mark) -> bool:
        """Mark the job; False if it was marked already."""
        self._require_folder()
        content = {
            "format": FORMAT,
            "job": job,
            "source_alias": self._config.topics.alias,
            "since": mark.since,
            "by": mark.by,
        }
        try:
            self._folder.publish(file_name(job), json.dumps(content).encode() + b"\n")
        except FileExistsError:
            return False
        return True

    def remove(self, job: str) -> bool:
        """Remove the job's mark, also one that cannot be understood; False if it has none.

        Raises ConfigError for one of another direction.
        """
        try:
            marked = self.of(job) is not None
        except Refused:
            marked = True
        self._require_folder()
        self._folder.remove(file_name(job))
        return marked

    def _require_folder(self) -> None:
        """Raise Refused where a named folder of this machine is not there: a share that is not mounted has no marks."""
        state = self._config.failover_state
        if self._config.failover_state_is_named and "://" not in state and not self._folder.exists():
            raise Refused(
                f"There is no folder {self.place}, which [failover] state names: which jobs are to move is not known.",
                hint=f"Mount it; or, if it was never made, make it where all hooks find it: "
                f"{command('mkdir', '-p', self.place)}",
            )


def file_name(job: str) -> str:
    return f"{name_for(job)}.json"
