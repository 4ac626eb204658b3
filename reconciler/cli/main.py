"""The ``reconciler`` command: parse, run one command's module, turn every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Collection, Sequence

from reconciler import __version__
from reconciler.cli.terminal import help
from reconciler.cli.terminal.logs import set_up_logging
from reconciler.cli.terminal.usage import Parser, UsageError, told
from reconciler.core.errors import ExitCode, ReconcilerError

COMMANDS = {
    "init": "write a configuration by asking the destination and the job's store; reads only",
    "config": "explain a configuration in words, and try every connection; reads only",
    "check": "say what would happen if the jobs started on the destination now; reads only",
    "plan": "the same, kept as a file",
    "apply": "write a plan's offsets: compare-and-set, snapshot first, read again after",
    "rollback": "put back what apply replaced",
    "sign": "put your signature to a plan that you have looked at",
    "verify": "say whether a plan is as it was made, and who has signed it",
    "hook": "check, correct, then become COMMAND: for the start of every job",
    "show": "a plan as a table, as Spark's startingOffsets, or as a page",
    "track": "keep anchors for jobs that store bare offsets, while the source is alive",
    "watch": "check again and again what a failover would find, and serve it to Prometheus",
    "anchors": "export or import stored offsets with their anchors, as JSON lines",
    "checkpoint": "show a Structured Streaming checkpoint, or copy it so that it goes on at a plan's offsets",
    "audit": "after a failover: what a job lost, doubled and reordered, counted on Spark",
    "audit-log": "verify and show the log of who applied and rolled back what",
    "compact": "merge the small files that range batches leave (Spark)",
    "drill": "try a job's failover: plan, a checkpoint's copy, the first records; touches nothing",
    "demo": "a whole failover on this machine, with real clusters",
    "completion": "print a script that completes commands, options and job names in a shell",
}

ROOMS = {
    "prepare": ("init", "config", "track", "anchors", "watch", "drill"),
    "failover": ("check", "plan", "show", "sign", "verify", "apply", "hook", "checkpoint", "rollback"),
    "afterwards": ("audit", "audit-log", "compact"),
    "learn": ("demo", "completion"),
}
"""The folder of ``commands`` that holds each command's module: by the time when the command is needed, as in help."""


def module_of(command: str) -> str:
    """The module that runs ``command``, by its full name."""
    room = next(room for room, commands in ROOMS.items() if command in commands)
    return f"reconciler.cli.commands.{room}.{command.replace('-', '_')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (the contract's)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # A run makes a few hundred thousand short-lived records and no cycles; the collector only walks them.
    gc.set_threshold(1_000_000, 50, 50)
    try:
        options = _parse(arguments)
    except KeyboardInterrupt:
        return _interrupted()
    if isinstance(options, ExitCode):
        return int(options)
    options.words = arguments
    set_up_logging(options.log_format, debug=options.debug)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets the result all the same
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except ReconcilerError as error:
        _say(error, debug=options.debug)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read the output has seen enough
        return int(ExitCode.OK)
    except Exception as error:
        # A call of the Kafka client that is interrupted may return as if it had worked, which Python complains of.
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            return _interrupted()
        if options.debug:
            raise
        logging.getLogger("reconciler").error(
            "This is a bug in reconciler: %s: %s. Please report it, with what --debug prints.",
            type(error).__name__,
            error,
        )
        return int(ExitCode.BUG)


def _interrupted() -> int:
    print("Interrupted.", file=sys.stderr)
    return 130


def _say(error: ReconcilerError, *, debug: bool) -> None:
    logging.getLogger("reconciler").error("%s", error, exc_info=debug)


def full_parser() -> Parser:
    """The parser with every command's options, for what must know them all (shell completion)."""
    return _parsers(COMMANDS)[0]


def _parse(arguments: Sequence[str]) -> argparse.Namespace | ExitCode:
    """The options; or the exit code, where the command line means nothing and that has been said."""
    asked = next((word for word in arguments if word in COMMANDS), None)
    parser, loaded = _parsers(() if asked is None else (asked,))
    if not arguments:
        print(parser.format_help(), end="", file=sys.stderr)
        return ExitCode.USAGE
    try:
        return parser.parse_args(_help_asked(arguments))
    except UsageError as error:
        options = re.findall(r"--[a-z][\w-]+", (loaded or parser).format_help())
        print(told(error, arguments, COMMANDS, options), file=sys.stderr)
        return ExitCode.USAGE


def _help_asked(arguments: Sequence[str]) -> Sequence[str]:
    """``help COMMAND`` as ``COMMAND --help``."""
    return [*arguments[1:], "--help"] if arguments[0] == "help" else arguments


def _parsers(wanted: Collection[str]) -> tuple[Parser, Parser | None]:
    """The whole parser, and that of the last command of ``wanted``.

    Only the modules of these are loaded: the hook must start fast.
    """
    parser, loaded = _Overview(prog="reconciler", formatter_class=help.Formatter), None
    parser.add_argument("--version", action="version", version=f"reconciler {__version__}")
    _add_common(parser, default=True)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary, formatter_class=help.Formatter)
        if name in wanted:
            loaded = subparser
            module = importlib.import_module(module_of(name))
            module.add_arguments(subparser)
            help.describe(subparser, getattr(module, "HELP", None) or _least(summary, module.EXAMPLE))
            subparser.set_defaults(run=module.run)
        for each in (subparser, *help.actions(subparser)):
            _add_common(each, default=False)
    return parser, loaded


def _least(summary: str, example: str) -> help.Help:
    """The help of a command that says no more of itself."""
    return help.Help(f"{summary[0].upper()}{summary[1:]}.", [("", example)])


class _Overview(Parser):
    """The parser of the whole command line; its help lists the commands by the time when they are needed."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.start_section("options, before or after the command")
        formatter.add_arguments([each for each in self._actions if each.option_strings])
        formatter.end_section()
        return help.overview(self.format_usage(), COMMANDS, formatter.format_help())


def _add_common(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Options that stand before or after the command; the later one wins."""
    missing = None if default else argparse.SUPPRESS
    group = parser if default else parser.add_argument_group("messages")
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text" if default else missing,
        help="how messages on stderr look (default: text)",
    )
    group.add_argument(
        "--debug",
        action="store_true",
        default=False if default else missing,
        help="log what happens inside, and show tracebacks",
    )


if __name__ == "__main__":
    sys.exit(main())
