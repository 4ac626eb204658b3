"""The ``reconciler`` command: parse, run one command's module, turn every error into a sentence and an exit code.

Only the module of the command on the command line is imported: help and the hook must start fast.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress

from reconciler import __version__, written
from reconciler.cli.terminal import help, progress, signals
from reconciler.cli.terminal.help import CONFIG_HERE, CONFIG_VARIABLE, CommandGroup, Parser, UsageError
from reconciler.cli.terminal.logs import set_up_logging
from reconciler.cli.terminal.output import prepare_streams, say
from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.fileio import ABOUT_DISKS, ABOUT_FILES, of_file

GROUPS = (
    CommandGroup(
        "before a failover",
        {
            "init": "write a configuration from the destination and the job's store; read-only there",
            "config": "explain a configuration in words, and try every connection; read-only",
            "track": "keep anchors for jobs that store bare offsets, while the source is alive",
            "anchors": "export or import stored offsets with their anchors, as JSON lines",
            "mirror": "report what MirrorMaker says of itself at the destination, and what to set; read-only",
            "watch": "check repeatedly what a failover would find, and serve it to Prometheus",
            "drill": "try a job's failover: plan, a checkpoint's copy, the first records; changes nothing",
        },
    ),
    CommandGroup(
        "a failover",
        {
            "plan": "report what would happen if the jobs started on the destination now; -o keeps it as a file",
            "show": "show a plan as a table with its signer, as Spark's startingOffsets, or as a page",
            "sign": "sign a plan that you have reviewed",
            "apply": "write a plan's offsets: compare-and-set, read back after",
            "move": "move jobs to another cluster: check them there, ask, and let their hooks do it",
            "status": "show where each job lives, and what its next start does",
            "hook": "prepare a job's start where it lives, then become COMMAND: for every start",
            "checkpoint": "show the content of a Structured Streaming checkpoint",
            "rollback": "give back the offsets from before a move",
        },
    ),
    CommandGroup(
        "after it",
        {
            "audit": "after a failover: count on Spark what a job lost and doubled",
        },
    ),
    CommandGroup(
        "to learn it",
        {
            "demo": "run a whole failover on this machine, with real clusters",
        },
    ),
)
log = logging.getLogger("reconciler")

COMMANDS = {name: summary for group in GROUPS for name, summary in group.commands.items()}


def module_of(command: str) -> str:
    """The full name of the module that runs ``command``."""
    return f"reconciler.cli.commands.{command.replace('-', '_')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (the contract's)."""
    with signals.handled() as is_outermost:
        try:
            code = _main(list(sys.argv[1:] if arguments is None else arguments))
            if arguments is None:
                if code >= ExitCode.NEEDS_PERSON:
                    # An error's frames keep Kafka clients alive in cycles. A client that still runs when the process
                    # exits can crash it: its threads use OpenSSL, which is cleaned up before them.
                    gc.collect()
                gc.freeze()  # the process is ending: spare it a last pass over all objects
            return code
        except KeyboardInterrupt as interrupt:
            if not is_outermost:
                raise
            with suppress(OSError, ValueError):
                sys.stdout.flush()  # what the interrupt left in the buffer comes before the last line
            log.error("Interrupted. %s", written.text())
            return 128 + getattr(interrupt, "number", signal.SIGINT)


