"""The inputs of most commands: the configuration, plans, keys, the destination and the stores."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.terminal.output import can_rewrite, line, rewrite
from reconciler.cli.terminal.progress import CopyDisplay
from reconciler.config.file import Config, Job, load_config
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import Changed, ConfigError
from reconciler.failover import inputs
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.outside import ByHand, Outside
from reconciler.fileio import read_regular, why
from reconciler.kafka.engine import Progress
from reconciler.plan.document import Plan, parse_plan

if TYPE_CHECKING:
    from reconciler.failover.check import Checked
    from reconciler.plan.ed25519 import PrivateKey

PASSPHRASE = "RECONCILER_KEY_PASSPHRASE"
_MAKE_ONE = "Make one with: reconciler plan -c FILE -o PLAN"
_APPLIED = (
    "Name the one that was applied: a new plan will not do. A hook keeps the plans that it applies in its folder of "
    "plans (--plans), and its log names them."
)


def read_config(options: argparse.Namespace) -> Config:
    return load_config(options.config, homes=inputs.homes)


def read_located(options: argparse.Namespace) -> Config:
    """The configuration in the direction that the chosen jobs go (``inputs.located``)."""
    config = read_config(options)
    chosen = [options.job] if isinstance(options.job, str) else options.job or ()
    return inputs.located(config, config.chosen(*chosen), options.toward)


def by_direction(config: Config, jobs: Sequence[Job], to: str | None = None) -> list[tuple[Config, list[str]]]:
    """As ``inputs.located``, for jobs that may go different ways: each direction's configuration, and jobs' names."""
    from reconciler.failover import whereabouts

    locations = inputs.locations_of(config, jobs)
    config = inputs.with_topics(config, jobs, locations, to, lenient=True)
    jobs = config.chosen(*(job.name for job in jobs))
    return whereabouts.by_direction(config, jobs, locations, to, inputs.plans_of(config, jobs, locations))


def config_if_named(options: argparse.Namespace) -> Config | None:
    """The configuration of a command that needs none (``add_optional_config``); None if none is named."""
    return None if options.config is None else read_config(options)


def one_job(config: Config, name: str | None) -> Job:
    """The job of that name, or the only one. Raises ConfigError if the configuration has several and none is named."""
    jobs = config.jobs if name is None else config.chosen(name)
    if len(jobs) != 1:
        raise ConfigError(
            "The configuration has several jobs, and this command takes one.",
            hint="Name it with --job: " + ", ".join(job.name for job in jobs) + ".",
        )
    return jobs[0]


def read_plan(path: Path, *, applied: bool = False) -> Plan:
    """A plan file. ``applied``: only one that was applied will do. Raises as ``read_plan_file``."""
    return read_plan_file(path, applied=applied)[0]


def read_plan_file(path: Path, *, applied: bool = False) -> tuple[Plan, bytes]:
    """A plan and the bytes of its file, read once: the signed bytes are the parsed ones.

    Raises ``ConfigError`` if it cannot be read, ``Changed`` if it was altered.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no plan {path}.", hint=_APPLIED if applied else _MAKE_ONE) from error
    except OSError as error:
        raise ConfigError(
            f"The plan {path} cannot be read: {why(error)}.", hint="Give the path of a plan that this user may read."
        ) from error
    try:
        return parse_plan(content), content
    except Changed as error:
        raise Changed(f"{path}: {error.message}", hint=error.hint) from error


def private_key(path: Path) -> PrivateKey:
    """The private key in the file ``path``; its passphrase comes from the environment or from a prompt.

    Raises ConfigError for an unusable key, and for a missing passphrase if stdin is not a terminal.
    """
    from reconciler.plan import signing

    return signing.private_key(path, partial(_passphrase, path))


def _passphrase(path: Path) -> str:
    found = os.environ.get(PASSPHRASE) or ""
    if not found:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"The key {path} needs a passphrase, and stdin is not a terminal.", hint=f"Put it into {PASSPHRASE}."
            )
        import getpass

        try:
            found = getpass.getpass(line(f"Passphrase of {path}: "), sys.stderr)
        except EOFError:
            hint = f"Run this again and type it, or put it into {PASSPHRASE}."
            raise ConfigError(f"No passphrase was given for the key {path}.", hint=hint) from None
    if found:
        KNOWN.add(found, f"${{{PASSPHRASE}}}")
    return found


# ---------------------------------------------------------------- the world outside


@contextmanager
def outside(config: Config) -> Iterator[Outside]:
    """The destination's log, the stores and the clocks; progress goes to stderr if that is a terminal."""
    on_progress = _terminal_progress() if can_rewrite() else None
    with inputs.outside(config) as outside:
        yield replace(outside, on_progress=on_progress, on_copied=CopyDisplay())


def _terminal_progress() -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        text = f"round {progress.rounds}: {progress.done} of {progress.partitions} partitions done"
        rewrite("" if progress.done == progress.partitions else text)

    return show


def check_jobs(config: Config, options: argparse.Namespace, by_hand: ByHand) -> Checked:
    """The check that the options ask for. Raises ConfigError if an address stops all jobs; logs what stops some."""
    from reconciler.failover.apart import check_each

    jobs = config.chosen(*options.job)
    refuse_wrong(config, jobs, sinks=True)
    with outside(config) as world:
        return check_each(config, jobs, world, by_hand)
