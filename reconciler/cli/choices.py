"""The exact commands to choose from where a person's word fits several jobs, or skips records."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from reconciler.cli.arguments import SKIPS
from reconciler.cli.page.advice import path_for_job
from reconciler.cli.terminal.output import say
from reconciler.core.errors import ExitCode
from reconciler.core.visible import command
from reconciler.failover.decisions import SeveralJobs, unaccepted_skips, within_job
from reconciler.failover.outside import ByHand
from reconciler.formats.plan import Plan

MOST = 20
"""Commands that are listed; for more jobs the pattern is plain."""
_DECIDING = ("--job", "--set", "--set-time", "--accept")
_OUTPUT = ("-o", "--output")


def refuse(error: SeveralJobs, options: argparse.Namespace) -> ExitCode:
    """Say which jobs a word fits, then one command a job on stderr, each with the words that fit this job."""
    log = logging.getLogger("reconciler")
    log.error("%s", error)
    commands = [_for_job(options, name, words) for name, words in error.choices.items()]
    shown = [*commands[:MOST], *([f"… and {len(commands) - MOST:,} more jobs"] if len(commands) > MOST else [])]
    if options.log_format == "json":
        for line in shown:
            log.info("choose: %s", line)
    else:
        say("Nothing was written. Choose:", *(f"  {line}" for line in shown), stream=sys.stderr)
    return error.exit_code


def to_skip(plan: Plan, by_hand: ByHand, options: argparse.Namespace) -> list[str]:
    """For each job with an offset that skips records, the command that says that it may."""
    jobs = [job for job in plan.jobs if unaccepted_skips(job)]
    if len(jobs) == 1:
        return [command("reconciler", *options.words, "--accept", SKIPS)]
    return [f"{_for_job(options, job.name, within_job(by_hand, job))} --accept {SKIPS}" for job in jobs]


def _for_job(options: argparse.Namespace, job: str, words: ByHand) -> str:
    output: Path | None = getattr(options, "output", None)
    kept = list(_without(options.words, (*_DECIDING, *(_OUTPUT if output else ()))))
    named = ["-o", str(path_for_job(output, job))] if output else []
    return command("reconciler", *kept, *named, "--job", job, *_decided(options, words))


def _decided(options: argparse.Namespace, words: ByHand) -> Iterator[str]:
    for (topic, partition), offset in words.offsets.items():
        yield from ("--set", f"{topic}:{partition}={offset}")
    if options.set_time is not None:
        yield from ("--set-time", options.set_time)
    for word in options.accepted:
        yield from ("--accept", word)


def _without(words: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The words of a command line without these options, which take a value each; they may be abbreviated."""
    left = iter(words)
    for word in left:
        name, has_value, _ = word.partition("=")
        if word.startswith("-o") and "-o" in names:
            if word == "-o":
                next(left, None)
        elif name.startswith("--") and len(name) > 2 and any(each.startswith(name) for each in names):
            if not has_value:
                next(left, None)
        else:
            yield word