def _main(arguments: list[str]) -> int:
    # A run makes a few hundred thousand short-lived records and no cycles: frequent collections would find nothing.
    gc.set_threshold(1_000_000, 50, 50)
    _open_closed_streams()
    prepare_streams()
    options = argparse.Namespace(debug=False)
    try:
        parsed = _parse(arguments)
        if isinstance(parsed, ExitCode):
            return int(parsed)
        options = parsed
        set_up_logging(options.log_format, debug=options.debug)
        found = getattr(options, "found_config", None)
        if found is not None and options.config is found:
            where = f"./{found}, found here" if found is CONFIG_HERE else f"{found}, named by {CONFIG_VARIABLE}"
            log.info("Configuration: %s. Another is named with -c FILE.", where)
        with progress.show_waits():
            code = int(options.run(options))
        sys.stdout.flush()
        return code
    except ReconcilerError as error:
        if error.exit_code is not ExitCode.UNKNOWN_OUTCOME:
            written.check()  # the signal may have caused it
        return _failed(error, options)
    except Exception as error:
        written.check()  # a library may have put its own error in the interrupt's place
        if isinstance(error, OSError) and error.filename is not None and error.errno in ABOUT_FILES:
            return _failed(of_file(error.filename, error, "used"), options)
        if isinstance(error, OSError) and error.filename is None and error.errno in ABOUT_DISKS:
            _drop_stdout()  # else Python would try again to write what is left
            code = _failed(of_file("The output", error), options)
            if written.is_whole() and written.is_any():
                log.error("%s", written.text())  # this code usually says that nothing was
            return code
        if options.debug:
            raise
        log.error(
            "This is a bug in reconciler: %s: %s. Please report it with the output of --debug.",
            type(error).__name__,
            error,
        )
        return int(ExitCode.BUG)


def _failed(error: ReconcilerError, options: argparse.Namespace) -> int:
    """Log an error and the writes made before it; return its exit code."""
    log.error("%s", error, exc_info=options.debug)
    for other in error.others:
        log.error("%s", other)
    if not written.is_whole() and "nothing was written" not in str(error).lower():
        log.error("%s", written.text())
    return int(error.exit_code)


def _open_closed_streams() -> None:
    """Replace streams that were closed at the start: the next opened file would get their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open as long as the process


def _drop_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def full_parser() -> Parser:
    """The parser with every command's options: shtab makes completions of it."""
    return _parser(COMMANDS)


def _parse(arguments: Sequence[str]) -> argparse.Namespace | ExitCode:
    """The options; or the exit code, after a complaint about the command line was printed."""
    if not arguments:
        _parser(()).print_help(sys.stderr)
        return ExitCode.USAGE
    if arguments[0] == "help":  # ``help COMMAND`` means ``COMMAND --help``
        arguments = [*arguments[1:], "--help"]
    wanted = [word for word in arguments if word in COMMANDS][:1]
    if wanted and not {"-h", "--help"}.intersection(arguments):
        with suppress(UsageError):  # the whole parser repeats it, and lists the commands
            return _parser(wanted, whole=False).parse_args(arguments)
    try:
        return _parser(wanted).parse_args(arguments)
    except UsageError as error:
        say(*str(error).split("\n"), stream=sys.stderr)
        return ExitCode.USAGE


def _parser(wanted: Collection[str], *, whole: bool = True) -> Parser:
    """The parser with the options of ``wanted``. Only the modules of these commands are imported.

    Without ``whole`` it knows only these commands and has no help, which makes a start a tenth faster.
    """
    parser = _Overview(prog="reconciler", formatter_class=help.Formatter)
    _add_version(parser)
    _add_common(parser, default=True)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS if whole else wanted:
        summary = COMMANDS[name]
        subparser = subparsers.add_parser(name, help=summary, description=summary, formatter_class=help.Formatter)
        if name in wanted:
            module = importlib.import_module(module_of(name))
            module.add_arguments(subparser)
            if whole:
                help.describe(subparser, module.HELP)
            subparser.set_defaults(run=module.run)
        for each in (subparser, *subparser.actions.values()):
            _add_common(each, default=False)
    return parser


class _Overview(Parser):
    """The parser of the whole command line; its help groups the commands by the time when they are needed."""

    def format_help(self) -> str:
        options = argparse.ArgumentParser(usage=argparse.SUPPRESS, formatter_class=help.Formatter)
        _add_version(options)
        _add_common(options, default=True)
        shown = options.format_help().replace("options:", "options, before or after the command:", 1)
        return help.overview(self.format_usage(), GROUPS, shown)


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"reconciler {__version__}")


def _add_common(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Options that may come before or after the command; the last one wins."""
    missing = None if default else argparse.SUPPRESS
    group = parser if default else parser.add_argument_group("messages")
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text" if default else missing,
        help="the format of messages on stderr (default: text)",
    )
    group.add_argument(
        "--debug",
        action="store_true",
        default=False if default else missing,
        help="log internals, and show tracebacks",
    )


if __name__ == "__main__":
    sys.exit(main())
