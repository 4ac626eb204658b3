"""The ``reconciler`` command: parse, run one command's module, turn every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence

from reconciler import __version__
from reconciler.cli.logs import set_up_logging
from reconciler.core.errors import ExitCode, ReconcilerError

COMMANDS = {
    "check": "say what would happen if the jobs started on the destination now; reads only",
    "plan": "the same, kept as a file",
    "apply": "write a plan's offsets: compare-and-set, snapshot first, read again after",
    "rollback": "put back what apply replaced",
    "hook": "check, correct, then become COMMAND: for the start of every job",
    "show": "a plan as a table, as Spark's startingOffsets, or as a page",
    "track": "keep anchors for jobs that store bare offsets, while the source is alive",
    "watch": "check again and again what a failover would find, and serve it to Prometheus",
    "anchors": "export or import stored offsets with their anchors, as JSON lines",
    "checkpoint": "show a Structured Streaming checkpoint, or copy it so that it goes on at a plan's offsets",
    "audit": "after a failover: what a job lost, doubled and reordered, counted on Spark",
    "compact": "merge the small files that range batches leave (Spark)",
    "drill": "try a job's failover: plan, a checkpoint's copy, the first records; touches nothing",
    "demo": "a whole failover on this machine, with real clusters",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (the contract's)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # A run makes a few hundred thousand short-lived records and no cycles; the collector only walks them.
    gc.set_threshold(1_000_000, 50, 50)
    try:
        options = _parser(arguments).parse_args(arguments)
    except KeyboardInterrupt:
        return _interrupted()
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


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reconciler",
        description="After a Kafka failover: the right offset for every partition, proven before the job starts.",
        epilog="Exit codes: 0 may start, 2 usage, 3 to be corrected (check), 4 a person is needed, 5 changed since the "
        "plan, 6 unreachable, 7 a write's outcome is unknown.",
    )
    parser.add_argument("--version", action="version", version=f"reconciler {__version__}")
    _add_common(parser, default=True)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    # Only the module of the command that was asked for is loaded: the hook must start fast.
    asked = next((word for word in arguments if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        _add_common(subparser, default=False)
        if name == asked:
            module = importlib.import_module(f"reconciler.cli.{name}")
            module.add_arguments(subparser)
            subparser.epilog = f"example:\n  {module.EXAMPLE}"
            subparser.set_defaults(run=module.run)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Options that stand before or after the command; the later one wins."""
    missing = None if default else argparse.SUPPRESS
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text" if default else missing,
        help="how messages on stderr look (default: text)",
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        default=False if default else missing,
        help="log what happens inside, and show tracebacks",
    )


if __name__ == "__main__":
    sys.exit(main())
