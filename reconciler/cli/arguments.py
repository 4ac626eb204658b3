"""Options that several commands share, and their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reconciler.cli.terminal.help import CONFIG_HERE, CONFIG_VARIABLE
from reconciler.clock import zoned_ms
from reconciler.config.secrets import filled, remember
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import INT32_MAX
from reconciler.core.text import whole_number
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import ByHand

SKIPS = "skips"
"""The one word of --accept that is not a finding."""
DAY_S = 86_400
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, epoch ms."""

_MAY_HOLD_LOGINS = ("option", "kafka_option", "source_option")
"""Command line options that pass options to Spark's sources, logins among them."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """-c, which is required unless the environment names a configuration, or one is found here."""
    here = CONFIG_HERE if CONFIG_HERE.is_file() else None
    _add_config(parser, "the configuration, a TOML file", f"./{CONFIG_HERE}", here, required=here is None)


def add_optional_config(parser: argparse.ArgumentParser, purpose: str) -> None:
    """-c for commands that also work without one: the environment may name it, the current folder is not searched."""
    _add_config(parser, purpose, "none", None, required=False)


def _add_config(
    parser: argparse.ArgumentParser, purpose: str, otherwise: str, here: Path | None, *, required: bool
) -> None:
    named = os.environ.get(CONFIG_VARIABLE)
    found = Path(named) if named else here
    parser.set_defaults(found_config=found)
    told = f"{purpose} (default: ${CONFIG_VARIABLE}, else {otherwise})"
    required = required and not named
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, default=found, required=required, help=told)


def add_to(parser: argparse.ArgumentParser) -> None:
    """--to, the cluster that jobs move to."""
    help = "the cluster that the jobs move to (default: where a job is moving, else the other of two)"
    parser.add_argument("--to", metavar="CLUSTER", dest="toward", help=help)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """``--job``, repeatable: jobs of the configuration."""
    add_repeatable(parser, "--job", "only this job of the configuration", "NAME")


def add_jobs_of_plan(parser: argparse.ArgumentParser) -> None:
    """``--job``, repeatable: jobs of the plan."""
    add_repeatable(parser, "--job", "only this job of the plan; the others are left alone", "NAME")


def add_one_job(parser: argparse.ArgumentParser, of: str = "configuration") -> None:
    """--job, once: for commands that are about one job."""
    parser.add_argument("--job", metavar="NAME", help=f"only this job of the {of}")


def add_plan(parser: argparse.ArgumentParser, purpose: str = "a file made by reconciler plan") -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help=purpose)


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_format(parser: Any, help: str = "default: text") -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help=help)


def add_repeatable(parser: Any, name: str, purpose: str, metavar: str = "NAME=VALUE", **more: Any) -> None:
    parser.add_argument(name, metavar=metavar, action="append", default=[], help=f"{purpose} (repeatable)", **more)


def check_every(seconds: float) -> None:
    """Raise ConfigError for a value of --every that is not above 0, or more than a day."""
    if not 0 < seconds <= DAY_S:
        raise ConfigError(f"--every {seconds:g} is not a number of seconds above 0, and at most a day.")


def add_decisions(parser: argparse.ArgumentParser) -> None:
    """``--set``, ``--set-time`` and ``--accept``: the operator's decisions, recorded in the plan."""
    group = parser.add_argument_group("your decisions, recorded in the plan")
    add_repeatable(
        group,
        "--set",
        "start this partition at this offset of the destination, whatever was found",
        "TOPIC:PARTITION=OFFSET",
        dest="offsets",
    )
    group.add_argument(
        "--set-time",
        metavar="TIME",
        help="start all partitions of one job at the first offset of this time or later: a time with its zone, like "
        "2026-01-31T06:00:00Z, or epoch milliseconds",
    )
    group.add_argument(
        "--accept",
        dest="accepted",
        metavar="FINDING",
        action="append",
        default=[],
        choices=[*(verdict.value for verdict in Verdict), SKIPS],
        help="let partitions with this finding start where they can (repeatable); unresolved: leave out partitions "
        "that are not there (the others need --set); skips: let offsets set by hand skip records",
    )


def decisions(options: argparse.Namespace) -> ByHand:
    """The parsed --set, --set-time and --accept. Raises ConfigError for values that cannot be parsed."""
    offsets: dict[tuple[str, int], int] = {}
    for text in options.offsets:
        place, _, offset = text.rpartition("=")
        topic, _, partition = place.rpartition(":")
        number, at = whole_number(partition, INT32_MAX), whole_number(offset)
        if not topic or number is None or at is None:
            raise ConfigError(f"--set {text} is not TOPIC:PARTITION=OFFSET.", hint="For example: --set a.events:3=1200")
        if offsets.setdefault((topic, number), at) != at:
            raise ConfigError(f"--set gives two offsets for {topic}:{partition}.", hint="Leave one of them out.")
    time_ms = None if options.set_time is None else time_ms_of("--set-time", options.set_time)
    verdicts = frozenset(Verdict(value) for value in options.accepted if value != SKIPS)
    return ByHand(offsets, verdicts, time_ms, SKIPS in options.accepted)


def time_ms_of(option: str, text: str) -> int:
    """The option's time as epoch milliseconds. Raises ConfigError."""
    number = whole_number(text, LATEST_MS)
    found = zoned_ms(text) if number is None else number
    if found is None or found < 0:
        raise ConfigError(
            f"{option} {text} is not a time.",
            hint="Write it with its zone, like 2026-01-31T06:00:00Z, or as epoch milliseconds.",
        )
    return found


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a dictionary. Raises ConfigError for one that is not.

    Every user of a machine can read its command lines. So where a value may be a login, it can name a variable or a
    file as the configuration does, and an error does not repeat it.
    """
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            shown = "…" if option in _MAY_HOLD_LOGINS else text
            raise ConfigError(f"--{option.replace('_', '-')} {shown} is not NAME=VALUE.")
        found[name] = value
    if option not in _MAY_HOLD_LOGINS:
        return found
    whole: dict[str, str] = filled(found, os.environ, {})
    for name, value in found.items():
        remember(name, value, whole[name])
    return whole
