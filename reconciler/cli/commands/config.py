"""Tries a configuration: it connects to the clusters, looks up the topics and reads a record of each, opens the jobs'
stores and counts stored offsets and anchors, and shows from the state store where each job lives. It lists every
problem, not only the first, with the next step. It writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from reconciler.cli import arguments
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, fold, line, show, show_json, wants_colour, width
from reconciler.config.file import Config, any_home, read_config
from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.core.text import command
from reconciler.failover import inputs
from reconciler.preflight.check import connections, state_store, unread_names
from reconciler.preflight.stores import Level, TrialResult, Trials, World, abilities

FORMAT = "reconciler.config-check/1"
EXAMPLE = "reconciler config check -c reconciler.toml"
HELP = Help(
    __doc__,
    [
        ("try everything", EXAMPLE),
        ("only one job", "reconciler config check -c reconciler.toml --job clicks"),
        ("without the clusters, for example before a change is merged", f"{EXAMPLE} --offline"),
        ("as JSON", f"{EXAMPLE} --format json"),
    ],
    {
        ExitCode.OK: "no failures; there may be warnings",
        ExitCode.USAGE: "the configuration needs correcting",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused; the configuration may be right",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("reconciler init", "reconciler plan", "docs/guide.md", "docs/reference/configuration.md"),
)
_COLOURS = {Level.OK: "32", Level.WARN: "33", Level.FAIL: "31"}
_INDENT = "      "
_LEAST_COLUMNS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="check", required=True)
    summary = "try a configuration: the clusters, the topics and the stores"
    check = actions.add_parser("check", help=summary, description=f"{summary[0].upper()}{summary[1:]}. Reads only.")
    arguments.add_config(check)
    arguments.add_jobs(check)
    check.add_argument("--offline", action="store_true", help="connect to nothing; check only the text")
    arguments.add_format(check)


def run(options: argparse.Namespace) -> ExitCode:
    loaded = read_config(options.config, homes=any_home if options.offline else inputs.homes)
    trials = Trials()
    if isinstance(loaded, list):
        for error in loaded:
            trials.fail(str(options.config), error.message.removeprefix(f"{options.config}: "), error.hint or "")
    else:
        _look(loaded, options, trials)
    code, tried = trials.exit_code, trials.found
    if options.format == "json":
        show_json(to_json(options.config, tried, code))
    else:
        summary = _summary(tried, code, options, loaded=not isinstance(loaded, list))
        show(*_tried(tried, colour=wants_colour()), line(""), line(summary))
    return code


def _look(config: Config, options: argparse.Namespace, trials: Trials) -> None:
    """Try everything."""
    if not options.offline:
        config = _with_topics(config, options, trials)
    jobs, world = config.chosen(*options.job), _world(config)
    able = abilities(config, jobs, world, trials)
    if not options.offline:
        connections(config, jobs, able, world, trials)
    unread_names(config, trials)
    state_store(config, jobs, trials, offline=options.offline)


def _with_topics(config: Config, options: argparse.Namespace, trials: Trials) -> Config:
    """With the topics that patterns match at the jobs' homes."""
    for job in config.chosen(*options.job):
        try:
            config = inputs.with_topics(config, [job], {}, job.home)
        except ReconcilerError as error:
            trials.fail(f"jobs {job.name}", error.message, error.hint or "")
    return config


def _world(config: Config) -> World:
    from reconciler.kafka.reading_process import open_log
    from reconciler.kafka.requests import topics_of
    from reconciler.places.registry import open_store

    timeout_s, memory = config.search.request_timeout_s, config.search.memory
    return World(
        reader=lambda client, who: open_log(client, timeout_s=timeout_s, who=who, memory=memory),
        open_store=partial(open_store, timeout_s=timeout_s),
        topics=partial(topics_of, timeout_s=timeout_s),
    )


# ---------------------------------------------------------------- the output


def to_json(path: Path, tried: Sequence[TrialResult], code: ExitCode) -> dict[str, object]:
    """The result as JSON values, format ``reconciler.config-check/1``."""
    return {
        "format": FORMAT,
        "config": str(path),
        "tried": [
            {"level": each.level.value, "subject": each.subject, "said": each.message, "next": each.next_step or None}
            for each in tried
        ],
        "exit_code": int(code),
    }


def _tried(tried: Sequence[TrialResult], *, colour: bool) -> Iterator[Shown]:
    for each in tried:
        level = f"{each.level.value:<4}"
        code = _COLOURS[each.level]
        shown = f"\033[{code}m{level}\033[0m" if colour else level
        text = _folded(f"{level}  {each.subject}: {each.message}", _INDENT)
        yield Shown(shown + text[len(level) :])
        if each.next_step:
            yield _folded(f"{_INDENT}next: {each.next_step}", _INDENT)


def _folded(text: str, indent: str) -> Shown:
    text = line(text)
    begin = text[: len(text) - len(text.lstrip())]
    return Shown(begin + fold(text.lstrip(), max(_LEAST_COLUMNS, width() - len(begin)), indent=indent))


def _summary(tried: Sequence[TrialResult], code: ExitCode, options: argparse.Namespace, *, loaded: bool) -> str:
    counts = {level: sum(each.level is level for each in tried) for level in Level}
    totals = ", ".join(
        f"{counts[level]} {word}"
        for level, word in ((Level.FAIL, "failed"), (Level.WARN, "to look at"), (Level.OK, "ok"))
    )
    if not loaded:
        return f"{counts[Level.FAIL]} to correct. Nothing was tried: the configuration cannot be used."
    if code is ExitCode.OK:
        plan = command("reconciler", "plan", "-c", options.config)
        after = "Next: the same without --offline." if options.offline else f"Next: {plan}"
        if not tried:
            return f"The text is right; --offline connects to nothing. {after}"
        return f"{totals}. {after}"
    return f"{totals}. Correct the failures, then run this again."
